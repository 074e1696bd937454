/* cas/reapi/directory_i.h - between decoding and encoding a Directory */
#ifndef CAS_REAPI_DIRECTORY_I_H
#define CAS_REAPI_DIRECTORY_I_H

#include <stddef.h>

struct buf;
struct cas_digest;
struct cas_directory;
struct cas_node;
struct cas_store;
struct err;

/* What a node must uphold apart from its order: 0, or @code and the reason in @err. */
int cas_node_check(const struct cas_node *node, int code, struct err *err);

/* Append the encoding of a directory that is sorted and checked. -ENOMEM. */
int cas_directory_pack(const struct cas_directory *dir, struct buf *out);

/* The bytes of a Directory as they are in the store (none for the empty one), and decoded. */
int cas_directory_load_raw(struct cas_store *store, const struct cas_digest *digest,
			   struct buf *raw, struct cas_directory **out, struct err *err);

#endif
