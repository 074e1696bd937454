/* cas/checkout.h - a root digest becomes a tree on disk */
#ifndef CAS_CHECKOUT_H
#define CAS_CHECKOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cas_digest;
struct cas_store;
struct err;

enum cas_checkout_mode {
	CAS_CHECKOUT_AUTO,     /* reflink, else copy */
	CAS_CHECKOUT_REFLINK,  /* reflink or fail with -EOPNOTSUPP */
	CAS_CHECKOUT_HARDLINK, /* link a variant of links/; across filesystems or at EMLINK: copy */
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
	struct cas_checkout_progress *progress; /* may be NULL */
};

/*
 * Materialize the Directory @root as @dest, which must not exist (an empty directory is
 * replaced). Files are 0444 or 0555 whatever the umask, directories 0755, unless node
 * properties say otherwise; times from node properties are set. All or nothing: the
 * tree grows under a temporary name beside @dest and is renamed into place; a failed or
 * killed checkout leaves @dest as it was.
 * -EEXIST: @dest is there. -ENOENT: a blob is missing (named), or @dest's parent.
 * -ENOTDIR, -ELOOP: a parent of @dest is no directory.
 */
int cas_checkout(struct cas_store *store, const struct cas_digest *root, const char *dest,
		 const struct cas_checkout_options *opts, struct err *err);

/* One file or symlink below an open directory; replaces what is there, atomically. */
int cas_checkout_file(struct cas_store *store, const struct cas_digest *digest, bool executable,
		      int dir_fd, const char *name, const struct cas_checkout_options *opts,
		      struct err *err);

#endif
