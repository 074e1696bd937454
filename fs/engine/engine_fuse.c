/* fs/engine/engine_fuse.c - a layer that session one serves itself */
#include <errno.h>

#include "cas/base/err.h"
#include "fs/engine/engine.h"
#include "fs/helper/helper.h"

/* What lies in upper/N/u and upper/N/w, and how it is served: fs/upper. Nothing is mounted. */

static int fuse_prepare(int layer_fd, struct err *err)
{
	int ret = fs_engine_mkdir(layer_fd, "u", err);

	return ret < 0 ? ret : fs_engine_mkdir(layer_fd, "w", err);
}

static int fuse_prepare_again(int layer_fd, struct err *err)
{
	(void)layer_fd;
	(void)err;
	return 0;
}

static int fuse_open_upper(int layer_fd, struct err *err)
{
	return fs_engine_opendir(layer_fd, "u", err);
}

const struct fs_engine fs_engine_fuse = {
	.name = "served",
	.prepare = fuse_prepare,
	.prepare_again = fuse_prepare_again,
	.mount = NULL,
	.open_upper = fuse_open_upper,
};
