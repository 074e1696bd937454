/* cas/base/log.c - one line per event */
#include "cas/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

static void stderr_sink(void *ctx, enum log_level level, const char *line)
{
	(void)fprintf(stderr, "casbox: %s: %s\n", level_names[level], line);
}

static _Atomic int cur_level = LOG_LEVEL_WARN;
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn cur_sink = stderr_sink;
static void *cur_sink_ctx;

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&cur_level, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
	return (enum log_level)atomic_load_explicit(&cur_level, memory_order_relaxed);
}

void log_set_sink(log_sink_fn sink, void *ctx)
{
	(void)pthread_mutex_lock(&sink_lock);
	cur_sink = sink ? sink : stderr_sink;
	cur_sink_ctx = ctx;
	(void)pthread_mutex_unlock(&sink_lock);
}

int log_level_parse(const char *word, enum log_level *out)
{
	for (int i = 0; i <= LOG_LEVEL_DEBUG; i++) {
		if (strcmp(word, level_names[i]) == 0) {
			*out = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *log_level_name(enum log_level level)
{
	return level_names[level];
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* A newline inside a name must not start a second event. */
	for (char *p = line; *p != '\0'; p++) {
		if ((unsigned char)*p < ' ')
			*p = '?';
	}
	(void)pthread_mutex_lock(&sink_lock);
	cur_sink(cur_sink_ctx, level, line);
	(void)pthread_mutex_unlock(&sink_lock);
}
