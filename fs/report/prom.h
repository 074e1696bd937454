/* fs/report/prom.h - numbers as Prometheus text */
#ifndef FS_REPORT_PROM_H
#define FS_REPORT_PROM_H

#include <stdatomic.h>
#include <stdint.h>

struct buf;

/*
 * Writes the text format, version 0.0.4: a family begins with its help and type, then come
 * its samples. Does not depend on the locale. The first failure (-ENOMEM) stays in @ret.
 */
struct prom {
	struct buf *out;
	const char *name; /* of the family; a literal */
	int ret;
};

enum prom_type { PROM_COUNTER, PROM_GAUGE, PROM_HISTOGRAM };

void prom_family(struct prom *p, enum prom_type type, const char *name, const char *help);

/* @labels: `state="live",kind="x"` without braces, values escaped; NULL: none. */
void prom_value(struct prom *p, const char *labels, uint64_t value);
/* Seconds with all nine digits. */
void prom_seconds(struct prom *p, const char *labels, uint64_t ns);
/* A part of a whole, with six digits; nothing when @whole is 0. */
void prom_ratio(struct prom *p, const char *labels, uint64_t part, uint64_t whole);
/* A family of one sample. */
void prom_one(struct prom *p, enum prom_type type, const char *name, const char *help,
	      uint64_t value);

/* Append @text with \, " and newline as a label's value wants them. -ENOMEM. */
int prom_escape(struct buf *out, const char *text);

/*
 * Times, counted in powers of two: bucket i holds those below 2^(i + 10) ns, the last one
 * all others. Two relaxed additions a time; any thread.
 */
#define PROM_BUCKETS 25 /* up to 17 s */
struct prom_histogram {
	_Atomic uint64_t nr[PROM_BUCKETS + 1];
	_Atomic uint64_t sum_ns;
};
void prom_histogram_add(struct prom_histogram *h, uint64_t ns);
/* _bucket, _sum and _count; nothing when there was nothing. */
void prom_histogram_write(struct prom *p, const char *labels, const struct prom_histogram *h);

#endif
