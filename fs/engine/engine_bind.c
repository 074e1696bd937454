/* fs/engine/engine_bind.c - a directory of ours bound over a place without inputs */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "fs/engine/engine.h"
#include "fs/helper/helper.h"

/* The bound directory is upper/N/u, so that both engines find their files alike. */

int fs_engine_opendir(int dir_fd, const char *name, struct err *err)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_set(err, -errno, "cannot open %s of a layer: %m", name) : fd;
}

int fs_engine_mkdir(int dir_fd, const char *name, struct err *err)
{
	auto_close int fd = -1;

	if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
		return err_set(err, -errno, "cannot make directory %s of a layer: %m", name);
	fd = fs_engine_opendir(dir_fd, name, err);
	if (fd < 0)
		return fd;
	if (fchmod(fd, 0755) < 0)
		return err_set(err, -errno, "cannot set the mode of %s of a layer: %m", name);
	return 0;
}

static int bind_prepare(int layer_fd, struct err *err)
{
	return fs_engine_mkdir(layer_fd, "u", err);
}

static int bind_prepare_again(int layer_fd, struct err *err)
{
	(void)layer_fd;
	(void)err;
	return 0;
}

static int bind_open_upper(int layer_fd, struct err *err)
{
	return fs_engine_opendir(layer_fd, "u", err);
}

static int bind_mount(int layer_fd, bool in_userns, struct fs_helper_step *out, struct err *err)
{
	int fd = bind_open_upper(layer_fd, err);

	if (fd < 0)
		return fd;
	out->op = FS_HELPER_BIND;
	out->fd[0] = fd;
	return 0;
}

const struct fs_engine fs_engine_bind = {
	.name = "bind",
	.prepare = bind_prepare,
	.prepare_again = bind_prepare_again,
	.mount = bind_mount,
	.open_upper = bind_open_upper,
};
