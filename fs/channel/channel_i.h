/* fs/channel/channel_i.h - what the files of conversations share */
#ifndef FS_CHANNEL_CHANNEL_I_H
#define FS_CHANNEL_CHANNEL_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "cas/base/buf.h"
#include "cas/base/lock.h"
#include "fs/channel/channel.h"
#include "fs/control/control.h"
#include "fs/serve/executor.h"

/* Who reads no answers does not get to fill the memory. */
#define FS_CHANNEL_UNREAD_MAX (1 << 20)

struct fs_channel_line {
	struct fs_channel_line *next;
	bool too_long; /* no text: the line was over the limit */
	size_t len;
	char text[];
};

struct fs_channel_waiter {
	struct fs_channel_waiter *next;
	struct fuse_req *req;
	size_t size;
};

struct fs_channel {
	struct fs_job job; /* first: the job is the channel */
	struct fs_job patient_job;
	struct control_line held; /* what patient_job begins with */
	struct fs_channels *all;
	struct fs_channel *prev; /* all->lock, as everything but attached */
	struct fs_channel *next;
	struct buf partial; /* bytes after the last newline */
	bool overlong;	    /* dropping the rest of a line over the limit */
	struct fs_channel_line *head;
	struct fs_channel_line **tail;
	size_t nr_pending; /* lines not yet answered, the running one included */
	size_t nr_queued;  /* bytes of those that wait */
	bool busy;
	bool released;
	bool parked; /* released, and kept: a next daemon, or a reopen, is to see to it */
	struct buf answers;
	size_t answers_pos; /* of them, so many were read */
	struct fs_channel_waiter *reads;
	bool interrupted;      /* the last read was */
	_Atomic bool unwanted; /* nobody waits for the answer any more */
	struct fuse_pollhandle *ph;
	struct control_attached attached; /* the thread that works on it */
};

struct fs_channels {
	const struct control_env *env;
	struct fs_executor *executor;
	struct fs_executor *patient;
	struct lock lock;
	pthread_cond_t changed; /* pending or unread went down */
	size_t nr_pending GUARDED_BY(lock);
	bool open GUARDED_BY(lock);
	bool shut GUARDED_BY(lock);
	struct fs_channel *list GUARDED_BY(lock);
};

void fs_channel_free(struct fs_channel *c);

/* Are so many answers unread that no more are to be made? Nobody reads those of a released one. */
bool fs_channel_is_stuffed_locked(const struct fs_channel *c) REQUIRES(c->all->lock);
/* True: it is the caller's to submit, and is busy from now on. */
bool fs_channel_set_to_work_locked(struct fs_channel *c) REQUIRES(c->all->lock);
/* Answer what waits while there is something to say: bytes, or that nothing comes. */
void fs_channel_serve(struct fs_channel *c);

#endif
