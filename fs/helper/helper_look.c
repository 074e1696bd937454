/* fs/helper/helper_look.c - the mount helper's side of looking at directories and names */
#include "fs/helper/helper_look.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"

#define LIST_SZ 65536
#define KEEP_MS 200

/* Private, or mounts that are made at the base meanwhile would come to be on it too. */
static int copy_mount(const char *base)
{
	struct mount_attr attr = {.propagation = MS_PRIVATE};
	auto_close int fd = open_tree(AT_FDCWD, base,
				      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* Who may copy no mount may make none either: there are none on it to be in the way. */
static int bare_open(struct helper_bare *bare, const char *base, struct err *err)
{
	int fd;

	if (bare->fd >= 0)
		return 0;
	fd = copy_mount(base);
	if (fd == -EPERM) {
		fd = open(base, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		fd = fd < 0 ? -errno : fd;
	}
	if (fd < 0)
		return err_set(err, fd, "cannot look at the mount at %s: %s", base,
			       strerrordesc_np(-fd));
	bare->fd = fd;
	return 0;
}

static int open_beneath(struct helper_bare *bare, const char *base, const char *target, int flags,
			struct err *err)
{
	struct open_how how = {
		.flags = (unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	int ret = bare_open(bare, base, err);
	long fd;

	if (ret < 0)
		return ret;
	do
		fd = syscall(SYS_openat2, bare->fd, target, &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR));
	return fd < 0 ? err_set(err, -errno, "cannot look at %s below %s: %m", target, base)
		      : (int)fd;
}

int helper_list(struct helper_bare *bare, const char *base, const char *target, struct err *err)
{
	auto_close int fd = open_beneath(bare, base, target, O_RDONLY | O_DIRECTORY, err);
	char entries[LIST_SZ];
	ssize_t got;

	if (fd < 0)
		return fd;
	do
		got = getdents64(fd, entries, sizeof(entries));
	while (got > 0);
	return got < 0 ? err_set(err, -errno, "cannot list %s below %s: %m", target, base) : 0;
}

int helper_look(struct helper_bare *bare, const char *base, const char *target, struct err *err)
{
	auto_close int fd = open_beneath(bare, base, target, O_PATH | O_NOFOLLOW, err);

	return fd < 0 ? fd : 0;
}

void helper_bare_rest(struct helper_bare *bare, struct pollfd *fds, unsigned nr)
{
	if (bare->fd < 0 || poll(fds, nr, KEEP_MS) != 0)
		return;
	(void)close(steal_fd(&bare->fd));
}
