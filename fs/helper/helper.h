/* fs/helper/helper.h - the process that touches paths of our own mounts */
#ifndef FS_HELPER_HELPER_H
#define FS_HELPER_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

/*
 * The daemon's side of the mount helper. Any thread may call; calls are serialized in
 * the order of arrival, without a lock that a thread answering the kernel ever takes:
 * those threads must never call anything here. Every call has a deadline; a helper that
 * misses it is killed and replaced, and the call fails with -ETIMEDOUT.
 * Paths are absolute; nothing below follows a symlink in the last component, and targets
 * inside session one are resolved without following any.
 */
struct fs_helper;

/* @program: what to spawn with "internal-helper"; NULL: /proc/self/exe. */
int fs_helper_new(const char *program, struct fs_helper **out, struct err *err);
void fs_helper_free(struct fs_helper *helper);
/* The process that the next call will speak to, unless it is found dead; 0: none yet. */
pid_t fs_helper_pid(struct fs_helper *helper);

/* Attach the detached mount @mount_fd (from fsmount) at @path. */
int fs_helper_attach(struct fs_helper *helper, int mount_fd, const char *path, struct err *err);

/*
 * Which mount it is. The kernel gives the number @id again once a mount is gone; together
 * with what is shown there it is told from another one. All 0: not known.
 */
struct fs_mount_key {
	uint64_t id;
	uint64_t dev;
	uint64_t ino;
};

enum fs_helper_op {
	/* Bind the directory @fd[0] (outside our mounts) over the target, nosuid and nodev. */
	FS_HELPER_BIND,
	/*
	 * Bind the file at the absolute path @source, which may be in our mounts, over the
	 * target, a regular file too; read-only, nosuid and nodev.
	 */
	FS_HELPER_BIND_FILE,
	/*
	 * Mount a kernel overlay over the target with that directory as the lower layer, and
	 * @fd[0] (upper) and @fd[1] (work), outside our mounts, as its own.
	 */
	FS_HELPER_OVERLAY,
	/*
	 * Bind the target over itself, nosuid, nodev and, unless @writable, read-only: a mount
	 * whose unmounting tells whether anybody is inside.
	 */
	FS_HELPER_BIND_SELF,
	/*
	 * Unmount what is on top of the target. Waits up to 20 ms for a passing walker.
	 * -EBUSY: in use; with @detach it is then detached lazily and the code is 1.
	 * 0: released without EBUSY, the proof that nobody in this mount namespace holds it.
	 * -EINVAL, -ENOENT, -ENOTDIR, -ELOOP: no mount there (any more); nothing was done.
	 * -ESTALE: another mount is on top than the one with @key; nothing was done.
	 */
	FS_HELPER_UNMOUNT,
	/* Detach all that is mounted at the target, with what is below: 1, or as UNMOUNT. */
	FS_HELPER_DETACH,
	/*
	 * Read the directory to its end, or look at the name, under all that is mounted below
	 * the base and without making any of that busy. -EPERM: we may not.
	 */
	FS_HELPER_LIST,
	FS_HELPER_LOOK,
	/*
	 * Look the target up. Is nobody on the mount on top of the target, and nothing mounted on
	 * it? 0: so it is, which proves as much as UNMOUNT does, and it stays mounted. Else as
	 * UNMOUNT.
	 */
	FS_HELPER_IDLE,
	/*
	 * Tell the fanotify group @fd[0] of opens in the whole filesystem of the target. -EPERM: it
	 * may not.
	 */
	FS_HELPER_WATCH,
	/*
	 * The same for each directory of @source, paths below the target with a NUL after each,
	 * @source_len bytes in all: of opens of what is in it. -ENODEV, -EINVAL: the kernel cannot.
	 */
	FS_HELPER_WATCH_DIRS,
	/*
	 * Put the mount on top of the target onto the directory @source, relative to the base,
	 * where others like it may lie, one on the other, and look there as IDLE does. 0: it is
	 * there, to be unmounted at leisure, which is most of the work. -EBUSY: it is back at
	 * its place. Where it cannot be moved, or which it is is not known: as UNMOUNT, and 0
	 * when that was done.
	 */
	FS_HELPER_AWAY,
	/*
	 * Look the target up, after the answer was sent: nobody waits for it. Its code is 0. Last.
	 */
	FS_HELPER_VISIT,
};

#define FS_HELPER_DIRS_MAX 16384 /* of source_len; one path may be longer */

struct fs_helper_step {
	enum fs_helper_op op;
	const char *target; /* relative to the base, resolved beneath it without symlinks */
	const char *source; /* BIND_FILE, WATCH_DIRS, AWAY */
	size_t source_len;  /* WATCH_DIRS */
	int fd[2];	    /* stay the caller's */
	bool in_userns;	    /* OVERLAY: in a user namespace */
	bool detach;
	bool may;      /* steps after it are done even if it fails */
	bool writable; /* BIND_SELF */
	bool if_clean; /* -ECANCELED unless the code of each step before it was 0 */
	/* Out: of the mount made. In, UNMOUNT, IDLE and AWAY: no other is meant, when it is known.
	 */
	struct fs_mount_key key;
	int code; /* out: 0, 1, negative errno; -ECANCELED: not tried, as one before failed */
};

/*
 * Do @steps in order, below @base, a path of session one: a message to the helper for
 * each sixteen or so. Stops at the first that fails, unless @go_on.
 * 0 when each was done, or may fail; else the code of the first that was not, with the
 * reason. -ETIMEDOUT, -EPIPE: the helper was lost, and steps with that code may have been
 * done all the same.
 */
int fs_helper_run(struct fs_helper *helper, const char *base, struct fs_helper_step *steps,
		  size_t nr, bool go_on, struct err *err);

/*
 * The same; @meanwhile (may be NULL) is called once when the helper has been asked and before
 * its answer is waited for: on another processor than the helper, if one is free. It should be
 * short: others may wait for their turn. Not called when there was nobody to ask.
 */
int fs_helper_run_while(struct fs_helper *helper, const char *base, struct fs_helper_step *steps,
			size_t nr, bool go_on, void (*meanwhile)(void *ctx), void *ctx,
			struct err *err);

/* One such step. */
int fs_helper_bind(struct fs_helper *helper, int source_fd, const char *base, const char *target,
		   struct err *err);
int fs_helper_overlay(struct fs_helper *helper, int upper_fd, int work_fd, const char *base,
		      const char *target, bool in_userns, struct err *err);
int fs_helper_unmount(struct fs_helper *helper, const char *base, const char *target, bool detach,
		      struct err *err);

/* statx of @path with AT_STATX_FORCE_SYNC: an upcall in any case. For the watchdog. */
int fs_helper_ping(struct fs_helper *helper, const char *path, int timeout_ms, struct err *err);
/* The same; -ECANCELED: *@cancel, which is looked at every 100 ms, became true. */
int fs_helper_ping_unless(struct fs_helper *helper, const char *path, int timeout_ms,
			  const _Atomic bool *cancel, struct err *err);

#endif
