/* fs/serve/helper.h - the process that touches paths of our own mounts */
#ifndef FS_SERVE_HELPER_H
#define FS_SERVE_HELPER_H

#include <stdbool.h>
#include <stddef.h>

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

/* Attach the detached mount @mount_fd (from fsmount) at @path. */
int fs_helper_attach(struct fs_helper *helper, int mount_fd, const char *path, struct err *err);

/*
 * Bind the directory @source_fd (outside our mounts) over @base/@target, nosuid and
 * nodev. @base is a path of session one, @target relative to it and resolved beneath
 * it without symlinks.
 */
int fs_helper_bind(struct fs_helper *helper, int source_fd, const char *base, const char *target,
		   struct err *err);

/*
 * Bind the directory @base/@target over itself, read-only, nosuid and nodev: a mount
 * whose unmounting tells whether anybody is inside.
 */
int fs_helper_bind_self(struct fs_helper *helper, const char *base, const char *target,
			struct err *err);

/*
 * Mount a kernel overlay over @base/@target with that directory as the lower layer, and
 * @upper_fd and @work_fd (outside our mounts) as its own.
 */
int fs_helper_overlay(struct fs_helper *helper, int upper_fd, int work_fd, const char *base,
		      const char *target, bool in_userns, struct err *err);

/*
 * Unmount what is on top of @base/@target. Waits up to 20 ms for a passing walker.
 * -EBUSY: in use; with @detach it is then detached lazily and 1 is returned.
 * 0: released without EBUSY, the proof that nobody in this mount namespace holds it.
 * -EINVAL, -ENOENT, -ENOTDIR, -ELOOP: no mount there (any more); nothing was done.
 */
int fs_helper_unmount(struct fs_helper *helper, const char *base, const char *target, bool detach,
		      struct err *err);

/* statx of @path with AT_STATX_FORCE_SYNC: an upcall in any case. For the watchdog. */
int fs_helper_ping(struct fs_helper *helper, const char *path, int timeout_ms, struct err *err);

#endif
