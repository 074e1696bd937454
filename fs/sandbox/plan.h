/* fs/sandbox/plan.h - which layers a sandbox needs, and where (design 6.6) */
#ifndef FS_SANDBOX_PLAN_H
#define FS_SANDBOX_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "fs/sandbox/outputs.h"
#include "fs/sandbox/sandbox.h"

struct err;

enum fs_layer_kind {
	FS_LAYER_BIND,	  /* a directory of ours that replaces what is there */
	FS_LAYER_OVERLAY, /* a kernel overlay on what is there */
	FS_LAYER_SERVED,  /* at the root, alone: session one shows it (fs/upper/upper.h) */
};

struct fs_layer {
	enum fs_layer_kind kind;
	char *path; /* relative to the input root; "" is the root */
};

/*
 * @layers in the order of mounting: whatever lies below a layer follows it. @dirs are
 * the directories that must exist and that the input tree lacks, parents first.
 */
struct fs_plan {
	size_t nr_layers;
	struct fs_layer *layers;
	size_t nr_dirs;
	char **dirs;
};

enum fs_plan_kind {
	FS_PLAN_ABSENT,
	FS_PLAN_FILE,
	FS_PLAN_SYMLINK,
	FS_PLAN_DIR,
	FS_PLAN_EMPTY_DIR,
};

/* The input tree as the plan asks for it. */
struct fs_plan_tree {
	/* What is at @path ("": the root)? Parents were found to be directories. */
	int (*look)(void *ctx, const char *path, enum fs_plan_kind *out, struct err *err);
	void *ctx;
};

/*
 * Pure: looks at the tree, touches nothing.
 * -ENOTDIR: a parent of an output, or an output given as PATH/, is a file or a symlink
 * in the tree (named).
 */
int fs_plan_make(const struct fs_outputs *outputs, enum fs_writable policy,
		 const struct fs_plan_tree *tree, struct fs_plan *out, struct err *err);
/*
 * The same without a mount: one served layer in place of all, and, with @always, where
 * none is needed, too. -ENOMEM.
 */
int fs_plan_serve(struct fs_plan *plan, bool always);
void fs_plan_fini(struct fs_plan *plan);
/* Is its layer one that is served, so that none is mounted? */
bool fs_plan_is_served(const struct fs_plan *plan);

/* The layer mounted exactly at @path, or -1. */
int fs_plan_layer_at(const struct fs_plan *plan, const char *path);

#endif
