/* fs/upper/upper_i.h - nodes of served layers, for the files that share them */
#ifndef FS_UPPER_UPPER_I_H
#define FS_UPPER_UPPER_I_H

#include <stdatomic.h>
#include <sys/queue.h>
/* Out of memory is an error to return, not the end of the process. */
#define HASH_NONFATAL_OOM 1
/* Its default hash falls through switch labels, which we do not allow. */
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>

#include "cas/cas.h"
#include "fs/sandbox/outputs.h"
#include "fs/upper/disk.h"
#include "fs/upper/upper.h"
#include "fs/view/view.h"

/*
 * All that is not said to be otherwise is guarded by the layer's lock; nodes are counted
 * under the leaf lock of all layers, so that the session's table may let go of them. A
 * node is freed when nobody counts it and nothing below it is known.
 */

/* A name that is known of a node. */
struct fs_dent {
	UT_hash_handle hh; /* in dir->children */
	struct fs_unode *dir;
	struct fs_unode *node;
	struct fs_dent *next; /* the node's others */
	char name[];
};

struct fs_ulist_item;
struct fs_uplace;

struct fs_unode {
	struct fs_upper *upper;
	uint64_t number; /* never reused */
	uint64_t ino;	 /* what stat shows; never changes */
	mode_t type;	 /* S_IFMT bits */

	unsigned nr_refs;	    /* all->refs_lock */
	bool is_dead;		    /* all->refs_lock: in the list of what may go */
	struct fs_unode *next_dead; /* all->refs_lock */

	bool has_upper : 1;  /* it has a file in the layer */
	bool has_lower : 1;  /* of the tree: a file whose bytes are @lower's until has_upper;
				a directory that shows what @lower has */
	bool free : 1;	     /* what it is may be changed; all below a directory as well */
	bool area : 1;	     /* a directory in which outputs may be made */
	bool near : 1;	     /* a directory with outputs below */
	bool fixed : 1;	     /* an output made beforehand, which stays */
	bool odd : 1;	     /* it has attributes on disk (sticky there) */
	bool shown_mode : 1; /* its mode is @mode, not its file's */
	bool orphan : 1;     /* it has a name in w, to be deleted with it */
	bool pinned : 1;     /* it has no name: its descriptor is all there is */
	bool removed : 1;    /* a directory that is gone */
	bool counted : 1;    /* it is one of the files that count for the limit */
	bool gone : 1;	     /* counted: it has lost its last name on disk */
	uint64_t charged;    /* counted: bytes that count */
	mode_t mode;
	struct fs_entry lower;
	char *origin;		 /* has_lower, moved away: its path in the tree */
	struct fs_uplace *place; /* a directory of which the kernel knows the tree's node */
	struct fs_dent *names;
	struct fs_dent *children;
	UT_hash_handle hh_ino; /* in upper->by_ino: has more than one name on disk */
	ino_t disk_ino;
	bool in_by_ino;
	struct fs_ulist_item *list; /* the names as they were when last listed from the start */
	size_t nr_list;

	LIST_ENTRY(fs_unode) all_nodes;

	int fd;				/* fds lock; -1: none */
	unsigned fd_users;		/* fds lock */
	bool fd_pinned;			/* fds lock: not to be closed */
	TAILQ_ENTRY(fs_unode) fds_link; /* fds lock: least recently used first */
};

struct fs_upper {
	struct fs_uppers *all;
	UT_hash_handle hh; /* all->lock, by serial */
	uint64_t serial;
	unsigned nr_refs; /* all->refs_lock: nodes, and who began it */

	/* Constant. */
	enum fs_writable writable;
	struct fs_outputs outputs;
	struct fs_uplace *places; /* the table of them is; not what is in one */
	size_t nr_hidden;	  /* paths at which the tree has something that is not to be seen */
	char **hidden;

	_Atomic bool apart; /* its places do not show what the tree does */
	struct fs_usage limit;

	struct lock lock; /* rank INODE */
	pthread_cond_t idle;
	unsigned nr_busy; /* who uses a descriptor without the lock */
	bool ended;
	bool has_root;	      /* constant: the root is shown as a node of the layer */
	bool any_odd;	      /* some entry on disk has attributes */
	struct fs_usage used; /* with a limit, as the next three */
	uint64_t promised;    /* bytes that are being written */
	size_t nr_gone;	      /* nodes that are gone */
	struct fs_upper_usage usage;
	int root_fd;
	int work_fd;
	uint64_t next_tmp;
	struct fs_unode *root;
	struct fs_unode *by_ino;
	LIST_HEAD(, fs_unode) nodes;
};

/* Descriptors of nodes, of all layers. */
struct fs_ufds {
	struct lock lock; /* rank LEAF */
	TAILQ_HEAD(fs_ufd_list, fs_unode) lru;
	size_t nr;
	size_t nr_pinned;
	size_t max;
};

struct fs_uppers {
	struct fs_uppers_options opts;
	struct fs_view view;
	struct fs_view_tree tree;
	struct lock lock; /* rank SESSION */
	struct fs_upper *by_serial;
	_Atomic size_t nr_uppers;
	_Atomic uint64_t next_number;
	struct lock refs_lock; /* rank LEAF */
	struct fs_unode *dead;
	atomic_flag reaping;
	struct fs_ufds fds;
};

/* clang cannot follow a lock through a node to its layer. */
NO_LOCK_CHECK static inline void fs_upper_lock(struct fs_upper *upper)
{
	lock_take(&upper->lock);
}

