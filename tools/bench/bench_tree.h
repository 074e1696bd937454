/* tools/bench/bench_tree.h - input trees of which each root differs a little from the last */
#ifndef TOOLS_BENCH_BENCH_TREE_H
#define TOOLS_BENCH_BENCH_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct bench_box;
struct err;

/*
 * A tree exists in @nr_roots versions. Root 0 holds the base content of every file; root
 * i differs from root i - 1 by the content of @per_root files, each in a directory of its
 * own. A file changes at most once, so it is in its new state from root changed_at on.
 * Contents live in a directory of blobs, HH/HASH, mode 0444, from which roots are linked
 * or copied together. Immutable once made.
 */
struct bench_file {
	char *path;
	uint32_t dir;		     /* index in dirs */
	uint32_t changed_at;	     /* 0: never */
	struct cas_digest digest[2]; /* before and after the change */
};

struct bench_tree_spec {
	size_t nr_files;
	size_t nr_dirs;		 /* the top included */
	uint32_t min_sz, max_sz; /* of a file; small ones are more frequent */
	size_t nr_roots;
	size_t per_root;
	uint64_t seed;
};

struct bench_tree {
	struct bench_tree_spec spec;
	char **dirs; /* parents first; dirs[0] is "" */
	struct bench_file *files;
	uint32_t *changes; /* nr_roots * per_root indices of files; those of root 0 are unused */
	char (*roots)[CAS_DIGEST_STR_SZ]; /* HASH/SIZE as `casbox put` printed it; "" before */
	int blobs_fd;
};

/* How a file gets from the blobs into a tree. */
enum bench_fill { BENCH_FILL_LINK, BENCH_FILL_COPY };

/* Write the blobs below @dir_fd/blobs. -EINVAL: more changes than files. */
int bench_tree_new(int dir_fd, const struct bench_tree_spec *spec, struct bench_tree **out,
		   struct err *err);
void bench_tree_free(struct bench_tree *tree);

const struct cas_digest *bench_tree_digest(const struct bench_tree *tree, size_t file, size_t root);
static inline size_t bench_tree_change(const struct bench_tree *tree, size_t root, size_t nth)
{
	return tree->changes[root * tree->spec.per_root + nth];
}

/* Fill the empty directory @dst_fd with root @root. */
int bench_tree_fill(const struct bench_tree *tree, size_t root, enum bench_fill how, int dst_fd,
		    struct err *err);

/* Make a tree that holds root @from hold root @to; linked files stay links. */
int bench_tree_move(const struct bench_tree *tree, size_t from, size_t to, int dst_fd,
		    struct err *err);

/*
 * Hash every file below @root_fd and list every directory: -EBADMSG with the path when
 * a byte, a file or a name is not that of root @root. @extra are paths that may be there
 * too, with all below them (ends with NULL; NULL for none).
 */
int bench_tree_verify(const struct bench_tree *tree, size_t root, int root_fd,
		      const char *const *extra, struct err *err);

/* Put all roots into the product's store, through a tree made below @dir_fd (at @dir). */
int bench_tree_put(struct bench_tree *tree, struct bench_box *box, int dir_fd, const char *dir,
		   struct err *err);

/* A deterministic sequence for workloads. */
static inline uint32_t bench_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

#endif
