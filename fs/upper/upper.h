/* fs/upper/upper.h - the writable layer of a sandbox, served by ourselves */
#ifndef FS_UPPER_UPPER_H
#define FS_UPPER_UPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cas/digest.h"
#include "fs/engine/meter.h"
#include "fs/sandbox/sandbox.h"

struct err;
struct fs_backing_table;
struct fs_entry;
struct fs_key;
struct fs_outputs;
struct fs_view;
struct meta;

/*
 * The third engine (design 6.6, 6.12): where nothing can be mounted, session one itself
 * shows what the action writes. A sandbox with it has one layer, at its root.
 *
 * Which inputs are nodes of the layer (FS_KIND_UPPER, struct fs_unode), and so private to
 * the sandbox: those that the policy lets the action change. All others are shared with
 * other sandboxes, and nothing here ever changes what such a node shows. But directories
 * in which outputs are made, and which are none themselves, are places: nodes of the tree
 * for which the layer answers while there is one (fs_uppers_dir). When it ends, the kernel
 * has to forget what it learned there that is only so in the layer (fs_upper_each_stale).
 *
 * Threads: any. Nothing waits for another machine in a thread that must not
 * (lock_thread_is_prompt): then -ENOENT with the blob named in @err, and for a large one
 * -EAGAIN; the caller does it again in a thread that may wait.
 */
struct fs_uppers; /* all layers of a session */
struct fs_upper;  /* one */
struct fs_unode;  /* a node in it; fs_entry.tag */

struct fs_uppers_options {
	struct meta *meta;
	struct fs_backing_table *backing;
	/* For tests: the kernel lets anybody write to anything, so that nothing is shared. */
	bool unshared;
};

int fs_uppers_new(const struct fs_uppers_options *opts, struct fs_uppers **out);
/* The session's nodes are freed. */
void fs_uppers_free(struct fs_uppers *all);

struct fs_upper_spec {
	uint64_t serial;	/* of the slot that shows the sandbox */
	struct cas_digest root; /* with the directories that outputs need */
	enum fs_writable writable;
	const struct fs_outputs *outputs;
	int layer_fd;	       /* STORE/sandboxes/ID/upper/0, borrowed */
	bool again;	       /* it was served before */
	struct fs_usage limit; /* what may be written; 0: any number */
};

/*
 * Serve a layer: what lies in it is shown as it is. Before anybody can look at the
 * sandbox. End with fs_upper_end, then fs_upper_unref.
 */
int fs_upper_begin(struct fs_uppers *all, const struct fs_upper_spec *spec, struct fs_upper **out,
		   struct err *err);
/* Nothing of it is shown, read or written any more when this returns. */
void fs_upper_end(struct fs_upper *upper);
void fs_upper_unref(struct fs_upper *upper);
/*
 * Paths from the root at which the tree shows something that the layer has as its own: what
 * the kernel may know there from before is to be forgotten when it has begun. They are the
 * upper's.
 */
const char *const *fs_upper_hidden(const struct fs_upper *upper, size_t *nr);

/* What is to be forgotten of a place when the layer has ended. */
struct fs_upper_stale {
	const char *dir; /* its path from the root */
	bool whole;	 /* all that is known at that path, instead of the following */
	bool changed;	 /* its attributes, and its listing */
	const char *const *names;
	size_t nr;
};
/* After fs_upper_end. What @each returns, if it is not 0, ends it. */
int fs_upper_each_stale(const struct fs_upper *upper,
			int (*each)(void *ctx, const struct fs_upper_stale *stale), void *ctx);

/* How much was written to a layer, at its most, and what was too much. Only if it has a limit. */
struct fs_upper_usage {
	struct fs_usage peak;
	bool refused_bytes;
	bool refused_files;
};
void fs_upper_usage(struct fs_upper *upper, struct fs_upper_usage *out);

/* Is there any layer? If not, nothing below needs to be asked. */
bool fs_uppers_any(const struct fs_uppers *all);

