/* meta/meta.h - front door: index, ledger and the catalog made of them */
#ifndef META_META_H
#define META_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/catalog.h"
#include "meta/index/dirs.h"

struct cas_store;
struct err;

/*
 * The index (LMDB) and the ledger (SQLite) of one store. Open it after the last fork of
 * the process; no descriptor of it survives exec. Any thread.
 *
 * Who writes: a process in mode WRITER must hold cas_store_writer_lock while it has the
 * object open (a daemon: for life). In mode CLIENT rows go to @send, which hands them
 * to the daemon; READER drops them. Rows are queued and written in batches by a thread
 * of the object (WRITER) or sent in batches (CLIENT).
 */
struct meta;

enum meta_mode { META_READER, META_CLIENT, META_WRITER };

struct meta_options {
	enum meta_mode mode;
	int nr_readers; /* LMDB reader slots taken at once and kept; 0: 8 */
	/*
	 * CLIENT: deliver @len bytes of @rows (text without newline or NUL, at most
	 * 64 KiB, from meta_rows of this version) to the daemon. May block. 0 or negative.
	 */
	int (*send)(void *ctx, const char *rows, size_t len, struct err *err);
	void *send_ctx;
};

/*
 * Open or create meta/index and meta/ledger.db. Files of an unknown version or beyond
 * repair are set aside (renamed *.bad-N, logged) and made anew: everything in them can
 * be rebuilt by meta_reconcile. A missing meta/ in READER or CLIENT mode is no error.
 */
int meta_open(struct cas_store *store, const struct meta_options *opts, struct meta **out,
	      struct err *err);
/* Flushes what is queued. */
int meta_close(struct meta *meta, struct err *err);

/* What cas needs, implemented by this object; valid until meta_close. */
const struct cas_catalog *meta_catalog(struct meta *meta);

/*
 * WRITER: queue rows that a client sent, and wait for them where the client asked to (it
 * ends what it flushes with a '!'). -EINVAL: malformed, nothing is queued. May block.
 */
int meta_rows_apply(struct meta *meta, const char *rows, size_t len, struct err *err);

/*
 * Where no daemon serves: leave @rows, lines as they went to @send, to the next WRITER,
 * which reads them first. 1: done. 0: they hold more than uses, or there is too much of
 * it: become the writer. Needs no object and no lock.
 */
int meta_uses_leave(struct cas_store *store, const char *rows, size_t len, struct err *err);
/* The same for one use of the tree @root: what cas_catalog_ops.tree_touch would have sent. */
int meta_uses_leave_tree(struct cas_store *store, const struct cas_digest *root, struct err *err);
/* Is it likely that one more command can leave its uses? */
bool meta_uses_have_room(struct cas_store *store);

struct meta_stat {
	uint64_t blobs;
	uint64_t bytes;
	uint64_t disk;	      /* bytes of the blobs' blocks */
	uint64_t directories; /* packed directories in the index */
	bool from_walk;	      /* the ledger was missing: counted by walking cas/ */
};
int meta_stat(struct meta *meta, struct meta_stat *out, struct err *err);

/* Sandbox history, for `sandbox list --all` and explain; queued rows. */
struct meta_sandbox_row {
	const char *id;
	const char *root; /* digest text */
	const char *state;
	int64_t created_ns;  /* CLOCK_REALTIME */
	int64_t finished_ns; /* 0: not yet */
	int exit_code;
};
void meta_sandbox_record(struct meta *meta, const struct meta_sandbox_row *row);

/*
 * What the ledger knows of a blob: 1 and *out, 0: nothing. Rows on their way are waited for
 * where this object writes them. May block. End with meta_blob_facts_fini.
 */
struct meta_blob_facts {
	uint64_t size;
	uint64_t disk; /* bytes of blocks */
	int64_t last_use_ns;
	int64_t created_ns; /* when it was first recorded */
	char *source;	    /* the tier that it was brought from; NULL: none */
	int64_t came_ns;    /* and when */
};
int meta_blob_facts(struct meta *meta, const struct cas_digest *digest, struct meta_blob_facts *out,
		    struct err *err);
void meta_blob_facts_fini(struct meta_blob_facts *facts);

/* The last sandbox of that id in the history: 1 and *out, 0: there was none. As above. */
struct meta_sandbox_facts {
	char *root;
	char *state;
	int64_t created_ns;
	int64_t finished_ns;
	int exit_code;
};
int meta_sandbox_find(struct meta *meta, const char *id, struct meta_sandbox_facts *out,
		      struct err *err);
void meta_sandbox_facts_fini(struct meta_sandbox_facts *facts);

/*
 * Make index and ledger agree with the files: rows without a file are dropped, files
 * without a row are adopted (size by stat, last use = mtime, no stamp, so that the first
 * open hashes). WRITER only (-EPERM). @out may be NULL.
 */
struct meta_reconcile_result {
	uint64_t adopted;
	uint64_t dropped;
	uint64_t resized;
};
int meta_reconcile(struct meta *meta, struct meta_reconcile_result *out, struct err *err);

/*
 * The same by names alone, without looking at files that have a row: finds what a killed
 * put has not told of and what went by hand. Looks at everything where that is not enough.
 */
int meta_recount(struct meta *meta, struct meta_reconcile_result *out, struct err *err);
/* One shard, for who does a little at a time. */
int meta_recount_shard(struct meta *meta, unsigned shard, struct err *err);

/*
 * Rows may be missing: the databases are new in a store with blobs, the last writer did
 * not close, or rows were lost. A daemon then reconciles at start. False unless WRITER.
 */
bool meta_needs_reconcile(struct meta *meta);

/* Close idle readers that died, as mdb_reader_check; called by the daemon at start. */
int meta_clear_stale_readers(struct meta *meta);

#endif
