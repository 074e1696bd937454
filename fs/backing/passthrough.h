/* fs/backing/passthrough.h - files of session two that the kernel reads by itself */
#ifndef FS_BACKING_PASSTHROUGH_H
#define FS_BACKING_PASSTHROUGH_H

#include <stdbool.h>
#include <stdint.h>

struct fs_backing;
struct fs_backing_table;
struct fs_probes;
struct fs_wire;

/*
 * How the opens of one node are served. As long as it is open the kernel refuses (EIO)
 * to change that, and to have another backing file: the first open decides.
 */
enum fs_io { FS_IO_CACHED, FS_IO_PASSTHROUGH };

struct fs_passthrough; /* any thread */

/*
 * For the connection @dev_fd, which is borrowed, after INIT. Whether it works is tried
 * on @probe_fd, a file where blobs are (-1: on the first blob), and told to @probes;
 * when it does not every open is CACHED. The ids of @backing are this connection's until
 * it is freed.
 */
int fs_passthrough_new(int dev_fd, int probe_fd, const struct fs_wire *wire,
		       struct fs_backing_table *backing, struct fs_probes *probes,
		       struct fs_passthrough **out);
/* Before the connection's descriptor is closed. */
void fs_passthrough_free(struct fs_passthrough *pt);

/*
 * Decide about one more open of node @id whose bytes are @backing, and count it; only
 * when @may_keep can @backing become what its node is open by. With PASSTHROUGH
 * *backing_id is what to answer with. Every open is released with what was decided,
 * after the kernel has let go of it or has never had it. NULL: a session without
 * passthrough, where every open is CACHED.
 * -EIO: the blob's file was replaced by another while the node is open. -ENOMEM.
 */
int fs_passthrough_open(struct fs_passthrough *pt, uint64_t id, struct fs_backing *backing,
			bool may_keep, enum fs_io *io, int32_t *backing_id);
void fs_passthrough_release(struct fs_passthrough *pt, uint64_t id);

/* The kernel's side. A positive id, or negative. */
int32_t fs_kernel_backing_open(int dev_fd, int fd);
void fs_kernel_backing_close(int dev_fd, int32_t backing_id);

#endif
