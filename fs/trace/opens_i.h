/* fs/trace/opens_i.h - what the files of opens share */
#ifndef FS_TRACE_OPENS_I_H
#define FS_TRACE_OPENS_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/fanotify.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>
#include <utlist.h>

#include "cas/base/lock.h"
#include "fs/trace/opens.h"

#define FS_OPENS_EVENTS_SZ  (64 * FAN_EVENT_METADATA_LEN) /* each opens a file */
#define FS_OPENS_MOUNTS_MAX 16
#define FS_OPENS_PLACES	    16384

/* An overlay in a watched sandbox. */
struct fs_opens_overlay {
	struct fs_opens_overlay *next;
	uint64_t dev;
	int upper_fd;
	char path[];
};

struct fs_opens_watched {
	UT_hash_handle hh;
	struct fs_trace *trace;		      /* counted */
	uint64_t mounts[FS_OPENS_MOUNTS_MAX]; /* in which it was seen; 0: none */
	unsigned nr_mounts;
	struct fs_opens_overlay *overlays;
	char id[];
};

/* A file of session one: what is at this place of some tree. */
struct fs_opens_place {
	uint64_t ino;
	char *path;
};

struct fs_opens {
	struct fs_opens_options opts;
	char *base;
	size_t base_len;
	int fds_fd; /* /proc/self/fd */
	int stop_fd;
	_Atomic bool stop;
	pthread_t thread;
	struct lock lock; /* rank QUEUE */
	bool started GUARDED_BY(lock);
	int notify_fd GUARDED_BY(lock); /* -1: nobody was watched so far */
	struct fs_opens_watched *by_id GUARDED_BY(lock);
	char *events GUARDED_BY(lock);
	/* FS_OPENS_PLACES of them, by inode number. */
	struct fs_opens_place *places GUARDED_BY(lock);
	/* Mounts that show no watched sandbox, as long as none is added. */
	uint64_t nobody[FS_OPENS_MOUNTS_MAX] GUARDED_BY(lock);
	unsigned next_nobody GUARDED_BY(lock);
	_Atomic dev_t dev;
};

/* Take what is there, of @max events at least. True: there may be more. */
bool fs_opens_read_locked(struct fs_opens *opens, int max) REQUIRES(opens->lock);

#endif
