/* cas/base/process.h - what the kernel tells of other processes */
#ifndef CAS_BASE_PROCESS_H
#define CAS_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Will process or thread @pid run no further instruction of its own: SIGKILL is pending, or
 * it exits (PF_EXITING of /proc/PID/stat, proc(5)), or it is gone? It may hold its locks
 * and descriptors for a while yet. Any thread.
 */
bool process_is_dying(pid_t pid);

#endif
