/* fs/mount/record.h - STORE/run/daemon: who serves the store */
#ifndef FS_MOUNT_RECORD_H
#define FS_MOUNT_RECORD_H

#include <stdbool.h>
#include <sys/types.h>

struct cas_store;
struct err;

/*
 * JSON: pid, mountpoint, boot_id, start_ns, automatic, version, dev (of both sessions), and
 * sandboxes, where session one is when it is not in session two, and hidden, a pid or 0.
 */
struct fs_daemon_record {
	const char *mountpoint;
	bool automatic;
	dev_t dev_one;
	dev_t dev_two;
	const char *beside; /* NULL: session one is in session two */
	pid_t hidden;	    /* the mounts are in namespaces of this process; 0: in all */
};

int fs_daemon_record_write(const struct cas_store *store, const struct fs_daemon_record *record,
			   struct err *err);
/* The writer's lock is ours: detach session one of a recorded daemon that died beside it. */
int fs_daemon_record_clear(const struct cas_store *store, struct err *err);
void fs_daemon_record_remove(const struct cas_store *store);

/*
 * The writer's lock, for life. A recorded daemon that is dying gets a moment to go.
 * -EBUSY: somebody serves or writes the store; the message says who and where.
 */
int fs_daemon_lock(struct cas_store *store, struct err *err);

#endif
