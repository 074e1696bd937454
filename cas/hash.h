/* cas/hash.h - streaming SHA-256 over libcrypto */
#ifndef CAS_HASH_H
#define CAS_HASH_H

#include <stddef.h>
#include <stdint.h>

struct cas_digest;
struct watch;
struct cas_hash; /* one thread drives one */

/* -ENOMEM, or -EIO when libcrypto refuses. */
int cas_hash_new(struct cas_hash **out);
void cas_hash_free(struct cas_hash *h);

int cas_hash_update(struct cas_hash *h, const void *data, size_t len);
/* As many zero bytes, without the caller providing them. */
int cas_hash_update_zeros(struct cas_hash *h, uint64_t len);
/* The same for what may be gigabytes: -ECANCELED, and counted, as @watch (may be NULL) says. */
int cas_hash_update_hole(struct cas_hash *h, uint64_t len, const struct watch *watch);
/* The digest of all that was fed; the object may then be fed again from the start. */
int cas_hash_final(struct cas_hash *h, struct cas_digest *out);

/* Of bytes in memory. */
int cas_hash_bytes(const void *data, size_t len, struct cas_digest *out);

/*
 * Of a regular file from offset 0 to its end, by pread, skipping holes (SEEK_DATA
 * where the filesystem knows it). The file offset is not moved.
 */
int cas_hash_fd(int fd, struct cas_digest *out);
/* The same for a file that may be large: -ECANCELED as @watch (may be NULL) says. */
int cas_hash_fd_watched(int fd, const struct watch *watch, struct cas_digest *out);

#endif