/*
 * 1: *out is what the slot @serial shows as its root, or what answers for the directory of
 * its tree whose path has the key @dir. 0: nothing of ours. A node is counted for the taker.
 */
int fs_uppers_root(struct fs_uppers *all, uint64_t serial, struct fs_entry *out, struct err *err);
int fs_uppers_dir(struct fs_uppers *all, uint64_t serial, const struct fs_key *dir,
		  struct fs_entry *out, struct err *err);
/* Is what the kernel has cached of that directory elsewhere wrong in this slot? */
bool fs_uppers_apart(struct fs_uppers *all, uint64_t serial, const struct fs_key *dir);

/* Free what the kernel has forgotten. No lock held. */
void fs_uppers_reap(struct fs_uppers *all);

/*
 * Operations on nodes that the kernel knows. Negative: what the caller of the system call
 * gets, but for the two cases above. -ESTALE: the sandbox has ended. -EROFS: the policy
 * forbids it. -EDQUOT: it would be more than the limit. -EBUSY: an output that was made beforehand
 * is not to be removed.
 */

struct fs_caller {
	uid_t uid;
	gid_t gid;
};

/* A new name: a node of type @mode; @target of a symlink. */
struct fs_making {
	const char *name;
	mode_t mode;
	dev_t rdev;
	const char *target;
	struct fs_caller by;
};

/* -EPERM: a device, which we may not make. */
int fs_upper_make(struct fs_unode *dir, const struct fs_making *what, struct fs_entry *out,
		  struct err *err);
int fs_upper_link(struct fs_unode *node, struct fs_unode *dir, const char *name,
		  struct fs_entry *out, struct err *err);
int fs_upper_remove(struct fs_unode *dir, const char *name, bool is_dir, struct err *err);
/* @flags of renameat2: none, RENAME_NOREPLACE or RENAME_EXCHANGE. */
int fs_upper_rename(struct fs_unode *dir, const char *name, struct fs_unode *dir2,
		    const char *name2, unsigned flags, struct err *err);

/* What setattr asks for. */
struct fs_change {
	bool set_mode, set_uid, set_gid, set_size, set_atime, set_mtime;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	off_t size;
	struct timespec times[2]; /* tv_nsec may be UTIME_NOW */
};
int fs_upper_change(struct fs_unode *node, const struct fs_change *change, struct err *err);

/* Somebody without the right to keep them changed its bytes: set-id bits go. */
int fs_upper_kill_set_id(struct fs_unode *node);

/*
 * 0: *st. 1: still as in the tree: *lower says how, but for st->st_ino. Owner and group
 * are the session's then.
 */
int fs_upper_stat(struct fs_unode *node, struct stat *st, struct fs_entry *lower);

/* 1: its bytes are those of the tree still: *lower is the file. */
int fs_upper_is_lower(struct fs_unode *node, struct fs_entry *lower);
ssize_t fs_upper_read(struct fs_unode *node, void *data, size_t size, off_t off);
/* The whole, or negative. */
int fs_upper_write(struct fs_unode *node, const void *data, size_t size, off_t off,
		   struct err *err);
int fs_upper_fallocate(struct fs_unode *node, int mode, off_t off, off_t len, struct err *err);
off_t fs_upper_seek(struct fs_unode *node, off_t off, int whence);
/* The target of a symlink, malloc'ed. */
int fs_upper_readlink(struct fs_unode *node, char **out);

/* Attributes user.*, of files and directories: counts as the system calls give them. */
ssize_t fs_upper_xattr_get(struct fs_unode *node, const char *name, void *out, size_t size);
ssize_t fs_upper_xattr_list(struct fs_unode *node, char *out, size_t size);
int fs_upper_xattr_set(struct fs_unode *node, const char *name, const void *value, size_t size,
		       int flags, struct err *err);
int fs_upper_xattr_remove(struct fs_unode *node, const char *name, struct err *err);

/* The inode number of the directory above. */
uint64_t fs_upper_parent_ino(struct fs_unode *dir);

#endif
