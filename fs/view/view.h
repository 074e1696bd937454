/* fs/view/view.h - interface of a subtree of a mount */
#ifndef FS_VIEW_VIEW_H
#define FS_VIEW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct buf;
struct err;
struct fs_large;
struct fs_sandboxes;
struct fs_slots;
struct fs_uppers;
struct fs_view;
struct fs_view_sandboxes;
struct fs_view_trees;
struct meta;
struct stat;
struct cas_store;

enum fs_kind {
	FS_KIND_DIR,
	FS_KIND_FILE,	 /* the bytes of entry.digest */
	FS_KIND_SYMLINK, /* entry.target */
	FS_KIND_TEXT,	 /* made at each open by fs_view_ops.text */
	FS_KIND_CONTROL, /* a conversation: fs/channel/channel.h */
	FS_KIND_EVENTS,	 /* a file that grows: fs/report/events.h */
	FS_KIND_UPPER,	 /* a node of a layer that we serve, of any type: fs/upper/upper.h */
};

#define FS_KEY_SZ 16

/* Identity of a node, or of a path from an input root (design 6.7). */
struct fs_key {
	uint8_t bytes[FS_KEY_SZ];
};

/* What a name stands for: enough to make its node (identity: fs/node/inode.h). */
struct fs_entry {
	const struct fs_view *view; /* answers for the node */
	struct fs_key key;	    /* DIR: of its path; others: of all that makes them differ */
	uint64_t serial;	    /* topmost DIR of a sandbox: of its slot; else 0 */
	struct cas_digest digest;   /* FILE; DIR of a tree; TEXT: the size when it is slow */
	union {
		const char *target; /* SYMLINK; owned by the node once there is one */
		uint64_t tag;	    /* other kinds: private to the view */
	};
	int64_t mtime_sec; /* when has_mtime */
	int32_t mtime_nsec;
	uint16_t
		mode; /* when has_mode: permission bits; else by kind and executable; UPPER: type */
	uint8_t kind; /* enum fs_kind */
	bool executable : 1;
	bool named_blob : 1; /* FILE: it is there as long as its blob is, and looked up anew */
	bool has_mtime : 1;
	bool has_mode : 1;
	bool fleeting : 1; /* attributes, of a DIR name and list too, are asked for each time */
	bool lively : 1;   /* DIR: always there, but its list changes */
	bool slow : 1;	   /* TEXT: takes long to make: no thread that serves does, nor stat, */
			   /* which tells the size that it had when it was last opened */
	bool apart : 1;	   /* DIR: never one that another top has cached */
	bool partial : 1;  /* from list alone: kind and key, not enough for a node */
};

/* @pos is stable for ever and grows; @target is valid in the call only. Non-zero stops. */
typedef int (*fs_view_each_fn)(void *ctx, uint64_t pos, const char *name,
			       const struct fs_entry *entry);

/*
 * Called by threads that answer the kernel, with no lock held. None may wait for a
 * writer or touch a path of our own mounts; lookup, list and complete may block on
 * reading the store. Negative results are what the caller of the system call gets, but
 * for -EBADMSG and -EUCLEAN, which become EIO, as does -ENOENT while the tree is shown;
 * @err says why.
 */
struct fs_view_ops {
	/*
	 * 1 and *out (zeroed by the caller; target malloc'ed for the caller), or 0: then
	 * cas_err_missing may name the blob with which the name would be there.
	 */
	int (*lookup)(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		      struct fs_entry *out, struct err *err);
	/*
	 * Entries at positions from @start on, without "." and "..". Kind, key and digest
	 * are right; attributes of directories may be missing until complete. @each may
	 * not call back into a view.
	 */
	int (*list)(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		    fs_view_each_fn each, void *ctx, struct err *err);
	/* Fill in attributes that list left out. NULL: it leaves out none. */
	int (*complete)(const struct fs_view *view, struct fs_entry *entry, struct err *err);
	/* TEXT: append the content. NULL when there are no such nodes. */
	int (*text)(const struct fs_view *view, const struct fs_entry *entry, struct buf *out);
	/*
	 * TEXT that its owner may change (mode 0200): what one write says. -EINVAL: it means
	 * nothing. NULL when there are no such nodes.
	 */
	int (*change)(const struct fs_view *view, const struct fs_entry *entry, const char *data,
		      size_t len);
	/*
	 * UPPER: 0 and *st, or 1: all but st->st_ino is as of *lower. NULL when there are no
	 * such nodes.
	 */
	int (*stat)(const struct fs_view *view, const struct fs_entry *entry, struct stat *st,
		    struct fs_entry *lower);
	/*
	 * UPPER: what lookup gave is not needed any more. Called with the lock of the nodes'
	 * table, so it takes no lock but a leaf.
	 */
	void (*let_go)(const struct fs_view *view, const struct fs_entry *entry);
	/* A name that is missing stays missing for ever, unless the kernel has it made. */
	bool negative_forever;
};

