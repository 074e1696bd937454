/* cas/reapi/directory_i.h - between decoding and encoding a Directory */
#ifndef CAS_REAPI_DIRECTORY_I_H
#define CAS_REAPI_DIRECTORY_I_H

#include <stddef.h>

struct buf;
struct cas_arena;
struct cas_digest;
struct cas_directory;
struct cas_node;
struct cas_store;
struct err;

/* What a node must uphold apart from its order: 0, or @code and the reason in @err. */
int cas_node_check(const struct cas_node *node, int code, struct err *err);

/* Append the encoding of a directory that is sorted and checked. -ENOMEM. */
int cas_directory_pack(const struct cas_directory *dir, struct buf *out);

/*
 * directory_plain.c: 1 and *out, *nr when @data is the canonical form of a Directory without
 * properties: its nodes, sorted over all kinds and checked, malloc'ed, with strings in @arena;
 * room for one more. 0: it is something else, or right or wrong in a way that is not looked at
 * here, or there is no memory; @arena may have grown.
 */
#define CAS_DIRECTORY_PLAIN_MAX (256 << 10) /* of @len, so that a guess at its entries is cheap */
int cas_directory_read_plain(const void *data, size_t len, struct cas_arena *arena,
			     struct cas_node **out, size_t *nr);

/* As cas_directory_decode, for anything that may be a Directory. */
int cas_directory_decode_any(const void *data, size_t len, struct cas_directory **out,
			     struct err *err);

/* The bytes of a Directory as they are in the store (none for the empty one), and decoded. */
int cas_directory_load_raw(struct cas_store *store, const struct cas_digest *digest,
			   struct buf *raw, struct cas_directory **out, struct err *err);

#endif
