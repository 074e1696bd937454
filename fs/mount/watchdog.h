/* fs/mount/watchdog.h - notice a wedged session and break its connection */
#ifndef FS_MOUNT_WATCHDOG_H
#define FS_MOUNT_WATCHDOG_H

#include <sys/types.h>

struct fs_helper;

struct fs_watchdog_options {
	struct fs_helper *helper;
	const char *paths[2]; /* roots of the sessions, the outer one first; NULL: one only */
	dev_t devs[2];
	int period_ms;
	int timeout_ms;
	/* Called once, by the watchdog's thread, when a connection was aborted. */
	void (*wedged)(void *ctx);
	void *ctx;
};

struct fs_watchdog;

int fs_watchdog_new(const struct fs_watchdog_options *opts, struct fs_watchdog **out);
void fs_watchdog_free(struct fs_watchdog *dog);

#endif