struct fs_view {
	const struct fs_view_ops *ops;
	void *ctx; /* private to the view */
};

/* Everything below shares these; they outlive the views. */
struct fs_views_options {
	struct cas_store *store;
	struct meta *meta;
	struct fs_sandboxes *sandboxes;
	struct fs_slots *slots;
	struct fs_large *large;		  /* may be NULL */
	struct fs_view_sandboxes *traces; /* .casbox/sandboxes and traced */
	struct fs_uppers *uppers;	  /* layers that session one serves; may be NULL */
	/* Texts of .casbox: append to @out; 0 or negative. */
	int (*config)(void *ctx, struct buf *out);
	int (*help)(void *ctx, struct buf *out);
	int (*version)(void *ctx, struct buf *out);
	int (*metrics)(void *ctx, struct buf *out);
	int (*log_level)(void *ctx, struct buf *out);
	int (*set_log_level)(void *ctx, const char *data, size_t len);
	void *text_ctx;
	const char *beside; /* session one is there, and MNT/sandboxes a link to it; NULL */
};

/*
 * The read-only trees of root digests. Place it where it does not move. Its operations
 * fail with -ENOENT when a Directory that the tree names is in no tier: a fault of the
 * store, unless the tree is not shown any more.
 */
struct fs_view_tree {
	struct fs_view view;
	struct meta *meta;
};

void fs_view_tree_init(struct fs_view_tree *tree, struct meta *meta);

/* What fs_view_tree_root and a lookup put into the entry of a directory @out->digest. */
int fs_view_tree_props(struct meta *meta, struct fs_entry *out, struct err *err);

/*
 * The entry of a tree's root as shown by @tree. -ENOENT: no such Directory. Any other
 * failure as meta_dir_info.
 */
int fs_view_tree_root(const struct fs_view_tree *tree, const struct cas_digest *root,
		      const struct fs_key *path, uint64_t serial, struct fs_entry *out,
		      struct err *err);

struct fs_view_cache; /* cas/{file,executable,directory,tree,command}/HASH-SIZE */
struct fs_view_dot;   /* the files of .casbox */
struct fs_view_top;   /* what lies at MNT */
struct fs_view_boxes; /* what lies at MNT/sandboxes */

/* Each makes the view and, with _root, the entry of its top directory. */
int fs_view_cache_new(struct cas_store *store, struct meta *meta, struct fs_view_trees *trees,
		      struct fs_view_cache **out);
void fs_view_cache_free(struct fs_view_cache *cache);
void fs_view_cache_root(struct fs_view_cache *cache, struct fs_entry *out);

int fs_view_dot_new(const struct fs_views_options *opts, struct fs_view_dot **out);
void fs_view_dot_free(struct fs_view_dot *dot);
void fs_view_dot_root(struct fs_view_dot *dot, struct fs_entry *out);

/*
 * Two tops: of .casbox/sandboxes, and of traced. _close: from now on the table of sandboxes is
 * not asked any more.
 */
int fs_view_sandboxes_new(const struct fs_views_options *opts, struct fs_view_sandboxes **out);
void fs_view_sandboxes_free(struct fs_view_sandboxes *view);
void fs_view_sandboxes_close(struct fs_view_sandboxes *view);
void fs_view_sandboxes_root(struct fs_view_sandboxes *view, struct fs_entry *out);
void fs_view_sandboxes_traced(struct fs_view_sandboxes *view, struct fs_entry *out);

/* Owns its cache and dot views. */
int fs_view_top_new(const struct fs_views_options *opts, struct fs_view_top **out);
void fs_view_top_free(struct fs_view_top *top);
void fs_view_top_root(struct fs_view_top *top, struct fs_entry *out);

int fs_view_boxes_new(const struct fs_views_options *opts, struct fs_view_boxes **out);
void fs_view_boxes_free(struct fs_view_boxes *boxes);
void fs_view_boxes_root(struct fs_view_boxes *boxes, struct fs_entry *out);
/* From now on the table of sandboxes is not asked any more: no name is found. */
void fs_view_boxes_close(struct fs_view_boxes *boxes);

#endif
