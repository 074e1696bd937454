/* cas/store/store_i.h - what the files of the store share */
#ifndef CAS_STORE_STORE_I_H
#define CAS_STORE_STORE_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cas/base/lock.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"

struct buf;
struct cas_fetch;
struct cas_landings;
struct cas_outbox;
struct cas_spool;
struct cas_tmp_pool;
struct err;
struct pending; /* store_sync.c */

#define CAS_BLOB_MODE	 0444
#define CAS_STORE_ID_LEN 16
/* 2000-01-01T00:00:00Z, the time of everything that has none of its own. */
#define CAS_EPOCH_SEC 946684800

/* Temporaries and quarantined files live in shards, under these first letters. */
#define CAS_TMP_PREFIX ".tmp-"
#define CAS_BAD_PREFIX ".bad-"
/* "HH/" and ".bad-", 64 digits, "-", 16 digits, NUL */
#define CAS_SHARD_NAME_SZ 96

/*
 * One shard's lock. OFD locks do not conflict within one open file description, so
 * threads agree here first; the first of them in takes the file's lock and the last out
 * drops it. @lock is only held for a moment, never while waiting for another process.
 */
struct cas_shard {
	struct lock lock;
	pthread_cond_t changed;
	int nr_shared GUARDED_BY(lock);
	bool exclusive GUARDED_BY(lock);
	bool moving GUARDED_BY(lock); /* a thread is at the file's lock, without @lock */
};

struct cas_store {
	char *path;
	int dir_fd;
	int cas_fd; /* with blobs elsewhere, the spool may put another directory under it */
	int ac_fd;
	int link_fd[2]; /* links/0444, links/0555; -1 when missing and read-only */
	int lock_fd;	/* -1 when missing and read-only */
	bool read_only;
	enum cas_durability durability;
	uid_t owner; /* of STORE; new files are given to it when we are root */
	gid_t group;
	dev_t cas_dev; /* what syncfs(cas_fd) covers */

	/* Blobs elsewhere (store_place.c, spool.c); otherwise NULL, empty, -1. */
	char *blobs_path;
	char id[CAS_STORE_ID_LEN + 1]; /* of STORE/id */
	int spool_fd;
	struct cas_spool *spool;  /* NULL: puts do not go through it */
	bool owned;		  /* DIR/owner names a store; */
	bool barred;		  /* cas_evict_bar was called; its caller's thread alone looks */
	bool may_unlink;	  /* this one, or there is none. True without blobs elsewhere */
	_Atomic bool spool_dirty; /* accepted since the last sync */

	/* What cas_store_counts tells, by relaxed additions. */
	_Atomic uint64_t nr_puts;
	_Atomic uint64_t put_bytes;
	_Atomic uint64_t nr_put_known;

	const struct cas_catalog *catalog;
	struct cas_fetch *fetch;       /* NULL: no tiers */
	struct cas_outbox *outbox;     /* NULL: none that is written to */
	struct cas_tmp_pool *tmps;     /* NULL: none is kept */
	struct cas_landings *landings; /* NULL: this process does not serve; cas/landing */
	struct cas_shard shards[CAS_LAYOUT_NR_SHARDS];

	struct lock writer_lock; /* a leaf */
	bool writer_held GUARDED_BY(writer_lock);

	struct lock links_lock;
	bool links_ready GUARDED_BY(links_lock); /* left-overs of another boot are gone */

	struct lock sync_lock; /* held for a whole sync: who comes second waits for the first */
	_Atomic bool dirty;    /* published since the last sync began */
	struct lock pending_lock;
	struct pending *pending GUARDED_BY(pending_lock);
	unsigned nr_pending GUARDED_BY(pending_lock);

	struct lock missed_lock; /* a leaf */
	struct cas_missed {
		struct cas_digest digest;
		int64_t when_ns; /* CLOCK_REALTIME; 0: none */
	} missed[CAS_STORE_MISSED_MAX] GUARDED_BY(missed_lock);
};

/* For puts: a blob is published, or was found to be there. */
void cas_store_count_put(struct cas_store *store, const struct cas_digest *digest, bool known);

int cas_store_locks_init(struct cas_store *store);
void cas_store_locks_fini(struct cas_store *store);

/* Read and compare VERSION: 0, -ENOENT, -EPROTONOSUPPORT, or another errno. */
int cas_store_check_version(struct cas_store *store, struct err *err);

/* Resolve @path to an absolute one without symlinks and open it, making it when asked. */
int cas_store_open_dir(const char *path, bool create, char **real, int *fd, struct err *err);
/* Whose the store is: -EPERM when it is another user's, read_only when it is root's. */
int cas_store_check_owner(struct cas_store *store, struct err *err);

/* Make a directory with this mode whatever the umask, owned as the store; there is fine. */
int cas_store_mkdir(const struct cas_store *store, int dir_fd, const char *name, mode_t mode);

/* Whose DIR is (ours when it has no cas/ and no owner yet), and what this store is called. */
int cas_store_settle_owner(struct cas_store *store, int blobs_fd, struct err *err);
/* After a failure there: the path may lead to another directory by now (a new mount). */
void cas_store_reopen_blobs(struct cas_store *store);

