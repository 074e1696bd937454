/* fs/backing/open_reply.h - open replies that libfuse 3.14 cannot express */
#ifndef FS_BACKING_OPEN_REPLY_H
#define FS_BACKING_OPEN_REPLY_H

#include <stdint.h>

struct fuse_req;

/*
 * Direct I/O on a stream: without FOPEN_STREAM the kernel holds the file position's lock
 * while a read waits, and a second thread could not write. 0 or negative, as libfuse's.
 */
int fs_reply_open_stream(struct fuse_req *req, uint64_t fh);

/* The kernel reads the file behind @backing_id by itself. 0 or negative, as libfuse's. */
int fs_reply_open_passthrough(struct fuse_req *req, uint64_t fh, int32_t backing_id);

#endif
