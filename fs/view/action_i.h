/* fs/view/action_i.h - what the files of the action cache share */
#ifndef FS_VIEW_ACTION_I_H
#define FS_VIEW_ACTION_I_H

#include <stddef.h>
#include <stdint.h>

#include "cas/base/lock.h"
#include "fs/view/action.h"
#include "fs/view/view.h"

struct buf;
struct cas_action;
struct fs_outcome;

#define FS_AC_NR_KEPT	16
#define FS_AC_WHAT_BITS 8
#define FS_AC_WHAT_MASK ((UINT64_C(1) << FS_AC_WHAT_BITS) - 1)

enum fs_ac_what {
	FS_AC_TOP,
	FS_AC_DIR, /* ac/NAME */
	FS_AC_ACTION_JSON,
	FS_AC_COMMAND_JSON,
	FS_AC_INPUT,
	FS_AC_RESULT_JSON,
	FS_AC_OUTPUTS, /* a directory of outputs, or an output that came along */
	FS_AC_STDOUT,
	FS_AC_STDERR,
};

struct fs_ac_kept {
	struct cas_digest id; /* as a node's digest */
	struct fs_outcome *outcome;
	uint64_t used;
};

struct fs_view_action {
	struct fs_view view;
	struct fs_view_tree tree; /* inputs, and outputs that are Directories */
	struct fs_view_trees *trees;
	struct cas_store *store;
	struct meta *meta;
	struct fs_entry root;
	struct lock lock;
	uint64_t clock GUARDED_BY(lock);
	/* The first is for a large one, lest each name in it parse it again. */
	struct fs_ac_kept kept[FS_AC_NR_KEPT] GUARDED_BY(lock);
	/* Held while the newest are looked for: nothing waits but listings. */
	struct lock list_lock;
	size_t nr_listed GUARDED_BY(list_lock);
	struct cas_action_age *listed GUARDED_BY(list_lock);
};

/* The result of an action as it is now, and what its nodes are known by. */
int fs_ac_load(struct fs_view_action *ac, const uint8_t hash[CAS_HASH_SZ], struct cas_digest *id,
	       struct fs_outcome **out, struct err *err);
/* That of a node; -ESTALE: it was replaced, or is gone. */
int fs_ac_outcome(struct fs_view_action *ac, const struct cas_digest *id, struct fs_outcome **out,
		  struct err *err);
/* 1 and its bytes; 0: it is not to be had, or is none, and @err may name what is missing. */
int fs_ac_read(struct fs_view_action *ac, const uint8_t hash[CAS_HASH_SZ], struct buf *data,
	       struct cas_action *out, struct err *err);

/* What is in ac/NAME, and in a directory of its outputs; as a view's lookup and list. */
int fs_ac_lookup_part(struct fs_view_action *ac, const struct fs_entry *dir, const char *name,
		      struct fs_entry *out, struct err *err);
int fs_ac_list_parts(struct fs_view_action *ac, const struct fs_entry *dir, uint64_t start,
		     fs_view_each_fn each, void *ctx, struct err *err);
int fs_ac_lookup_output(struct fs_view_action *ac, const struct fs_entry *dir, const char *name,
			struct fs_entry *out, struct err *err);
int fs_ac_list_outputs(struct fs_view_action *ac, const struct fs_entry *dir, uint64_t start,
		       fs_view_each_fn each, void *ctx, struct err *err);

#endif
