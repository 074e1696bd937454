/* fs/trace/opens.h - what is opened in sandboxes of session one, heard by fanotify */
#ifndef FS_TRACE_OPENS_H
#define FS_TRACE_OPENS_H

#include <stdint.h>
#include <sys/types.h>

struct err;
struct fs_probes;
struct fs_trace;

/*
 * Session one has no opens, but the kernel tells a listener of each, once the filesystem is
 * marked. A thread reads them a few milliseconds later, in batches. An event brings a
 * descriptor of the file, and with it the path that it has where the opener sees it: below
 * session one's base, or below FS_SANDBOX_INSIDE for an isolated command. Where a kernel overlay
 * lies over inputs the opens are its own, so each such layer is marked, too.
 *
 * The marks, which the helper sets (FS_HELPER_WATCH), need CAP_SYS_ADMIN outside of user
 * namespaces. As long as anybody is watched each open in session one costs about a microsecond
 * more.
 */
struct fs_opens;

struct fs_opens_options {
	struct fs_probes *probes; /* NULL: nothing is found out */
	const char *base;	  /* of session one; copied */
	dev_t dev;		  /* of session one; 0: told later */
};

int fs_opens_new(const struct fs_opens_options *opts, struct fs_opens **out);
/* NULL is fine. */
void fs_opens_free(struct fs_opens *opens);
/* Session one is mounted. */
void fs_opens_attach(struct fs_opens *opens, dev_t dev);

/*
 * What is opened in the sandbox @id is noted in @trace from now on, once its filesystems are
 * marked for the group *group_fd, which stays ours.
 * -EPERM: we may not listen. -ENOSYS, -EINVAL: the kernel cannot.
 */
int fs_opens_add(struct fs_opens *opens, const char *id, struct fs_trace *trace, int *group_fd,
		 struct err *err);
/* The same in the overlay with device @dev at @path of it, whose upper is @upper_fd (borrowed). */
int fs_opens_add_overlay(struct fs_opens *opens, const char *id, const char *path, uint64_t dev,
			 int upper_fd, struct err *err);
/* All opens until now are noted when it returns. */
void fs_opens_settle(struct fs_opens *opens);
/*
 * All opens until now are noted, and nothing more is; the kernel holds no event that would
 * keep its mounts busy. Nothing when there is no such sandbox.
 */
void fs_opens_remove(struct fs_opens *opens, const char *id);

#endif
