/* cas/checkout/checkout.h - a root digest becomes a tree on disk */
#ifndef CAS_CHECKOUT_CHECKOUT_H
#define CAS_CHECKOUT_CHECKOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cas_digest;
struct cas_store;
struct err;

enum cas_checkout_mode {
	CAS_CHECKOUT_AUTO,    /* reflink, else copy */
	CAS_CHECKOUT_REFLINK, /* reflink or fail with -EOPNOTSUPP */
	/*
	 * Link a variant of links/; across filesystems or at EMLINK: copy. Names of one
	 * digest are then one inode, also within one tree; empty files and those with node
	 * properties never are.
	 */
	CAS_CHECKOUT_HARDLINK,
	CAS_CHECKOUT_COPY,
};

struct cas_checkout_progress {
	_Atomic uint64_t files;
	_Atomic uint64_t bytes;
	_Atomic bool cancel;
};

struct cas_checkout_options {
	enum cas_checkout_mode mode;
	int nr_threads;				/* 0: one per processor */
	bool snapshot;				/* see cas_checkout */
	struct cas_checkout_progress *progress; /* may be NULL */
};

/*
 * Materialize the Directory @root as @dest, which must not exist (an empty directory is
 * replaced, whatever its mode). Files are 0444 or 0555 whatever the umask, directories 0755, unless
 * node properties say otherwise. Times from node properties are set; else copies get the time of
 * the checkout and links that of their variant. All or nothing: the tree grows under a temporary
 * name beside @dest and is renamed into place; a failed or killed checkout leaves @dest as it was.
 *
 * With opts->snapshot, mode auto, and store and @dest in one btrfs, a tree of
 * 512 entries or more is kept as a read-only subvolume in STORE/trees; @dest is then a
 * subvolume, a snapshot of it, whose files have the time of the first such checkout.
 * -EEXIST: @dest is there. -ENOENT: a blob is missing (named), or @dest's parent.
 * -ENOTDIR, -ELOOP: a parent of @dest is no directory. -EBUSY: @dest is a mount point.
 * -EINVAL: @dest does not end in a name. -EUCLEAN: a Directory is not canonical (named).
 * -ECANCELED: the caller asked for it. -EBUSY also: 64 temporaries of live checkouts.
 * What a killed checkout to the same name left beside it is removed by the next one.
 */
int cas_checkout(struct cas_store *store, const struct cas_digest *root, const char *dest,
		 const struct cas_checkout_options *opts, struct err *err);

/* The same with @dest relative to @dir_fd. */
int cas_checkout_at(struct cas_store *store, const struct cas_digest *root, int dir_fd,
		    const char *dest, const struct cas_checkout_options *opts, struct err *err);

/*
 * With opts->snapshot in mode auto, as far as that goes without looking at a blob: 1: @dest is
 * a snapshot of a tree that was kept. 0: there is none that could be moved there; nothing has
 * happened but that a damaged one was removed, and cas_checkout is to be asked. Negative: as
 * cas_checkout. The use of the tree is the caller's to tell; @store may be one that was only
 * reached (cas_store_reach).
 */
int cas_checkout_kept(struct cas_store *store, const struct cas_digest *root, const char *dest,
		      struct err *err);

/* Remove the trees kept for snapshots, for their space. */
void cas_checkout_drop_trees(struct cas_store *store);

/*
 * One file below an open directory; replaces what is there, atomically, and follows no
 * symlink. @name is one segment (-EINVAL). -EISDIR: a directory is there.
 */
int cas_checkout_file(struct cas_store *store, const struct cas_digest *digest, bool executable,
		      int dir_fd, const char *name, const struct cas_checkout_options *opts,
		      struct err *err);

#endif
