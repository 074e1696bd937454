/* cas/checkout/checkout_i.h - what the parts of checkout share */
#ifndef CAS_CHECKOUT_CHECKOUT_I_H
#define CAS_CHECKOUT_CHECKOUT_I_H

#include <limits.h>
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

/* checkout_dest.c */
struct checkout_destination {
	int parent_fd; /* -1: not open */
	char parent[PATH_MAX];
	char name[NAME_MAX + 1];
};
int checkout_destination_open(int dir_fd, const char *dest, struct checkout_destination *out,
			      struct err *err);
void checkout_destination_fini(struct checkout_destination *d);
/* An early look, to fail before the work; the rename decides. */
int checkout_destination_check(const struct checkout_destination *d, const char *dest,
			       struct err *err);
/* Rename what is finished to the destination. */
int checkout_publish(struct checkout *co, const struct checkout_destination *d, int from_fd,
		     const char *from, struct err *err);

/* checkout_kept.c; how trees are kept is told in checkout_snap.c. */
#define CHECKOUT_TREES	   "trees"
#define CHECKOUT_STAMP_MAX 256
#define CHECKOUT_KEY_SZ	   (CAS_DIGEST_STR_SZ + 32)

/* What vouches for a tree, and what a checkout of it counts. */
struct checkout_stamp {
	uint8_t uuid[16];
	uint64_t transid;
	uint64_t files;
	uint64_t bytes;
};

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
/* The whole of it. 1: the destination is a snapshot of a kept tree. 0: not possible. */
int checkout_move(struct checkout *co, const struct cas_digest *root,
		  const struct checkout_destination *d, struct err *err);

void checkout_key_of(const struct cas_digest *root, char out[CHECKOUT_KEY_SZ]);
/* A descriptor, or negative. */
int checkout_open_trees(const struct cas_store *store);
/* 1: @place_fd/@place is a snapshot of the tree kept as @key. 0: there is none. */
int checkout_use_tree(struct checkout *co, int trees_fd, const char *key, int place_fd,
		      const char *place);
/* 1 and *out: a read-only subvolume. 0: something else. */
int checkout_look_at_tree(int fd, struct checkout_stamp *out);
int checkout_take_snapshot(int tree_fd, int dir_fd, const char *name);
void checkout_set_read_only(int tree_fd, bool yes);
/* At once where we may (root, or mounted so), else, and what is none, file by file. */
void checkout_remove_subvolume(int dir_fd, const char *name);
/* A directory of trees/ that nobody uses any more, or has ever used. */
void checkout_remove_kept(int trees_fd, const char *name);
/* Remove a checkout's snapshot (CHECKOUT_SNAPSHOT), where there is one. */
void checkout_snapshot_remove(int temp_fd);

/* checkout_snap.c */

/* The name of a snapshot in a checkout's temporary directory. */
#define CHECKOUT_SNAPSHOT "tree"

/*
 * 1: temp_fd/CHECKOUT_SNAPSHOT is the finished tree. 0: nothing is there, do it the
 * ordinary way. Negative: what growing it failed with, in co->err, else in @err.
 */
int checkout_snapshot(struct checkout *co, const struct cas_digest *root, int temp_fd,
		      struct err *err);

/* checkout_temp.c */

/*
 * Make an empty directory of mode 0755 in @parent_fd, for a checkout to @dest_name: its
 * name, and a descriptor whose lock tells other checkouts that it is in use. What a
 * killed checkout to the same name left is removed.
 */
int checkout_temp_make(int parent_fd, const char *dest_name, char name[CAS_TEMP_NAME_SZ], int *fd,
		       struct err *err);

#endif
