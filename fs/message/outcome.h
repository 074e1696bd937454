/* fs/message/outcome.h - an ActionResult as a tree of what the action made */
#ifndef FS_MESSAGE_OUTCOME_H
#define FS_MESSAGE_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct err;

enum fs_outcome_kind {
	FS_OUTCOME_DIR,	    /* a parent of outputs */
	FS_OUTCOME_FILE,    /* digest, executable; contents when they came along */
	FS_OUTCOME_TREE,    /* digest, of a Tree */
	FS_OUTCOME_ROOT,    /* digest, of a Directory */
	FS_OUTCOME_SYMLINK, /* target */
};

/* Everything is owned by the outcome. */
struct fs_outcome_node {
	const char *name; /* "" for the top */
	enum fs_outcome_kind kind;
	bool executable;
	bool has_mtime;
	bool has_mode;
	int32_t mtime_nsec;
	int64_t mtime_sec;
	uint32_t mode;
	struct cas_digest digest;
	const char *target;
	const void *contents;
	size_t contents_len;
	uint32_t parent;
	uint32_t nr_children; /* DIR */
	uint32_t first_child; /* DIR: in the order of fs_outcome_child */
};

/* Standard output, or error. */
struct fs_outcome_stream {
	bool has_digest;
	struct cas_digest digest; /* the empty one when nothing was told */
	const void *raw;
	size_t raw_len; /* 0: by its digest */
};

/*
 * Node 0 is the top; paths are as the result has them, relative to the working directory.
 * Outputs whose path is none (absolute, or leading out), or lies at or below another one's,
 * are left out. An output directory with the path "" is the top itself. Immutable, shared
 * by count.
 */
struct fs_outcome {
	_Atomic unsigned refs;
	int exit_code;
	struct fs_outcome_stream out;
	struct fs_outcome_stream error;
	size_t nr_nodes;
	struct fs_outcome_node *nodes;
	uint32_t *order;  /* children of each, in order of name */
	size_t nr_hidden; /* outputs that were left out */
	size_t data_len;  /* the message */
	void *data;
	void *message; /* its decoded form, which the nodes point into */
};

/* -EUCLEAN: not an ActionResult, or one with a digest that is none. */
int fs_outcome_new(const void *data, size_t len, struct fs_outcome **out, struct err *err);
struct fs_outcome *fs_outcome_ref(struct fs_outcome *outcome);
void fs_outcome_unref(struct fs_outcome *outcome);

/* The child @name of node @dir, a DIR; NULL: none. */
const struct fs_outcome_node *fs_outcome_find(const struct fs_outcome *outcome, uint32_t dir,
					      const char *name);
/* The child at @index in order of name; NULL: there are no more. */
const struct fs_outcome_node *fs_outcome_child(const struct fs_outcome *outcome, uint32_t dir,
					       uint64_t index);

#endif
