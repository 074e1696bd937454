/* cas/put/copy.h - file content from one descriptor to another: reflink, kernel copy, loop */
#ifndef CAS_PUT_COPY_H
#define CAS_PUT_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cas_digest;
struct err;
struct watch;

/* What a copy may use; tried in this order, each falling through to the next. */
#define CAS_COPY_REFLINK 1u /* FICLONE: shares extents */
#define CAS_COPY_KERNEL	 2u /* copy_file_range within data extents */
#define CAS_COPY_LOOP	 4u /* read and write; 1 MiB blocks of zeros stay holes */
#define CAS_COPY_ANY	 (CAS_COPY_REFLINK | CAS_COPY_KERNEL | CAS_COPY_LOOP)

/*
 * Make the regular file @dst_fd, empty before, hold the first @size bytes of the regular
 * file @src_fd, holes included. File offsets of both are undefined afterwards; mode and
 * times are the caller's business. On failure @dst_fd is empty again.
 * The kernel copies between holes that the source names; one that names none, as most
 * FUSE filesystems, is read, so that no block of zeros takes space here.
 * -EOPNOTSUPP: nothing of what @allow names is possible here. -EAGAIN: the source ended
 * before @size. Else what writing said (-ENOSPC, -EDQUOT, -EFBIG).
 */
int cas_copy_fd(int src_fd, int dst_fd, uint64_t size, unsigned allow, struct err *err);
/* The same for a file that may be large: -ECANCELED as @watch (may be NULL) says. */
int cas_copy_fd_watched(int src_fd, int dst_fd, uint64_t size, unsigned allow,
			const struct watch *watch, struct err *err);

/*
 * All of @src_fd into @dst_fd (empty before), in one pass, giving the digest of what
 * @dst_fd now holds. Reflinked where possible, then hashed from the result; else read,
 * hashed and written. On failure @dst_fd is empty again. -ECANCELED as @watch (may be
 * NULL) says.
 */
int cas_copy_hash_fd(int src_fd, int dst_fd, const struct watch *watch, struct cas_digest *out,
		     struct err *err);

/*
 * The digest of @fd, as cas_hash_fd; *shrinks: a copy would take less space, because it
 * holds blocks of zeros, or space that was never written.
 */
int cas_copy_probe_fd(int fd, struct cas_digest *out, bool *shrinks);

/* Bytes in memory into the empty file @fd: as above, a block of zeros becomes a hole. */
int cas_copy_bytes(int fd, const void *data, size_t len);

#endif
