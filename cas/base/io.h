/* cas/base/io.h - whole reads and writes, and small helpers below a directory descriptor */
#ifndef CAS_BASE_IO_H
#define CAS_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;
struct err;

/*
 * All return 0 (or a count) or a negative errno, and retry on EINTR. Names are
 * relative to @dir_fd (AT_FDCWD works), descriptors are close-on-exec.
 */

/* Read until @len bytes or end of file; the count read. */
ssize_t io_read_full(int fd, void *data, size_t len);
ssize_t io_pread_full(int fd, void *data, size_t len, off_t off);
/* Write everything. */
int io_write_full(int fd, const void *data, size_t len);
int io_pwrite_full(int fd, const void *data, size_t len, off_t off);

/* Append a whole file to @out; -EFBIG when it has more than @max bytes. */
int io_read_file(int dir_fd, const char *path, size_t max, struct buf *out);

/*
 * Replace @dir_fd/@name by a file with this content and mode, through a temporary
 * name in the same directory and a rename; fsync before it when @durable.
 */
int io_replace_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
		    bool durable);

/* Make @path and its missing parents; existing directories are fine. */
int io_mkdir_parents(int dir_fd, const char *path, mode_t mode);

/* Of the top directory of every btrfs subvolume, whose device is not its parent's. */
#define IO_SUBVOLUME_INO 256

/*
 * Remove a file or a whole tree, never following a symlink and never leaving its
 * filesystem (-EXDEV at a mount point; a btrfs subvolume is none, nor is its being read-only
 * heeded). Directories without u+rwx are given it first; modes of files are not touched. A missing
 * name is success.
 */
int io_remove_tree(int dir_fd, const char *name, struct err *err);

/*
 * Make @data the content of the file @name, which may be there, in place: whoever reads
 * it meanwhile, or after a crash, may see some of both.
 */
int io_overwrite_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
		      bool durable);

/*
 * As root, give @fd, which was opened at @path, to the owner of the directory it is in:
 * what root leaves behind in somebody's store must not shut him out. Best effort.
 */
void io_give_to_dir_owner(int fd, const char *path);

/* Fill @out with lower-case hexadecimal digits of random bytes; @out has 2 * @nr + 1 bytes. */
int io_random_hex(char *out, size_t nr);

#endif
