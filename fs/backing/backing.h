/* fs/backing/backing.h - digest to open descriptor, counted */
#ifndef FS_BACKING_BACKING_H
#define FS_BACKING_BACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cas_digest;
struct cas_store;
struct err;

/*
 * Descriptors of blobs, shared by all who read the same digest and kept open for a while
 * after the last one, the least recently used closed first. Any thread.
 */
struct fs_backing_table;
struct fs_backing;

/* Raise this process's limit of descriptors as far as it goes: what @max below may be then. */
size_t fs_backing_raise_limit(void);

/* @max: descriptors kept open; more are only open while in use. */
int fs_backing_table_new(struct cas_store *store, size_t max, struct fs_backing_table **out);
void fs_backing_table_free(struct fs_backing_table *table);

/*
 * Count the blob's descriptor, opening it when needed; a file that was changed since it
 * was opened is opened again, which hashes it. Errors as cas_store_open_blob.
 */
int fs_backing_ref(struct fs_backing_table *table, const struct cas_digest *digest,
		   struct fs_backing **out, struct err *err);
/* Would fs_backing_ref answer without opening a file? A hint. */
bool fs_backing_is_open(struct fs_backing_table *table, const struct cas_digest *digest);
/* Count a counted one once more. */
struct fs_backing *fs_backing_hold(struct fs_backing_table *table, struct fs_backing *backing);
void fs_backing_unref(struct fs_backing_table *table, struct fs_backing *backing);

/*
 * Read at @off up to @len bytes, as many as the digest's size has there; the count.
 * -EIO: the file was cut short behind our back.
 */
ssize_t fs_backing_read(const struct fs_backing *backing, void *data, size_t len, off_t off);

/* All of it into the empty file @to, sharing extents where that is possible. As cas_copy_fd. */
int fs_backing_copy(const struct fs_backing *backing, int to, struct err *err);

/* lseek's SEEK_DATA and SEEK_HOLE, within the digest's size. -ENXIO: nothing from @off on. */
off_t fs_backing_seek(const struct fs_backing *backing, off_t off, int whence);

/*
 * What stat shows as blocks of 512 bytes: what its size would take, or less when the file
 * has holes. Asks the blob's file, and only for blobs that can have some.
 */
uint64_t fs_backing_blocks(const struct fs_backing_table *table, const struct cas_digest *digest);

/*
 * Passthrough: from now on kernel ids belong to the connection @dev_fd, borrowed; those
 * given out before are void. -1: there are none.
 */
void fs_backing_set_device(struct fs_backing_table *table, int dev_fd);

/*
 * The kernel's id of a counted backing, made when needed; it lives as long as the
 * descriptor. Negative: as the kernel refused; -ENODEV without a connection or a file.
 */
int32_t fs_backing_kernel_id(struct fs_backing_table *table, struct fs_backing *backing);

/* Do two descriptors of a blob have the same file, touched meanwhile or not? */
bool fs_backing_is_same_file(const struct fs_backing *a, const struct fs_backing *b);

/* Ids that the kernel holds now. */
size_t fs_backing_count_ids(struct fs_backing_table *table);

/*
 * More descriptors are in use than should be open, and @backing, counted once by the
 * caller, is one that could go: better not to keep it.
 */
bool fs_backing_is_scarce(struct fs_backing_table *table, const struct fs_backing *backing);

/* Descriptors open now. */
size_t fs_backing_count(struct fs_backing_table *table);

#endif
