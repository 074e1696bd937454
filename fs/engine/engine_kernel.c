/* fs/engine/engine_kernel.c - the kernel's overlay over a place that holds inputs */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "fs/engine/engine.h"
#include "fs/helper/helper.h"

/*
 * upper/N/u and upper/N/w. The mount is volatile: nothing of it is flushed, which the
 * kernel marks by w/work/incompat/volatile and then refuses to mount the layer again.
 * Within one boot the page cache holds all of it, so the mark may go; after another boot
 * the sandbox is lost before anybody comes here.
 */

static int kernel_prepare(int layer_fd, struct err *err)
{
	int ret = fs_engine_mkdir(layer_fd, "u", err);

	return ret < 0 ? ret : fs_engine_mkdir(layer_fd, "w", err);
}

static int kernel_prepare_again(int layer_fd, struct err *err)
{
	auto_close int incompat = openat(layer_fd, "w/work/incompat",
					 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (incompat < 0)
		return errno == ENOENT ? 0
				       : err_set(err, -errno, "cannot open an overlay's work: %m");
	return io_remove_tree(incompat, "volatile", err);
}

static int kernel_open_upper(int layer_fd, struct err *err)
{
	return fs_engine_opendir(layer_fd, "u", err);
}

static int kernel_mount(int layer_fd, bool in_userns, struct fs_helper_step *out, struct err *err)
{
	auto_close int upper = kernel_open_upper(layer_fd, err);
	auto_close int work = upper < 0 ? -1 : fs_engine_opendir(layer_fd, "w", err);

	if (upper < 0 || work < 0)
		return upper < 0 ? upper : work;
	out->op = FS_HELPER_OVERLAY;
	out->in_userns = in_userns;
	out->fd[0] = steal_fd(&upper);
	out->fd[1] = steal_fd(&work);
	return 0;
}

const struct fs_engine fs_engine_kernel = {
	.name = "overlay",
	.prepare = kernel_prepare,
	.prepare_again = kernel_prepare_again,
	.mount = kernel_mount,
	.open_upper = kernel_open_upper,
};
