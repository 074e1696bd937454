/* meta/ledger/ledger.h - the SQLite ledger: what operators and eviction ask */
#ifndef META_LEDGER_LEDGER_H
#define META_LEDGER_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "cas/catalog.h"

struct err;
struct meta_blob_facts;
struct meta_sandbox_facts;
struct meta_sandbox_row;

/* One row of a blob. */
struct meta_ledger_blob {
	struct cas_digest digest;
	uint64_t disk; /* bytes of blocks */
	int64_t last_use_ns;
};

/*
 * One connection. Whoever calls holds the lock that guards it (meta.ledger_lock).
 * Writing is for the process that holds the store's writer lock. Codes: -EUCLEAN the
 * file is damaged; -EBUSY another process kept it locked beyond the timeout; -ENOSPC.
 */
struct meta_ledger;

struct meta_ledger_options {
	int store_fd; /* STORE; borrowed for the call */
	const char *store_path;
	bool writer;
};

/*
 * WRITER: open, create, migrate. *fresh: it was created, also in place of a damaged or
 * unknown one, or the last writer did not finish: rows may be missing. Reader: *out is
 * NULL and 0 returned when there is none that can be read.
 */
int meta_ledger_open(const struct meta_ledger_options *opts, struct meta_ledger **out, bool *fresh,
		     struct err *err);
/*
 * A writer checkpoints what is worth it. @clean: everything was recorded; the next open
 * is then not fresh. NULL is fine.
 */
int meta_ledger_close(struct meta_ledger *l, bool clean, struct err *err);

/* Before the first change: say durably that a writer is at work. Not inside begin. */
int meta_ledger_mark(struct meta_ledger *l, struct err *err);
int meta_ledger_begin(struct meta_ledger *l, struct err *err);
int meta_ledger_commit(struct meta_ledger *l, struct err *err);
/* After commit, or without begin, it does nothing. */
void meta_ledger_abort(struct meta_ledger *l);

/* A last use now: later than every one before, also when the clock was set back. */
int meta_ledger_blob_add(struct meta_ledger *l, const struct cas_digest *digest, uint64_t disk,
			 struct err *err);
int meta_ledger_blob_touch(struct meta_ledger *l, const struct cas_digest *digest, struct err *err);
int meta_ledger_blob_drop(struct meta_ledger *l, const struct cas_digest *digest, struct err *err);

/* For reconcile: a row as a file was found; a time in the future becomes now. */
int meta_ledger_blob_adopt(struct meta_ledger *l, const struct meta_ledger_blob *blob,
			   struct err *err);
/* It is as large as that, and was used then or later. */
int meta_ledger_blob_correct(struct meta_ledger *l, const struct meta_ledger_blob *blob,
			     struct err *err);
/*
 * Every row of a shard in order of hash; @each must not use the ledger; non-zero stops, is
 * returned.
 */
int meta_ledger_blob_each(struct meta_ledger *l, unsigned shard,
			  int (*each)(void *ctx, const struct meta_ledger_blob *blob), void *ctx,
			  struct err *err);
/* Count the totals anew from the rows. */
int meta_ledger_recount(struct meta_ledger *l, struct err *err);

int meta_ledger_totals(struct meta_ledger *l, struct cas_usage *out, struct err *err);
/* See cas_catalog_ops.victims. */
int meta_ledger_victims(struct meta_ledger *l, const struct cas_victim *after,
			struct cas_victim *out, int max, struct err *err);
/* See cas_catalog_ops.tree_touch and trees. A tree is forgotten with its root's row. */
int meta_ledger_tree_touch(struct meta_ledger *l, const struct cas_digest *root, struct err *err);
int meta_ledger_trees(struct meta_ledger *l, int64_t after_ns, struct cas_victim *out, int max,
		      struct err *err);
/* See cas_catalog_ops: spread, and trees_done. */
int meta_ledger_blob_used(struct meta_ledger *l, const struct cas_victim *use, struct err *err);
int meta_ledger_trees_done(struct meta_ledger *l, int64_t until_ns, struct err *err);

/* The blob was brought from @source at that time; its own row may come later. */
int meta_ledger_blob_came(struct meta_ledger *l, const struct cas_digest *digest,
			  const char *source, int64_t when_ns, struct err *err);
/* As meta_blob_facts and meta_sandbox_find: 1, 0 or negative. */
int meta_ledger_blob_facts(struct meta_ledger *l, const uint8_t hash[CAS_HASH_SZ],
			   struct meta_blob_facts *out, struct err *err);
int meta_ledger_sandbox_find(struct meta_ledger *l, const char *id, struct meta_sandbox_facts *out,
			     struct err *err);

int meta_ledger_sandbox_add(struct meta_ledger *l, const struct meta_sandbox_row *row,
			    struct err *err);

/* Move the write-ahead log into the file when it has grown; never waits for readers. */
int meta_ledger_checkpoint(struct meta_ledger *l, struct err *err);

#endif
