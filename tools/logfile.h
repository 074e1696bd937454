/* tools/logfile.h - the daemon's log: STORE/run/log, bounded */
#ifndef TOOLS_LOGFILE_H
#define TOOLS_LOGFILE_H

struct err;

/* Open STORE/run/log to append to (close-on-exec); negative errno. */
int logfile_open(const char *store, struct err *err);

/*
 * From now on log lines go to standard error with the time before them, and standard
 * error is STORE/run/log: at 1 MiB it becomes log.1, in place of the one before.
 */
void logfile_begin(const char *store);

#endif
