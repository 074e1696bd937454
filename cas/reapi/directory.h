/* cas/reapi/directory.h - a REAPI Directory: decode, validate, encode in canonical form */
#ifndef CAS_REAPI_DIRECTORY_H
#define CAS_REAPI_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct buf;
struct cas_store;
struct err;

#define CAS_NAME_MAX	  255	      /* bytes of one name, as NAME_MAX */
#define CAS_TARGET_MAX	  4095	      /* bytes of a link target, as PATH_MAX less the NUL */
#define CAS_DIRECTORY_MAX (256 << 20) /* bytes of an encoded Directory that we accept */

enum cas_node_kind { CAS_NODE_FILE, CAS_NODE_DIRECTORY, CAS_NODE_SYMLINK };

struct cas_property {
	const char *name;
	const char *value;
};

/* REAPI NodeProperties. */
struct cas_properties {
	bool has_mtime;
	bool has_mode;
	int32_t mtime_nsec; /* 0 to 999,999,999 */
	int64_t mtime_sec;
	uint32_t mode; /* unix_mode as it came, not masked */
	size_t nr_other;
	const struct cas_property *other; /* sorted by name */
	bool bare; /* the message is there although it holds nothing: kept, it is in the digest */
};

/*
 * One child. @digest belongs to files and directories, @executable to files, @target
 * to symlinks, @props to files and symlinks. Strings are owned by the directory.
 */
struct cas_node {
	enum cas_node_kind kind;
	bool executable;
	const char *name;
	const char *target;
	struct cas_digest digest;
	struct cas_properties props;
};

/*
 * Valid from decode on: the names are unique over all kinds, none is empty, ".", "..",
 * longer than CAS_NAME_MAX or holds a '/' or NUL, and nodes is sorted by name (bytes)
 * over all kinds together. Immutable after decode; one thread while being built.
 */
struct cas_directory {
	size_t nr_nodes;
	struct cas_node *nodes;
	struct cas_properties props;
	void *priv; /* memory of the strings */
};

/* An empty directory to add to. */
int cas_directory_new(struct cas_directory **out);
void cas_directory_free(struct cas_directory *dir);

/*
 * -EUCLEAN: not a Directory in canonical form (each of the three lists sorted, names as
 * above, digests of 64 lower-case digits and a size from 0, properties sorted, no
 * unknown fields); the message names the reason. Whoever knows the digest adds it.
 */
int cas_directory_decode(const void *data, size_t len, struct cas_directory **out, struct err *err);

/*
 * Copy a node in, in any order; names are checked at encode. Until then the caller may
 * still change digests, flags and times of nodes[]. -ENOMEM.
 */
int cas_directory_add(struct cas_directory *dir, const struct cas_node *node);

/*
 * Sort, validate and append the canonical encoding to @out; *digest is its digest.
 * -EINVAL: a name or target that no Directory can hold; -EEXIST: a name twice.
 */
int cas_directory_encode(struct cas_directory *dir, struct buf *out, struct cas_digest *digest,
			 struct err *err);

/* NULL when there is no such name. Only valid after decode or encode. */
const struct cas_node *cas_directory_find(const struct cas_directory *dir, const char *name);

/*
 * Check one name: 0 or -EINVAL. Names that are not UTF-8 are refused here, hence by
 * decode, encode and ingest: a proto3 string cannot hold them, and a peer would reject
 * the whole Directory.
 */
int cas_name_check(const char *name, size_t len);

/*
 * Load, decode and validate. The empty digest gives an empty directory without a look
 * at the store. -ENOENT: absent. -EUCLEAN: not a canonical Directory; digest named.
 */
int cas_directory_load(struct cas_store *store, const struct cas_digest *digest,
		       struct cas_directory **out, struct err *err);

/*
 * Is all of the tree here? 0 when it is. 1: @missing of its @blobs are not, @first one of
 * them. Else as cas_directory_load; -ENOENT: a Directory in it, the rest is not known.
 */
struct cas_tree_lack {
	size_t blobs;
	size_t missing;
	struct cas_digest first;
};
int cas_tree_find_missing(struct cas_store *store, const struct cas_digest *root,
			  struct cas_tree_lack *out, struct err *err);

/* Encode and put; returns its digest. */
int cas_directory_put(struct cas_store *store, struct cas_directory *dir, struct cas_digest *out,
		      struct err *err);

/*
 * Append the Tree of @root to @out, topologically sorted (reapi.md, canonical form 7):
 * root first, parents before children, each distinct Directory once. Every Directory
 * below must be in the store.
 */
int cas_tree_encode(struct cas_store *store, const struct cas_digest *root, struct buf *out,
		    struct err *err);
/*
 * The same, where some Directories may not be in the store yet: @find answers those, borrowed
 * until the next call, and NULL for all others.
 */
typedef const struct buf *(*cas_raw_find_fn)(void *ctx, const struct cas_digest *digest);
int cas_tree_encode_with(struct cas_store *store, const struct cas_digest *root,
			 cas_raw_find_fn find, void *ctx, struct buf *out, struct err *err);

#endif
