/* tools/bench/bench.c - time pairs, reduce them to medians, print text and JSON */
#include "tools/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"

#define LABEL_WIDTH  30
#define COLUMN_WIDTH 9

/* @table is the one that rows go to, borrowed from tables; NULL before the first. */
struct bench_report {
	json_t *tables;
	json_t *gates;
	json_t *notes;
	json_t *table;
	const struct bench_column *columns;
};

double bench_now_ms(void)
{
	return (double)lock_now_ns() / 1e6;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(const double *values, size_t nr)
{
	auto_free double *sorted = calloc(nr ? nr : 1, sizeof(*sorted));
	size_t n = 0;

	if (!sorted)
		return NAN;
	for (size_t i = 0; i < nr; i++) {
		if (!isnan(values[i]))
			sorted[n++] = values[i];
	}
	if (n == 0)
		return NAN;
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double bench_ratio(const double *over, const double *under, size_t nr)
{
	auto_free double *ratios = calloc(nr ? nr : 1, sizeof(*ratios));

	if (!ratios)
		return NAN;
	for (size_t i = 0; i < nr; i++)
		ratios[i] = under[i] > 0 ? over[i] / under[i] : NAN;
	return bench_median(ratios, nr);
}

int bench_report_new(struct bench_report **out)
{
	struct bench_report *rep = calloc(1, sizeof(*rep));

	if (!rep)
		return -ENOMEM;
	rep->tables = json_array();
	rep->gates = json_array();
	rep->notes = json_array();
	if (!rep->tables || !rep->gates || !rep->notes) {
		bench_report_free(rep);
		return -ENOMEM;
	}
	*out = rep;
	return 0;
}

void bench_report_free(struct bench_report *rep)
{
	if (!rep)
		return;
	json_decref(rep->tables);
	json_decref(rep->gates);
	json_decref(rep->notes);
	free(rep);
}

static json_t *host_describe(void)
{
	struct utsname uts;
	char when[32] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (uname(&uts) < 0)
		(void)memset(&uts, 0, sizeof(uts));
	if (gmtime_r(&now, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_pack("{s:s, s:s, s:s, s:I, s:s}", "kernel", uts.release, "machine", uts.machine,
			 "casbox", CASBOX_VERSION, "processors",
			 (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "time", when);
}

int bench_report_write(struct bench_report *rep, const char *path, struct err *err)
{
	auto_free char *text = NULL;
	auto_close int fd = -1;
	json_t *all = json_pack("{s:o, s:O, s:O, s:O}", "host", host_describe(), "tables",
				rep->tables, "gates", rep->gates, "notes", rep->notes);
	int ret;

	if (all)
		text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	json_decref(all);
	if (!text)
		return err_set(err, -ENOMEM, "writing %s: out of memory", path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ret = fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
	if (fd >= 0 && close(steal_fd(&fd)) < 0 && ret == 0)
		ret = -errno;
	return ret < 0 ? err_set(err, ret, "writing %s: %s", path, strerror(-ret)) : 0;
}

void bench_table(struct bench_report *rep, const char *bench, const char *title,
		 const struct bench_column *columns)
{
	rep->columns = columns;
	rep->table = json_pack("{s:s, s:s, s:[]}", "bench", bench, "title", title, "rows");
	if (json_array_append_new(rep->tables, rep->table) < 0)
		rep->table = NULL;
	(void)printf("\n%s: %s\n%-*s", bench, title, LABEL_WIDTH, "");
	for (const struct bench_column *c = columns; c->key; c++)
		(void)printf(" %*s", COLUMN_WIDTH, c->head);
	(void)printf("\n");
	(void)fflush(stdout);
}

static json_t *json_value(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

void bench_row(struct bench_report *rep, const char *label, const double *values)
{
	json_t *row = json_pack("{s:s}", "way", label);

	(void)printf("%-*s", LABEL_WIDTH, label);
	for (size_t i = 0; rep->columns[i].key; i++) {
		if (isfinite(values[i]))
			(void)printf(" %*.*f", COLUMN_WIDTH, rep->columns[i].digits, values[i]);
		else
			(void)printf(" %*s", COLUMN_WIDTH, "-");
		if (row)
			(void)json_object_set_new(row, rep->columns[i].key, json_value(values[i]));
	}
	(void)printf("\n");
	(void)fflush(stdout);
	if (rep->table)
		(void)json_array_append_new(json_object_get(rep->table, "rows"), row);
	else
		json_decref(row);
}

static const char *gate_word(double value, double must, double target)
{
	double sign = target > must ? -1 : 1;

	if (!isfinite(value))
		return "not measured";
	if (sign * value <= sign * target)
		return "target";
	return sign * value <= sign * must ? "must" : "missed";
}

void bench_gate(struct bench_report *rep, const char *name, double value, double must,
		double target)
{
	(void)json_array_append_new(rep->gates,
				    json_pack("{s:s, s:o, s:f, s:f, s:s}", "name", name, "value",
					      json_value(value), "must", must, "target", target,
					      "met", gate_word(value, must, target)));
}

void bench_gates_print(struct bench_report *rep)
{
	size_t i;
	json_t *gate;

	if (json_array_size(rep->gates) == 0)
		return;
	(void)printf("\n%-50s %8s %8s %8s  %s\n", "gates", "value", "must", "target", "met");
	json_array_foreach(rep->gates, i, gate)
	{
		json_t *value = json_object_get(gate, "value");
		char text[32] = "-";

		if (json_is_real(value))
			(void)snprintf(text, sizeof(text), "%.2f", json_real_value(value));
		(void)printf("%-50s %8s %8.2f %8.2f  %s\n",
			     json_string_value(json_object_get(gate, "name")), text,
			     json_real_value(json_object_get(gate, "must")),
			     json_real_value(json_object_get(gate, "target")),
			     json_string_value(json_object_get(gate, "met")));
	}
	(void)fflush(stdout);
}

void bench_note(struct bench_report *rep, const char *fmt, ...)
{
	auto_free char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (!text)
		return;
	(void)printf("  %s\n", text);
	(void)fflush(stdout);
	(void)json_array_append_new(rep->notes, json_string(text));
}
