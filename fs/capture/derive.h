/* fs/capture/derive.h - input trees with entries added, replaced or dropped, in memory */
#ifndef FS_CAPTURE_DERIVE_H
#define FS_CAPTURE_DERIVE_H

#include <stddef.h>

#include "cas/reapi/directory.h"

struct cas_store;
struct err;
struct meta;

enum fs_graft_op {
	FS_GRAFT_DIR,  /* a directory must be there: made when missing */
	FS_GRAFT_SET,  /* @node takes the place of whatever is there; parents are made */
	FS_GRAFT_DROP, /* nothing is there */
};

struct fs_graft {
	const char *path; /* normalised; "" is the root, for DIR and SET only */
	enum fs_graft_op op;
	struct cas_node node; /* SET; its name is not used */
};

/*
 * A root made of a stored one and grafts: the Directories on the way to a graft exist
 * only here, everything else is in the store. One thread; holds are counted by meta.
 */
struct fs_derived;

/*
 * @grafts are sorted by fs_path_compare, each path once; what lies below a SET or DROP
 * is ignored. -ENOENT: a Directory is in no tier. -EUCLEAN: malformed. -ENOTDIR: a DIR
 * graft meets something else.
 */
int fs_derive(struct meta *meta, const struct cas_digest *root, const struct fs_graft *grafts,
	      size_t nr, struct fs_derived **out, struct err *err);
void fs_derived_free(struct fs_derived *d);

const struct cas_digest *fs_derived_root(const struct fs_derived *d);

/* The Directory of that digest when it exists only here, else NULL. Borrowed. */
struct cas_directory *fs_derived_find(const struct fs_derived *d, const struct cas_digest *digest);

/* Put @digest and what it needs of @d into the store; nothing when it is not of @d. */
int fs_derived_publish(struct fs_derived *d, struct cas_store *store,
		       const struct cas_digest *digest, struct err *err);

/* Make all of it answerable by meta; release ends that. All or nothing. */
int fs_derived_hold(struct fs_derived *d, struct meta *meta, struct err *err);
void fs_derived_release(struct fs_derived *d, struct meta *meta);

#endif
