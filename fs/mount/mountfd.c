/* fs/mount/mountfd.c - make FUSE mounts by descriptor, and break their connections */

/*
 * fsopen and friends rather than mount(2): the superblock exists before anything is
 * attached, its device number is known without an upcall, and the mount is attached by
 * a process that holds no FUSE descriptor where resolving the path needs answers of ours.
 */
#include "fs/mount/mountfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cas/cas.h"

#define FUSECTL_MAGIC 0x65735543

int fs_mount_open_dev(struct err *err)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int code = -errno;

	if (fd >= 0)
		return fd;
	if (code == -EACCES || code == -EPERM)
		return err_set(err, code,
			       "cannot mount: permission denied on /dev/fuse (that needs root, or "
			       "mode 0666 as distributions set it)");
	if (code == -ENOENT || code == -ENODEV || code == -ENXIO)
		return err_set(err, -ENODEV,
			       "cannot mount: there is no /dev/fuse here (load the fuse module, or "
			       "pass the device into the container)");
	return err_set(err, code, "cannot open /dev/fuse: %s", strerror(-code));
}

/* What the kernel wrote about the last failure on @fs_fd ("e message"), or "". */
static const char *fs_message(int fs_fd, char buf[256])
{
	ssize_t got = read(fs_fd, buf, 255);

	if (got <= 2)
		return "";
	buf[got] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return buf + 2;
}

static int mount_error(int fs_fd, int code, const char *what, struct err *err)
{
	char buf[256];

	if (code == -EPERM)
		return err_set(err, code,
			       "cannot mount: that needs root, or a user namespace (unshare -Urm)");
	return err_set(err, code, "cannot mount: %s: %s %s", what, strerror(-code),
		       fs_fd >= 0 ? fs_message(fs_fd, buf) : "");
}

static int set_string(int fs_fd, const char *key, const char *value, struct err *err)
{
	if (fsconfig(fs_fd, FSCONFIG_SET_STRING, key, value, 0) < 0)
		return mount_error(fs_fd, -errno, key, err);
	return 0;
}

static int set_number(int fs_fd, const char *key, const char *fmt, unsigned value, struct err *err)
{
	char text[24];

	(void)snprintf(text, sizeof(text), fmt[0] == 'o' ? "%o" : "%u", value);
	return set_string(fs_fd, key, text, err);
}

static int set_flag(int fs_fd, const char *key, struct err *err)
{
	if (fsconfig(fs_fd, FSCONFIG_SET_FLAG, key, NULL, 0) < 0)
		return mount_error(fs_fd, -errno, key, err);
	return 0;
}

static int configure(int fs_fd, int dev_fd, bool read_only, bool allow_other, struct err *err)
{
	int ret = set_string(fs_fd, "source", "casbox", err);

	if (ret == 0)
		ret = set_string(fs_fd, "subtype", "casbox", err);
	if (ret == 0)
		ret = set_number(fs_fd, "fd", "u", (unsigned)dev_fd, err);
	if (ret == 0)
		ret = set_number(fs_fd, "rootmode", "o", S_IFDIR, err);
	if (ret == 0)
		ret = set_number(fs_fd, "user_id", "u", geteuid(), err);
	if (ret == 0)
		ret = set_number(fs_fd, "group_id", "u", getegid(), err);
	if (ret == 0)
		ret = set_flag(fs_fd, "default_permissions", err);
	if (ret == 0 && allow_other)
		ret = set_flag(fs_fd, "allow_other", err);
	if (ret == 0 && read_only)
		ret = set_flag(fs_fd, "ro", err);
	return ret;
}

static int create_superblock(int dev_fd, bool read_only, bool allow_other, int *out,
			     struct err *err)
{
	auto_close int fs_fd = fsopen("fuse", FSOPEN_CLOEXEC);
	unsigned attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	int ret;

	if (fs_fd < 0)
		return mount_error(-1, -errno, "fsopen", err);
	ret = configure(fs_fd, dev_fd, read_only, allow_other, err);
	if (ret < 0)
		return ret;
	if (fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return mount_error(fs_fd, -errno, "superblock", err);
	if (read_only)
		attrs |= MOUNT_ATTR_RDONLY;
	*out = fsmount(fs_fd, FSMOUNT_CLOEXEC, attrs);
	return *out < 0 ? mount_error(fs_fd, -errno, "fsmount", err) : 0;
}

int fs_mount_new(bool read_only, bool allow_other, struct fs_mount *out, struct err *err)
{
	auto_close int dev_fd = fs_mount_open_dev(err);
	auto_close int mount_fd = -1;
	struct statx stx;
	int ret;

	if (dev_fd < 0)
		return dev_fd;
	ret = create_superblock(dev_fd, read_only, allow_other, &mount_fd, err);
	if (ret < 0)
		return ret;
	/* DONT_SYNC: nobody answers upcalls of this mount yet. */
	if (statx(mount_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) < 0)
		return mount_error(-1, -errno, "statx", err);
	out->dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	out->dev_fd = steal_fd(&dev_fd);
	out->mount_fd = steal_fd(&mount_fd);
	return 0;
}

int fs_mount_attach(const struct fs_mount *mount, const char *path, struct err *err)
{
	if (move_mount(mount->mount_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_set(err, -errno, "cannot mount at %s: %s", path, strerror(errno));
	return 0;
}

int fs_mount_set_readahead(dev_t dev, unsigned kib)
{
	auto_close int fd = -1;
	char path[64];
	char text[16];

	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev),
		       minor(dev));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)snprintf(text, sizeof(text), "%u\n", kib);
	return io_write_full(fd, text, strlen(text));
}

/* fusectl where it is mounted, else a mount of it that only we see. */
static int open_fusectl(struct err *err)
{
	auto_close int fs_fd = -1;
	auto_close int fd = open("/sys/fs/fuse/connections", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statfs st;

	/* sysfs has an empty directory there. */
	if (fd >= 0 && fstatfs(fd, &st) == 0 && st.f_type == FUSECTL_MAGIC)
		return steal_fd(&fd);
	fs_fd = fsopen("fusectl", FSOPEN_CLOEXEC);
	if (fs_fd < 0 || fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_set(err, -errno, "cannot reach fusectl: %s", strerror(errno));
	if (fd >= 0)
		(void)close(fd);
	fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, 0);
	if (fd < 0)
		return err_set(err, -errno, "cannot mount fusectl: %s", strerror(errno));
	return steal_fd(&fd);
}

int fs_mount_abort(dev_t dev, struct err *err)
{
	auto_close int dir = open_fusectl(err);
	auto_close int fd = -1;
	char name[32];

	if (dir < 0)
		return dir;
	/* fusectl names a connection by the kernel's own device number, major 0. */
	(void)snprintf(name, sizeof(name), "%u/abort", minor(dev));
	fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, -errno, "cannot open fusectl's %s: %s", name, strerror(errno));
	if (io_write_full(fd, "1\n", 2) < 0)
		return err_set(err, -EIO, "cannot abort FUSE connection %u", minor(dev));
	return 0;
}
