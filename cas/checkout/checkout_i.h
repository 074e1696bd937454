/* cas/checkout/checkout_i.h - what the parts of checkout share */
#ifndef CAS_CHECKOUT_CHECKOUT_I_H
#define CAS_CHECKOUT_CHECKOUT_I_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/base/pool_i.h"
#include "cas/checkout/checkout.h"
#include "cas/digest.h"
#include "cas/put/temp_name.h"

struct cas_node;

struct checkout {
	struct cas_store *store;
	enum cas_checkout_mode mode;
	struct cas_checkout_progress *progress; /* never NULL */
	uint64_t files_before;			/* what progress counted when this checkout began */
	uint64_t bytes_before;
	const char *dest;	 /* as the caller spelled it */
	_Atomic bool no_reflink; /* seen not to work here: do not try again */
	_Atomic bool no_link;
	struct cas_pool pool;
	_Atomic bool stop; /* something failed: finish without further work */
	struct lock lock;
	int code;	/* guarded by lock: the first fault */
	struct err err; /* guarded by lock */
};

/* checkout.c */
bool checkout_stopped(struct checkout *co);

/* checkout_tree.c: fill the empty directory @fd (borrowed) with @root. */
void checkout_tree(struct checkout *co, const struct cas_digest *root, int fd);

/*
 * checkout_file.c: make dir_fd/name, which must not exist, a file or symlink. The words
 * in @err do not name the path.
 */
int checkout_file(struct checkout *co, int dir_fd, const struct cas_node *node, struct err *err);
int checkout_symlink(int dir_fd, const struct cas_node *node, struct err *err);

/* checkout_snap.c */

/* A snapshot that was taken of a kept tree: trees_fd/name, and its lock. */
struct checkout_kept {
	int trees_fd;
	int fd;
	char name[40];
};

/*
 * 1 and *out: the finished tree, to be renamed to a name in @parent_fd and then closed, or
 * dropped. 0: there is none that could be moved there.
 */
int checkout_kept_take(struct checkout *co, const struct cas_digest *root, int parent_fd,
		       struct checkout_kept *out);
void checkout_kept_drop(struct checkout_kept *kept);
void checkout_kept_close(struct checkout_kept *kept);

/* The name of a snapshot in a checkout's temporary directory. */
#define CHECKOUT_SNAPSHOT "tree"

/*
 * 1: temp_fd/CHECKOUT_SNAPSHOT is the finished tree. 0: nothing is there, do it the
 * ordinary way. Negative: what growing it failed with, in co->err, else in @err.
 */
int checkout_snapshot(struct checkout *co, const struct cas_digest *root, int temp_fd,
		      struct err *err);
/* Remove it, where there is one. */
void checkout_snapshot_remove(int temp_fd);

/* checkout_temp.c */

/*
 * Make an empty directory of mode 0755 in @parent_fd, for a checkout to @dest_name: its
 * name, and a descriptor whose lock tells other checkouts that it is in use. What a
 * killed checkout to the same name left is removed.
 */
int checkout_temp_make(int parent_fd, const char *dest_name, char name[CAS_TEMP_NAME_SZ], int *fd,
		       struct err *err);

#endif
