/* fs/slot/swap.h - make the nodes of one tree those of another */
#ifndef FS_SLOT_SWAP_H
#define FS_SLOT_SWAP_H

#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct err;
struct fs_push;
struct fs_session;
struct meta;

struct fs_swap {
	struct fs_session *session;
	struct meta *meta;
	uint64_t top;	      /* node of the tree's top, SWAPPED */
	uint64_t serial;      /* its serial */
	struct fs_push *push; /* what changed is added; NULL: not wanted */
	/* Counted up. */
	size_t nr_names; /* names invalidated */
	size_t nr_nodes; /* nodes whose listing or attributes were */
};

/*
 * The tree @old below the top becomes @new, for our nodes and for all that the kernel
 * has cached. Reads both as far as they differ where the kernel knows them. On any
 * failure the top must be dropped.
 * -E2BIG: too much differs to be worth it. -ENOENT, -EUCLEAN: a Directory cannot be read.
 * Else: the kernel could not be told.
 */
int fs_swap_run(struct fs_swap *swap, const struct cas_digest *old, const struct cas_digest *new,
		struct err *err);

/*
 * How many entries differ in the upper two levels of two trees, roughly. -ENODATA: they
 * have nothing in common there. Else as above.
 */
int fs_swap_distance(struct meta *meta, const struct cas_digest *old, const struct cas_digest *new,
		     uint64_t *out, struct err *err);

#endif