/* cas_store_sync for the blob directory, when puts end in the spool. */
int cas_store_sync_blobs(struct cas_store *store, struct err *err);

/* Give a new file its mode and the store's owner. */
int cas_store_dress(const struct cas_store *store, int fd, mode_t mode);

/* fsync the shard's directory below @top_fd. */
int cas_shard_sync(int top_fd, const uint8_t hash[CAS_HASH_SZ]);

void cas_stamp_of(const struct stat *st, struct cas_stamp *out);
/* Is the file as it was when its bytes were hashed to @digest? */
bool cas_stamp_known(struct cas_store *store, const struct cas_digest *digest,
		     const struct stat *st);
bool cas_stamp_equal(const struct cas_stamp *a, const struct cas_stamp *b);

/*
 * Look at the file under the blob's name. 0: its bytes are right (by stamp, or hashed
 * just now); *fd (may be NULL) is open for reading then. -ENOENT: nothing there, or
 * right bytes of another size. -EBADMSG: something wrong was there and was moved aside
 * (left where it is when the store is read-only). Holds no lock of the store.
 */
int cas_blob_check(struct cas_store *store, const struct cas_digest *digest, int *fd,
		   struct err *err);

/* Stat the blob's file in cas/, where it is brought now if it has landed. Negative errno. */
int cas_blob_stat(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ], struct stat *st);

/* As cas_store_read_blob, but this counts as no use of the blob. */
int cas_blob_peek(struct cas_store *store, const struct cas_digest *digest, size_t max,
		  struct buf *out, struct err *err);

/* cas_store_open_blob without a look at the tiers. */
int cas_store_open_here(struct cas_store *store, const struct cas_digest *digest, int *fd,
			struct err *err);

/*
 * Move @top_fd/HH/NAME aside when it still is inode @ino (0: whatever it is). The name
 * is free afterwards unless somebody published meanwhile. 1: moved. 0: it is another file
 * by now, left where it is. -ENOENT: nothing to move.
 */
int cas_quarantine(struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ], ino_t ino);

/*
 * Rows of published blobs wait here until the bytes are as durable as configured.
 * find: 1 and *stamp, 0. add also marks the store as having something to sync, and
 * returns 1 when it is time for one.
 */
int cas_pending_find(struct cas_store *store, const struct cas_digest *digest,
		     struct cas_stamp *stamp);
int cas_pending_add(struct cas_store *store, const struct cas_digest *digest,
		    const struct cas_stamp *stamp);
void cas_pending_drop(struct cas_store *store, const struct cas_digest *digest);

/* How long what was found damaged is kept aside, unless its space is needed. */
#define CAS_BAD_AGE_SEC (2 * 86400)

enum cas_walk_kind {
	CAS_WALK_ENTRY,	     /* a regular file named by a hash of its shard */
	CAS_WALK_WRONG_TYPE, /* such a name, but no regular file */
	CAS_WALK_TMP,
	CAS_WALK_BAD,
	CAS_WALK_FOREIGN,
};

/* @path is relative to STORE (or to where cas/ and ac/ are); @hash only for the first two. */
struct cas_walk_item {
	enum cas_walk_kind kind;
	int shard_fd;
	const char *name;
	const char *path;
	uint8_t hash[CAS_HASH_SZ];
	struct stat st;
};

typedef int (*cas_walk_fn)(void *ctx, const struct cas_walk_item *item);

/*
 * All of one shard below @top_fd, which messages call @top; then (or only) the names
 * beside the shards. Non-zero from @each stops and is returned. Foreign names inside
 * foreign directories are not looked at.
 */
int cas_walk_shard(int top_fd, const char *top, unsigned shard, cas_walk_fn each, void *ctx,
		   struct err *err);
/* The same without the entries, which costs no look at each of them. */
int cas_walk_extras(int top_fd, const char *top, unsigned shard, cas_walk_fn each, void *ctx,
		    struct err *err);
int cas_walk_beside(int top_fd, const char *top, cas_walk_fn each, void *ctx, struct err *err);

/* The result that @fd holds, appended. -ENOENT: it is empty. -EUCLEAN: no file for one. */
int cas_action_read(int fd, struct buf *out, struct stat *st);
/* A result below @top_fd, replacing what is there; synced only where each put is. */
int cas_action_write(struct cas_store *store, int top_fd, const struct cas_digest *action,
		     const void *data, size_t len);

/* Does this stat fit a variant of mode @mode and @size bytes, as we left it? */
bool cas_variant_intact(const struct cas_store *store, const struct stat *st, mode_t mode,
			uint64_t size);

/* Around the removal of blobs: keeps cas_evict_bar out, until cas_evict_unbar. -EBUSY: barred. */
int cas_store_lease_block(struct cas_store *store);
/* What cas_evict_bar takes; to be dropped in the same way. */
int cas_store_lease_share(struct cas_store *store, unsigned long long wait_ns);

#endif
