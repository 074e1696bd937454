/* meta/index/tree_diff.h - what two trees do not have in common */
#ifndef META_INDEX_TREE_DIFF_H
#define META_INDEX_TREE_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/index/dirs.h"

struct err;
struct meta;

enum meta_change_kind {
	META_CHANGE_ADDED,    /* only in the new tree */
	META_CHANGE_DELETED,  /* only in the old one */
	META_CHANGE_MODIFIED, /* the same kind of thing, and not the same */
	META_CHANGE_TYPE,     /* file, directory or symlink before, another of these now */
};

/* One side of a change. A directory has what its own node properties say. */
struct meta_change_side {
	enum cas_node_kind kind;
	bool executable;
	bool has_mtime;
	bool has_mode;
	int32_t mtime_nsec;
	int64_t mtime_sec;
	uint32_t mode; /* as recorded, masked with 0777 */
	struct cas_digest digest;
	char *target; /* symlinks; owned */
};

/*
 * @path is relative to the roots, "" for these. A directory whose name both trees have is
 * told only when its own properties differ, by what META_CHANGE_MODIFIED shows or (@other)
 * in some that are not kept here; one that only one tree has is told as a whole.
 */
struct meta_change {
	enum meta_change_kind kind;
	bool other;
	char *path;
	struct meta_change_side old; /* but of ADDED */
	struct meta_change_side new; /* but of DELETED */
};

/* Zero-initialize; end with meta_changes_fini. */
struct meta_changes {
	size_t nr;
	size_t cap;
	struct meta_change *list;
	uint64_t nr_dirs; /* Directories that were looked at, on both sides together */
	bool cut;	  /* there are more than @max */
};

/*
 * What makes @new of @old, sorted by path (bytes), at most @max of it (0: all). Only
 * directories with different digests are looked at. @whole: what is below a directory that
 * one tree alone has is told, too. Errors as meta_dir_find; -ENOMEM.
 */
int meta_tree_diff(struct meta *meta, const struct cas_digest *old, const struct cas_digest *new,
		   bool whole, size_t max, struct meta_changes *out, struct err *err);
void meta_changes_fini(struct meta_changes *changes);

#endif
