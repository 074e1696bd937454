/* fs/report/prom.c - numbers as Prometheus text */
#include "fs/report/prom.h"

#include <inttypes.h>

#include "cas/cas.h"

#define FIRST_BITS  10
#define NS_PER_S    1000000000ULL
#define PER_MILLION 1000000ULL

void prom_family(struct prom *p, enum prom_type type, const char *name, const char *help)
{
	static const char *const types[] = {
		[PROM_COUNTER] = "counter",
		[PROM_GAUGE] = "gauge",
		[PROM_HISTOGRAM] = "histogram",
	};

	p->name = name;
	if (p->ret == 0)
		p->ret = buf_printf(p->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
				    types[type]);
}

static void begin(struct prom *p, const char *suffix, const char *labels)
{
	if (p->ret == 0 && labels)
		p->ret = buf_printf(p->out, "%s%s{%s} ", p->name, suffix, labels);
	else if (p->ret == 0)
		p->ret = buf_printf(p->out, "%s%s ", p->name, suffix);
}

void prom_value(struct prom *p, const char *labels, uint64_t value)
{
	begin(p, "", labels);
	if (p->ret == 0)
		p->ret = buf_printf(p->out, "%" PRIu64 "\n", value);
}

static void put_ns(struct prom *p, uint64_t ns)
{
	if (p->ret == 0)
		p->ret = buf_printf(p->out, "%" PRIu64 ".%09" PRIu64 "\n", ns / (uint64_t)NS_PER_S,
				    ns % (uint64_t)NS_PER_S);
}

void prom_seconds(struct prom *p, const char *labels, uint64_t ns)
{
	begin(p, "", labels);
	put_ns(p, ns);
}

void prom_ratio(struct prom *p, const char *labels, uint64_t part, uint64_t whole)
{
	uint64_t scaled;

	if (whole == 0)
		return;
	scaled = part > UINT64_MAX / PER_MILLION ? part / whole * PER_MILLION
						 : part * PER_MILLION / whole;
	begin(p, "", labels);
	if (p->ret == 0)
		p->ret = buf_printf(p->out, "%" PRIu64 ".%06" PRIu64 "\n",
				    scaled / (uint64_t)PER_MILLION, scaled % (uint64_t)PER_MILLION);
}

void prom_one(struct prom *p, enum prom_type type, const char *name, const char *help,
	      uint64_t value)
{
	prom_family(p, type, name, help);
	prom_value(p, NULL, value);
}

int prom_escape(struct buf *out, const char *text)
{
	int ret = 0;

	for (; *text && ret == 0; text++) {
		if (*text == '\n')
			ret = buf_append_str(out, "\\n");
		else if (*text == '\\' || *text == '"')
			ret = buf_printf(out, "\\%c", *text);
		else
			ret = buf_append_char(out, *text);
	}
	return ret;
}

void prom_histogram_add(struct prom_histogram *h, uint64_t ns)
{
	uint64_t rest = ns >> FIRST_BITS;
	int bucket = rest ? 64 - __builtin_clzll(rest) : 0;

	if (bucket > PROM_BUCKETS)
		bucket = PROM_BUCKETS;
	(void)atomic_fetch_add_explicit(&h->nr[bucket], 1, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

void prom_histogram_write(struct prom *p, const char *labels, const struct prom_histogram *h)
{
	uint64_t nr[PROM_BUCKETS + 1];
	uint64_t sum = atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
	uint64_t total = 0;

	/* The count is the sum of what was read, whatever is added meanwhile. */
	for (int i = 0; i <= PROM_BUCKETS; i++) {
		nr[i] = atomic_load_explicit(&h->nr[i], memory_order_relaxed);
		total += nr[i];
	}
	if (total == 0)
		return;
	total = 0;
	for (int i = 0; i <= PROM_BUCKETS && p->ret == 0; i++) {
		total += nr[i];
		p->ret = buf_printf(p->out, "%s_bucket{%s,le=\"", p->name, labels);
		if (p->ret == 0 && i < PROM_BUCKETS)
			p->ret = buf_printf(p->out, "%" PRIu64 ".%09" PRIu64 "\"} %" PRIu64 "\n",
					    (UINT64_C(1) << (i + FIRST_BITS)) / (uint64_t)NS_PER_S,
					    (UINT64_C(1) << (i + FIRST_BITS)) % (uint64_t)NS_PER_S,
					    total);
		else if (p->ret == 0)
			p->ret = buf_printf(p->out, "+Inf\"} %" PRIu64 "\n", total);
	}
	begin(p, "_sum", labels);
	put_ns(p, sum);
	begin(p, "_count", labels);
	if (p->ret == 0)
		p->ret = buf_printf(p->out, "%" PRIu64 "\n", total);
}
