/* fs/helper/helper_guard.h - let a killed daemon die that waits for itself */
#ifndef FS_HELPER_HELPER_GUARD_H
#define FS_HELPER_HELPER_GUARD_H

#include <stdbool.h>

/*
 * A daemon that is killed while one of its threads takes a name from a directory of ours
 * (FUSE_NOTIFY_INVAL_ENTRY) and somebody else is looking a name up there does not die: the
 * thread waits for the directory, unkillably (inode_lock), whoever looks waits for an answer,
 * and as long as the thread lives the connection counts as served (seen, Linux 6.18). Nothing
 * but breaking the connection ends that, and nobody else is left to do it.
 *
 * So a thread of the helper, which touches no path of ours, looks every second whether the
 * daemon's first thread is gone while the process still is there, and then breaks the
 * connections of the mounts that the helper was asked about.
 */

struct fs_guard;

/*
 * Begin to watch the process that is our parent now, until the process ends. NULL without memory:
 * then nobody watches.
 */
struct fs_guard *fs_guard_start(void);

/*
 * The helper was asked about what is below @base: if that is a mount of ours, it is one to
 * break. One thread; @guard may be NULL. @again: look once more, although it was none when last
 * asked about.
 */
void fs_guard_note(struct fs_guard *guard, const char *base, bool again);

#endif
