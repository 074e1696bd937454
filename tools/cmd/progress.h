/* tools/cmd/progress.h - a line on the terminal while long work runs */
#ifndef TOOLS_CMD_PROGRESS_H
#define TOOLS_CMD_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * A thread prints "verb: count, bytes, rate[, time left]" on standard error, if that is a
 * terminal, a few times a second; nothing otherwise. The counters are only read.
 */
struct progress;

struct progress_source {
	const char *verb;
	const _Atomic uint64_t *count;
	const _Atomic uint64_t *bytes;
	const _Atomic uint64_t *total_bytes; /* NULL or 0: unknown, no time left is shown */
};

/* NULL when there is nothing to do; progress_end takes that. */
struct progress *progress_begin(const struct progress_source *source);
/* Wipe the line. */
void progress_end(struct progress *progress);

/*
 * On a terminal, count the bytes of the files below the paths of a NULL-terminated list
 * into @total, in a thread that ends with the work or with the process.
 */
void progress_count(char *const *paths, _Atomic uint64_t *total);

/* "1.5 MB": decimal units, for people. Returns @out. */
const char *progress_size(uint64_t bytes, char out[24]);

#endif
