/* cas/base/log.h - one line per event */
#ifndef CAS_BASE_LOG_H
#define CAS_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>

/* error: a person should act; warn: we coped; info: life cycle; debug: per operation. */
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/*
 * Receives one finished line without a newline. Called from any thread, one call at
 * a time (the log's own lock is held: a sink must not log).
 */
typedef void (*log_sink_fn)(void *ctx, enum log_level level, const char *line);

/* Process-wide; the default level is warn and the default sink standard error. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_set_sink(log_sink_fn sink, void *ctx);

/* 0 and *out, or -EINVAL for a word that is none of error, warn, info, debug. */
int log_level_parse(const char *word, enum log_level *out);
const char *log_level_name(enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if ((level) <= log_get_level())                                                    \
			log_write((level), __VA_ARGS__);                                           \
	} while (0)
#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
