/* fs/serve/open_reply.c - open replies that libfuse 3.14 cannot express */
#define FUSE_USE_VERSION 312
#include "fs/serve/open_reply.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>

int fs_reply_open_stream(struct fuse_req *req, uint64_t fh)
{
	const struct fuse_open_out out = {
		.fh = fh,
		.open_flags = FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE | FOPEN_STREAM,
	};

	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}
