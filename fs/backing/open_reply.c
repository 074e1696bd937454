/* fs/backing/open_reply.c - open replies that libfuse 3.14 cannot express */
#define FUSE_USE_VERSION 312
#include "fs/backing/open_reply.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>

/* Linux 6.9, in the place of what was padding. */
#define OPEN_PASSTHROUGH (1U << 7)
struct passthrough_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};

int fs_reply_open_stream(struct fuse_req *req, uint64_t fh)
{
	const struct fuse_open_out out = {
		.fh = fh,
		.open_flags = FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE | FOPEN_STREAM,
	};

	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}

#ifdef CASBOX_LIBFUSE_PASSTHROUGH
int fs_reply_open_passthrough(struct fuse_req *req, uint64_t fh, int32_t backing_id)
{
	struct fuse_file_info fi = {.fh = fh, .backing_id = backing_id};

	return fuse_reply_open(req, &fi);
}
#else
int fs_reply_open_passthrough(struct fuse_req *req, uint64_t fh, int32_t backing_id)
{
	const struct passthrough_out out = {fh, OPEN_PASSTHROUGH, backing_id};

	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}
#endif
