/* fs/mount/way.c - who mounts for us, and where session one goes then */
#include "fs/mount/way.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/fs.h"
#include "fs/mount/detach.h"
#include "fs/mount/fusermount.h"
#include "fs/mount/place.h"
#include "fs/mount/record.h"
#include "fs/mount/userns.h"

const char *fs_way_name(enum fs_way way)
{
	static const char *const names[] = {
		[FS_WAY_OURS] = "fsopen",
		[FS_WAY_HIDDEN] = "own namespace",
		[FS_WAY_FUSERMOUNT3] = "fusermount3",
	};

	return names[way];
}

int fs_way_choose(const struct fs_options *opts, enum fs_way *out, struct err *no_userns,
		  struct err *err)
{
	int ret;

	*out = fs_mount_is_allowed() ? FS_WAY_OURS : FS_WAY_FUSERMOUNT3;
	if (*out == FS_WAY_OURS || !opts->own_namespace)
		return 0;
	ret = fs_userns_check(no_userns);
	if (ret < 0) {
		log_info("%s", no_userns->msg);
		return 0;
	}
	*out = FS_WAY_HIDDEN;
	return fs_userns_enter(err);
}

int fs_way_base(enum fs_way way, const struct fs_options *opts, const char *mountpoint,
		const struct cas_store *store, char **out, struct err *err)
{
	int ret;

	if (way != FS_WAY_FUSERMOUNT3) {
		if (asprintf(out, "%s/sandboxes", mountpoint) >= 0)
			return 0;
		*out = NULL;
		return -ENOMEM;
	}
	if (!opts->beside)
		return err_set(err, -EPERM,
			       "cannot mount: that needs root, or a user namespace (unshare -Urm)");
	ret = fs_daemon_record_clear(store, err);
	if (ret == 0)
		ret = fs_detach_dead(opts->beside, err);
	if (ret < 0)
		return ret;
	ret = io_mkdir_parents(AT_FDCWD, opts->beside, 0700);
	if (ret < 0)
		return err_set(err, ret, "cannot make %s: %s", opts->beside, strerror(-ret));
	return fs_place_check(opts->beside, store, opts->blobs, out, err);
}

void fs_way_unmount(const char *path, dev_t dev)
{
	struct err err = {0};
	int ret;

	if (fs_mounts_at(path, dev) <= 0)
		return;
	ret = fs_mount_remove(path, false, NULL);
	if (ret < 0)
		ret = fs_mount_remove(path, true, &err);
	if (ret < 0)
		log_warn("%s", err_text(&err, ret));
}
