/* fs/slot/push_i.h - pushes, for the files that share them */
#ifndef FS_SLOT_PUSH_I_H
#define FS_SLOT_PUSH_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "cas/base/lock.h"
#include "fs/slot/push.h"

#define FS_PUSH_BATCH	16	   /* steps of one message to the helper */
#define FS_PUSH_FILE_SZ (64 << 10) /* larger files are left to be asked for */

struct fs_push {
	struct fs_push *next;
	enum fs_push_kind kind;
	uint64_t serial; /* WANT: 0 */
	size_t bytes_left;
	size_t entries_left;
	size_t nr_names;
	size_t name_at; /* the next to be looked up */
	size_t nr_dirs;
	size_t dirs_cap;
	size_t dir_at; /* the next to be listed */
	uint64_t *dirs;
	size_t names_cap;
	struct push_name {
		uint64_t dir;
		char *name;
	} * names;
	bool foreseen; /* WARM: names have the missing ones */
};

struct fs_pusher {
	struct fs_pusher_options opts;
	struct fs_helper *helper;
	pthread_t thread;
	bool runs;		    /* thread is to be joined */
	char data[FS_PUSH_FILE_SZ]; /* the thread's */

	struct lock lock; /* rank QUEUE */
	pthread_cond_t wake;
	struct fs_push *first GUARDED_BY(lock);
	struct fs_push **last GUARDED_BY(lock);
	size_t nr_waiting GUARDED_BY(lock); /* and the one that has its turn */

	_Atomic bool stop;
	_Atomic bool refused;	     /* by the kernel: it will not be otherwise later */
	_Atomic uint64_t crowded_ns; /* until then there is no processor to spare */
	_Atomic uint64_t nr_names;
	_Atomic uint64_t nr_dirs;
	_Atomic uint64_t nr_files;
	_Atomic uint64_t nr_skipped; /* pushes */
};

/* One turn of @push, of a message to the helper. False: it is done. push_turn.c */
bool fs_push_turn(struct fs_pusher *p, struct fs_push *push);

#endif
