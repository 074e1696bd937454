/* cas/store/store.h - the local blob store */
#ifndef CAS_STORE_STORE_H
#define CAS_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "cas/catalog.h"
#include "cas/digest.h"

struct buf;
struct err;
struct cas_store; /* any number of threads may use one */

enum cas_durability { CAS_DURABILITY_NONE, CAS_DURABILITY_BATCH, CAS_DURABILITY_FULL };

struct cas_store_options {
	const char *path;  /* STORE; made absolute and resolved once */
	const char *blobs; /* where cas/ and ac/ are; NULL: in STORE */
	bool create;	   /* make it when missing or empty */
	enum cas_durability durability;
};

/*
 * Open, and create when asked. A store that cannot be written (read-only filesystem,
 * no permission) opens for reading; cas_store_is_read_only tells.
 * -ENOENT: no store there and @create is false. -ENOTEMPTY: a directory that holds
 * something and no VERSION. -EPROTONOSUPPORT: VERSION of another format or function.
 * -EPERM: owned by another user and not root's. -ENOTDIR, -EACCES as usual.
 */
int cas_store_open(const struct cas_store_options *opts, struct cas_store **out, struct err *err);
void cas_store_close(struct cas_store *store);

/*
 * Only where it is, whose and of which format, as cas_store_open finds it: nothing is made,
 * locked or opened but the directory. For cas_checkout_kept and meta_uses_*, which need no
 * more; ends with cas_store_unreach. Errors as above; -ENOENT also without a VERSION.
 */
int cas_store_reach(const char *path, struct cas_store **out, struct err *err);
void cas_store_unreach(struct cas_store *store);

/* Attach index and ledger; before any other thread uses the store. Not owned. */
void cas_store_set_catalog(struct cas_store *store, const struct cas_catalog *catalog);
const struct cas_catalog *cas_store_catalog(const struct cas_store *store);

bool cas_store_is_read_only(const struct cas_store *store);
/* Blobs are where others put, use and remove them, too, and nobody owns the place. */
bool cas_store_is_adopted(const struct cas_store *store);
const char *cas_store_path(const struct cas_store *store); /* absolute, no symlinks */
int cas_store_dir_fd(const struct cas_store *store);	   /* STORE; borrowed */
enum cas_durability cas_store_durability(const struct cas_store *store);

/* Puts by this process so far; one that found its blob there wrote nothing. */
struct cas_store_counts {
	uint64_t nr_puts; /* that wrote, */
	uint64_t put_bytes;
	uint64_t nr_known; /* that did not */
};
void cas_store_counts(struct cas_store *store, struct cas_store_counts *out);

/*
 * Is the blob there, with the right size? 1, 0, or negative errno. The empty blob
 * always is, and no file is looked at. Does not hash and does not touch.
 */
int cas_store_has(struct cas_store *store, const struct cas_digest *digest);

/*
 * Blocks of 512 bytes that the blob's file takes: 1, or 0 when that is not to be had
 * quickly (not there, or in a blob directory of its own).
 */
int cas_store_blocks(struct cas_store *store, const struct cas_digest *digest, uint64_t *blocks);

/* Fill in the size of a blob of which only the hash is known. 1, 0 (unknown), negative. */
int cas_store_resolve(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ],
		      struct cas_digest *out);

/*
 * Open a blob for reading; the caller closes *fd. Its bytes are right: the stamp is as
 * recorded, or the file was hashed just now. Counts as a use.
 * -ENOENT: in no tier (also: that hash exists with another size). -EBADMSG: the file
 * there did not hash to its name; it was moved aside and is absent from now on.
 * With tiers (cas/fetch/fetch.h) this waits for them, and fails as cas_fetch_wait, too. A
 * failure that another look at a tier may mend is told by cas_err_missing.
 */
int cas_store_open_blob(struct cas_store *store, const struct cas_digest *digest, int *fd,
			struct err *err);

/*
 * Somebody needed the blob, by a tree that names it, and could not have it: in this
 * process, and only the latest are remembered. Nothing depends on it: the next who comes
 * looks again.
 */
