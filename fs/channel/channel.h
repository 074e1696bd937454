/* fs/channel/channel.h - conversations with the control file */
#ifndef FS_CHANNEL_CHANNEL_H
#define FS_CHANNEL_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

struct control_env;
struct fs_executor;
struct fs_job;
struct fuse_pollhandle;
struct fuse_req;

/*
 * One open of the control file: lines that are written become commands, which run one
 * after the other in order; their answers are read in that order. Other opens run at
 * the same time. What was written may be a part of a line, or several. While more than a
 * MiB of answers is unread no further command runs, unless all are refused. Any thread.
 */
struct fs_channel;

/* All channels of a mount. Commands wait until they are opened. */
struct fs_channels;

/* All outlive it. Commands that may take minutes go to @patient, where they wait for each other. */
int fs_channels_new(const struct control_env *env, struct fs_executor *executor,
		    struct fs_executor *patient, struct fs_channels **out);
/* After the executor and the session that opened channels have ended. */
void fs_channels_free(struct fs_channels *channels);

/* Commands that were accepted and not yet answered. */
size_t fs_channels_nr_pending(struct fs_channels *channels);
/* What commands work on is there. */
void fs_channels_open(struct fs_channels *channels);
/*
 * From now on every command is answered with ESHUTDOWN, but for those running, of which
 * creates wait for no tier any more.
 */
void fs_channels_shut(struct fs_channels *channels);
/* The same if at most @nr commands are pending; else false. */
bool fs_channels_shut_if(struct fs_channels *channels, size_t nr);
void fs_channels_reopen(struct fs_channels *channels);
/* Wait until at most @nr commands are pending; false when @deadline_ns passed before. */
bool fs_channels_wait(struct fs_channels *channels, size_t nr, unsigned long long deadline_ns);
/* Wait until no answer is left unread; false as above. */
bool fs_channels_wait_read(struct fs_channels *channels, unsigned long long deadline_ns);

int fs_channel_new(struct fs_channels *channels, struct fs_channel **out);

/*
 * The handle is released: what was written still runs, answers are dropped, and what
 * was attached ends afterwards. After a read that was interrupted a create waits for no
 * tier any more, and a finish ends with ECANCELED.
 */
void fs_channel_release(struct fs_channel *channel);

/*
 * Take written bytes. Does not block. -ENOMEM. -ENOBUFS: answers are not being read, and
 * more than a MiB of them, or of lines, wait: nothing was taken. *job, unless NULL, is what the
 * caller has to have run, by the executor or himself, whatever is returned: it runs commands.
 */
int fs_channel_write(struct fs_channel *channel, const void *data, size_t len, struct fs_job **job);

/*
 * Answer the read request @req, now or when there is something: as many bytes as are
 * there, none when no command is pending; EPROTO when none is because the line that was
 * written has no end; EAGAIN instead of waiting when @nonblock; EINTR when interrupted.
 */
void fs_channel_read(struct fs_channel *channel, struct fuse_req *req, size_t size, bool nonblock);

/* Events that hold now (POLLIN, POLLOUT); @ph, or NULL, is told when POLLIN comes. */
unsigned fs_channel_poll(struct fs_channel *channel, struct fuse_pollhandle *ph);

#endif
