/* fs/capture/merge.h - what a frozen sandbox shows, read from its layers and its tree */
#ifndef FS_CAPTURE_MERGE_H
#define FS_CAPTURE_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "cas/reapi/directory.h"
#include "fs/sandbox/plan.h"

struct cas_store;
struct err;
struct fs_derived;

/* One layer after its mount is gone. */
struct fs_merge_layer {
	enum fs_layer_kind kind;
	const char *path; /* borrowed */
	int upper_fd;	  /* what was written; -1: the mount had left its place, so not used */
};

/*
 * The tree of @root (its Directories in @derived or in @store) with the layers over it,
 * without any mount: bind layers replace, overlay layers merge by the kernel's rules
 * (whiteouts, opaque directories, redirects), served ones by the same with names of their
 * own (fs/upper/upper_i.h). Read-only; one thread.
 */
struct fs_merge {
	struct cas_store *store;
	const struct fs_derived *derived; /* may be NULL */
	struct fs_merge_loaded *loaded;	  /* owned; NULL: each Directory is read when asked for */
	struct cas_digest root;
	size_t nr_layers;
	struct fs_merge_layer *layers;
	bool userxattr; /* user.overlay.* instead of trusted.overlay.* */
};

/*
 * A directory of it: a real one at @fd (-1: none), inputs of @lower, or both. @layer is
 * the overlay whose upper @fd is in, else NULL: then there is no merging by name.
 */
struct fs_merge_dir {
	int fd;
	bool has_lower;
	struct cas_digest lower;
	const struct fs_merge_layer *layer;
	dev_t dev; /* of @fd, while it is parked */
	ino_t ino;
};

void fs_merge_dir_fini(struct fs_merge_dir *dir);

enum fs_entry_kind {
	FS_ENTRY_NONE,	  /* no such name */
	FS_ENTRY_INPUT,	  /* a node of the tree, untouched with all below: @node */
	FS_ENTRY_FILE,	  /* written: @st */
	FS_ENTRY_SYMLINK, /* written */
	FS_ENTRY_DIR,	  /* written, merged, or with a layer below: @dir */
	FS_ENTRY_OTHER,	  /* socket, FIFO, device: @st */
	FS_ENTRY_ERROR,	  /* there, but it cannot be looked at: @code */
};

/* @node is borrowed from the listing it was looked up with. Ended with fs_entry_fini. */
struct fs_entry {
	enum fs_entry_kind kind;
	int code;
	const struct cas_node *node;
	struct stat st;
	struct fs_merge_dir dir;
};

void fs_entry_fini(struct fs_entry *entry);

/* The names of a directory, sorted by bytes; some may turn out NONE. */
struct fs_listing {
	struct cas_directory *lower; /* NULL: no inputs */
	bool lower_owned;
	size_t nr;
	struct fs_listed {
		char *name;
		unsigned char type; /* of the file in the upper, as readdir has it; or DT_UNKNOWN */
	} * names;
};

int fs_merge_root(const struct fs_merge *m, struct fs_merge_dir *out, struct err *err);

enum fs_list_names {
	FS_LIST_NONE,	 /* only what fs_merge_child needs */
	FS_LIST_WRITTEN, /* names that the layers at and below @path decide about */
	FS_LIST_ALL,	 /* and those of the inputs */
};

/* @path is that of @dir. */
int fs_merge_list(const struct fs_merge *m, const struct fs_merge_dir *dir, const char *path,
		  enum fs_list_names which, struct fs_listing *out, struct err *err);
void fs_listing_fini(struct fs_listing *list);

/* @path is that of the child, relative to the root; @name its last component. */
int fs_merge_child(const struct fs_merge *m, const struct fs_merge_dir *dir,
		   const struct fs_listing *list, const char *path, const char *name,
		   struct fs_entry *out, struct err *err);

/* Does an input of another place (moved by a redirect) equal @node? */
bool fs_merge_same_input(const struct cas_node *got, const struct cas_node *node);

/*
 * Walks of any depth with few descriptors: park @parent while its child @dir is walked,
 * and bring it back from @dir afterwards. -ESTALE: somebody moved the child meanwhile.
 */
void fs_merge_park(struct fs_merge_dir *parent, const struct fs_merge_dir *dir);
int fs_merge_unpark(struct fs_merge_dir *parent, const struct fs_merge_dir *dir, struct err *err);

/*
 * Directories that a merge has read, kept until it ends: the way to each of several outputs
 * leads through the same few. NULL without memory, which costs no more than time.
 */
struct fs_merge_loaded *fs_merge_loaded_new(void);
void fs_merge_loaded_free(struct fs_merge_loaded *loaded);

/* Load a Directory of the tree; *owned tells whether to free it. */
int fs_merge_load(const struct fs_merge *m, const struct cas_digest *digest,
		  struct cas_directory **out, bool *owned, struct err *err);

#endif
