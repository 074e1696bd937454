/* meta/meta_i.h - the object behind meta.h */
#ifndef META_META_I_H
#define META_META_I_H

#include <stdatomic.h>

#include "cas/base/lock.h"
#include "cas/catalog.h"
#include "meta/meta.h"

struct meta_dirs;
struct meta_index;
struct meta_ledger;
struct meta_queue;
struct meta_row;

/*
 * WRITER has all parts. CLIENT and READER open index and ledger for reading when they are
 * first asked for, and go without where that fails; READER has no queue.
 */
struct meta {
	struct cas_store *store;
	struct meta_options opts;
	struct cas_catalog catalog;
	struct lock index_lock;	  /* held while the index is opened late */
	_Atomic bool index_tried; /* pairs with itself: then index is what it stays */
	struct meta_index *index; /* WRITER: this; others: meta_index_of */
	struct meta_dirs *dirs;
	struct meta_queue *queue;
	/* Rows may be missing; goes to the ledger's state at close. */
	_Atomic bool needs_reconcile;
	bool unanswered; /* CLIENT: rows were sent without '!'; the queue's thread only */
	/* Guards the connection, and the index's write transaction. */
	struct lock ledger_lock;
	struct meta_ledger *ledger GUARDED_BY(ledger_lock);
	bool ledger_tried GUARDED_BY(ledger_lock);
};

/* meta/ledger/catalog_ledger.c */
extern const struct cas_catalog_ops meta_catalog_ops;

/* meta/ledger/record.c: meta_queue_ops.write of a WRITER and of a CLIENT; the former is also for
 * reconcile. */
int meta_record_write(void *ctx, const struct meta_row *rows, bool flush, struct err *err);
int meta_record_send(void *ctx, const struct meta_row *rows, bool flush, struct err *err);

/* The index for reading; NULL: there is none. */
struct meta_index *meta_index_of(struct meta *meta);

/* The ledger for reading; NULL: there is none. */
struct meta_ledger *meta_ledger_get_locked(struct meta *meta) REQUIRES(meta->ledger_lock);
int meta_ledger_open_locked(struct meta *meta, struct err *err) REQUIRES(meta->ledger_lock);

/*
 * meta/uses_leave.c: the file of the store, with a lock on it; O_CREAT in @flags makes it.
 * 0 and *out, -ENOENT without O_CREAT, or another errno.
 */
#define META_USES_PATH "run/uses"
#define META_USES_MAX  (1 << 20)
int meta_uses_open(int store_fd, int flags, int *out);

/* meta/uses.c: a WRITER queues what was left with meta_uses_leave. */
void meta_uses_take(struct meta *meta);

struct meta_packed;

/* meta/index/dirs.c */
int meta_dirs_new(struct meta_dirs **out);
void meta_dirs_free(struct meta_dirs *dirs);
/* The index has it now: it need not be kept in memory. */
void meta_dirs_recorded(struct meta_dirs *dirs, const struct cas_digest *digest);
/* All of a directory, checked, for as long as the caller holds it; unref it. As
 * meta_dir_find. */
int meta_dirs_get(struct meta *meta, const struct cas_digest *digest, struct meta_packed **out,
		  struct err *err);
/* meta_dir_info without a look at the store: 1, or 0 when it is not known without. */
int meta_dirs_info_known(struct meta *meta, const struct cas_digest *dir, struct meta_dirinfo *out);

#endif
