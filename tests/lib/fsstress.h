/* tests/lib/fsstress.h - what the parts of fsstress share */
#ifndef TESTS_LIB_FSSTRESS_H
#define TESTS_LIB_FSSTRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * For shell cases: fsstress CHECK ARGUMENT... exits 0 when everything it tried went as on
 * a local disk, prints what did not and exits 1, exits 2 on wrong usage. It uses nothing of
 * the product. A check works in a directory that it is given and leaves there what its
 * comment says.
 */

/* Something is not as it has to be; the check goes on. */
__attribute__((format(printf, 1, 2))) void wrong(const char *fmt, ...);

/* How often wrong() was called in this process. */
int wrong_count(void);

/* An errno's name, OK for 0. */
const char *name_of(int err);

/* wrong() unless a call's result @ret (errno set below 0) was @want, 0 or an errno. */
void expect_call(const char *what, int want, long ret);

/* Open for a check that cannot go on without: ends the process when that fails. */
int must_open(const char *path, int flags);

/* Make @path hold @size bytes, each @byte. */
void must_fill(const char *path, size_t size, int byte);

/* wrong() unless the file at @path holds exactly @size bytes, each @byte. */
void expect_filled(const char *path, size_t size, int byte);

/* Run @body(@arg, i) in @nr processes; each reports by wrong(); wait for all. */
void in_processes(int nr, void (*body)(void *arg, int i), void *arg);

/* End a forked child with the verdict so far. */
_Noreturn void child_end(void);

/* Wait for one child and count a bad end as wrong. */
void child_wait(pid_t pid);

/* Seconds on the monotonic clock. */
double seconds(void);

/* A whole number that is an argument; ends with 2 when it is none. */
long number(const char *text);

/* Seconds, or a part of one, that are an argument; ends with 2 when it is none. */
double duration(const char *text);

/* fsstress_names.c */
void check_list_delete(char **args);
void check_list_threads(char **args);
void check_renamed(char **args);
void check_replace(char **args);

/* fsstress_data.c */
void check_mapped_output(char **args);
void check_mapped_input(char **args);
void check_open_life(char **args);
void check_second_fd(char **args);
void check_first_write(char **args);
void check_append(char **args);
void check_append_odd(char **args);
void check_direct(char **args);
void check_mappings(char **args);
void check_mixed_opens(char **args);

/* fsstress_live.c */
void check_signals(char **args);
void check_locks(char **args);
void check_locks_apart(char **args);
void check_busy_text(char **args);
void check_fork_storm(char **args);
void check_xattrs(char **args);
void check_events(char **args);

#endif