void cas_store_note_missed(struct cas_store *store, const struct cas_digest *digest);
/* Those at or after @since_ns (CLOCK_REALTIME), each once; the count. */
#define CAS_STORE_MISSED_MAX 64
size_t cas_store_missed_since(struct cas_store *store, int64_t since_ns,
			      struct cas_digest out[CAS_STORE_MISSED_MAX]);

/* Append a whole blob to @out; -EFBIG above @max bytes, else as cas_store_open_blob. */
int cas_store_read_blob(struct cas_store *store, const struct cas_digest *digest, size_t max,
			struct buf *out, struct err *err);

/*
 * A file to hardlink for a checkout: mode 0444 or 0555, content of @digest, never the
 * blob itself; made on first use without a writable descriptor of it ever being open
 * in a process that may fork. *dir_fd is borrowed, @name is relative to it. That it is
 * used is the caller's to tell the catalog.
 */
int cas_store_link_variant(struct cas_store *store, const struct cas_digest *digest,
			   bool executable, int *dir_fd, char name[72], struct err *err);

/* ac/: raw ActionResult bytes by action digest, published like blobs. get: -ENOENT. */
int cas_store_action_put(struct cas_store *store, const struct cas_digest *action, const void *data,
			 size_t len, struct err *err);
int cas_store_action_get(struct cas_store *store, const struct cas_digest *action, struct buf *out,
			 struct err *err);

/* A result, by the hash of its action, and when it was stored. */
struct cas_action_age {
	uint8_t hash[CAS_HASH_SZ];
	int64_t mtime_ns;
};

/* At most @max of them, the newest first. Looks at every result, and reads none. */
int cas_store_action_newest(struct cas_store *store, struct cas_action_age *out, size_t max,
			    size_t *nr, struct err *err);

/*
 * Make every blob published so far as durable as the store was opened for (batch: one
 * syncfs), and hand over their rows. Called before puts are acknowledged; after, and in
 * the background, for outputs of sandboxes, which survive SIGKILL of any process anyhow.
 */
int cas_store_sync(struct cas_store *store, struct err *err);

/*
 * The writer's lock, byte 0 (OFD, so never inherited): held while index or ledger are
 * written, for life by a daemon. Waits @wait_ms (0: not at all, -1: for ever).
 * -EBUSY: another holds it, in this process or another. -EROFS: a read-only store.
 */
int cas_store_writer_lock(struct cas_store *store, int wait_ms, struct err *err);
void cas_store_writer_unlock(struct cas_store *store);

/*
 * The shard's lock, publish (shared) against evict (exclusive), in this process and
 * across processes. -EBUSY: it is held and @wait is false, or another process has kept
 * it for two seconds (it was stopped, most likely).
 */
int cas_store_shard_lock(struct cas_store *store, unsigned shard, bool exclusive, bool wait);
void cas_store_shard_unlock(struct cas_store *store, unsigned shard, bool exclusive);

/* One blob file as a walk finds it; @digest.size is the file's size. */
struct cas_store_blob {
	struct cas_digest digest;
	struct cas_stamp stamp;
	uint64_t blocks; /* units of 512 bytes */
	uint32_t mode;
};

/*
 * Call @each for every blob file, and @foreign (may be NULL) for every name that is
 * none (temporaries of ours excluded). A non-zero return stops and is returned.
 * Names that vanish meanwhile are no error.
 */
int cas_store_walk_shard(struct cas_store *store, unsigned shard,
			 int (*each)(void *ctx, const struct cas_store_blob *blob), void *ctx,
			 struct err *err);
/* The names alone, without a stat where the directory tells what is a file. */
int cas_store_list_shard(struct cas_store *store, unsigned shard,
			 int (*each)(void *ctx, const uint8_t hash[CAS_HASH_SZ]), void *ctx,
			 struct err *err);
/* The same for one blob: 1, 0 not there, or negative. */
int cas_store_look(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ],
		   struct cas_store_blob *out);
int cas_store_walk(struct cas_store *store,
		   int (*each)(void *ctx, const struct cas_store_blob *blob),
		   int (*foreign)(void *ctx, const char *path), void *ctx, struct err *err);

#endif
