/* fs/trace/trace_i.h - the recorder, for the files that feed it */
#ifndef FS_TRACE_TRACE_I_H
#define FS_TRACE_TRACE_I_H

#include <stdint.h>
#include <sys/types.h>
#include <uthash.h>

#include "fs/trace/trace.h"

struct fs_trace_path {
	UT_hash_handle hh;
	_Atomic unsigned bits; /* enum fs_trace_what; only ever added to */
	char text[];
};

/* As fs_tap_looked and fs_tap_read, of one sandbox: @dir is relative to its root. */
void fs_trace_looked(struct fs_trace *trace, const char *dir, const char *name, uint64_t node,
		     bool leaf, pid_t pid);
void fs_trace_read(struct fs_trace *trace, uint64_t node, pid_t pid);

#endif