NO_LOCK_CHECK static inline void fs_upper_unlock(struct fs_upper *upper)
{
	lock_drop(&upper->lock);
}

NO_LOCK_CHECK static inline void fs_upper_wait(struct fs_upper *upper)
{
	(void)lock_wait(&upper->lock, &upper->idle, 0);
}

/* @any: of an entry of kind FS_KIND_UPPER that is no part of a listing. */
static inline struct fs_unode *fs_unode_of(const struct fs_entry *entry)
{
	return (struct fs_unode *)(uintptr_t)entry->tag;
}

static inline bool fs_unode_is_dir(const struct fs_unode *node)
{
	return S_ISDIR(node->type);
}

/*
 * Everything from here on is called with the layer's lock held, unless it says @any.
 */

/* node.c */

/* A node, counted once for the caller. NULL: no memory. */
struct fs_unode *fs_unode_new(struct fs_upper *upper, mode_t type);
void fs_unode_ref(struct fs_unode *node);
/* @any. */
void fs_unode_unref(struct fs_unode *node);
/* Does anybody count it, but for the caller, who does once? */
bool fs_unode_is_used(struct fs_unode *node);
struct fs_dent *fs_dent_find(const struct fs_unode *dir, const char *name);
int fs_dent_add(struct fs_unode *dir, const char *name, struct fs_unode *node);
void fs_dent_remove(struct fs_dent *dent);
/* The path of @name in @dir (NULL: of @dir) from the root; malloc'ed, NULL: no memory. */
char *fs_unode_path(const struct fs_unode *dir, const char *name);
/* The path in the tree of what a directory shows of it. */
char *fs_unode_origin(const struct fs_unode *dir);
/* More than one name on disk: find it by that, from now on. */
int fs_unode_by_ino_add(struct fs_unode *node, ino_t ino);
struct fs_unode *fs_unode_by_ino(struct fs_upper *upper, ino_t ino);
/* The answer for whoever counts it. */
void fs_unode_entry(struct fs_unode *node, struct fs_entry *out);

/* fds.c */

void fs_ufds_init(struct fs_ufds *fds);
void fs_ufds_fini(struct fs_ufds *fds);
/* The node's descriptor, counted, or -1: there is none. */
int fs_ufd_ref(struct fs_unode *node);
/* @fd is the node's from now on, counted; it had none. */
void fs_ufd_add(struct fs_unode *node, int fd);
void fs_ufd_unref(struct fs_unode *node);
/* Keep it open: it is all there is of the node. False: there is none, or too many are. */
bool fs_ufd_pin(struct fs_unode *node);
/* Close it, unless somebody uses it: then when he has done. @any. */
void fs_ufd_close(struct fs_unode *node);

/* look.c */

/* A node of ours, counted, or an entry that others share (target owned). */
struct fs_found {
	struct fs_unode *node; /* NULL: *entry */
	struct fs_entry entry;
};
/* 1: *out, 0: no such name. */
int fs_upper_look(struct fs_unode *dir, const char *name, struct fs_found *out, struct err *err);
void fs_found_end(struct fs_found *found);
/* 1: the tree shows something there, *out (target owned); 0: nothing. */
int fs_upper_look_lower(const struct fs_unode *dir, const char *name, struct fs_entry *out,
			struct err *err);
/* 1: the tree shows it, so that removing it needs a whiteout; 2: and it is a directory. */
int fs_upper_hides(const struct fs_unode *dir, const char *name, struct err *err);
/* 1: the directory of the tree at @path, 0: there is none. */
int fs_upper_walk_lower(struct fs_upper *upper, const char *path, struct fs_entry *out,
			struct err *err);
/* May a name be made in it? 0 or -EROFS. */
int fs_upper_may_make(const struct fs_unode *dir);
/* May what was found be removed, moved or replaced? 0, -EROFS or -EBUSY. */
int fs_upper_may_change(const struct fs_found *found);
/* 0, or -ESTALE: over. */
int fs_upper_check(const struct fs_upper *upper);

/* list.c */

int fs_upper_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		  fs_view_each_fn each, void *ctx, struct err *err);
void fs_upper_list_drop(struct fs_unode *dir);
/* 1: it shows no name; 0: some. */
int fs_upper_is_empty(struct fs_unode *dir, struct err *err);

/* copyup.c */

/* The directory has a place in the layer when this returns 0. */
int fs_upper_dir_up(struct fs_unode *dir);
/* Called without the lock: so has the node; without its bytes when @empty. */
int fs_upper_copy_up(struct fs_unode *node, bool empty, struct err *err);

/* remove.c */

/*
 * Before its name in @dir goes, or is replaced: see to it that the node keeps its bytes as
 * long as it is counted by others than the caller. *unlinked: the name is gone already.
 */
int fs_upper_keep(struct fs_unode *node, int dir_fd, const char *name, bool may_move, bool *moved);
/* Put a whiteout at @name, where nothing is in the layer. */
int fs_upper_put_whiteout(struct fs_upper *upper, int dir_fd, const char *name);

/* data.c */

/* Called without the lock: nothing begins any more, and nobody is at it when this returns. */
void fs_upper_wait_idle(struct fs_upper *upper);

/* Called without the lock: a descriptor for use without it, until fs_upper_release. */
int fs_upper_acquire(struct fs_unode *node);
void fs_upper_release(struct fs_unode *node);

#endif
