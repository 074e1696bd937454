/* meta/ledger/queue.h - rows on their way to index, ledger or daemon, and the thread that takes
 * them */
#ifndef META_LEDGER_QUEUE_H
#define META_LEDGER_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/catalog.h"
#include "meta/index/table_i.h"

struct err;
struct meta_packed;

enum meta_row_kind {
	META_ROW_BLOB,	  /* digest, has_stamp, stamp */
	META_ROW_TOUCH,	  /* digest */
	META_ROW_TREE,	  /* digest: of a root Directory */
	META_ROW_DROP,	  /* digest */
	META_ROW_FILE,	  /* digest, file */
	META_ROW_DIR,	  /* digest, dir */
	META_ROW_SANDBOX, /* sandbox; digest unused */
	META_ROW_CAME,	  /* digest, came */
};

/* Strings are owned by the row. */
struct meta_row_sandbox {
	char *id;
	char *root;
	char *state;
	int64_t created_ns;
	int64_t finished_ns;
	int exit_code;
};

/* Where a blob was brought from; the string is owned by the row. */
struct meta_row_came {
	char *source;
	int64_t when_ns;
};

/* @kind selects what is valid. Owned by the queue once pushed. */
struct meta_row {
	enum meta_row_kind kind;
	bool has_stamp;
	bool pending; /* in the queue's table; the queue's business */
	struct meta_row *next;
	UT_hash_handle hh;
	struct cas_digest digest;
	union {
		struct cas_stamp stamp;
		struct cas_file_id file;
		struct meta_packed *dir; /* counted */
		struct meta_row_sandbox sandbox;
		struct meta_row_came came;
	};
};

/* NULL: out of memory. */
struct meta_row *meta_row_new(enum meta_row_kind kind, const struct cas_digest *digest);
void meta_row_free(struct meta_row *row);

/*
 * First in, first out. Pushing never blocks and never fails: above a first bound touches
 * are dropped, above a second one everything is (and counted; flush then says so, and
 * the loser learns it through @lost). At most 2^20 rows and 64 MiB of directories.
 */
struct meta_queue;

struct meta_queue_ops {
	/*
	 * Record the list @rows (linked by next; may be NULL). @flush: somebody waits for
	 * everything so far. By one thread at a time, no lock held. A failure is logged.
	 */
	int (*write)(void *ctx, const struct meta_row *rows, bool flush, struct err *err);
	/* Rows were dropped or failed. Any thread, no lock held. */
	void (*lost)(void *ctx);
	void *ctx;
	/*
	 * There is a thread only when something is pushed that should not wait. What is
	 * written before that, in a flush or at the end, is written by who asks for it.
	 */
	bool late;
};

int meta_queue_new(const struct meta_queue_ops *ops, struct meta_queue **out, struct err *err);
/* Writes what is left first. NULL is fine. Nobody may push any more. */
void meta_queue_free(struct meta_queue *q);

/* Takes the row. NULL counts as a lost row. */
void meta_queue_push(struct meta_queue *q, struct meta_row *row);
/* The same for a row that may wait for the next one, a flush, or the end. */
void meta_queue_keep(struct meta_queue *q, struct meta_row *row);

/*
 * 0 when everything pushed before is recorded; the latest error when some was lost since a
 * flush last said so.
 */
int meta_queue_flush(struct meta_queue *q, struct err *err);

/*
 * What is queued about a blob and not recorded yet: 1 and its row's content, -ENOENT
 * when it is being dropped, 0 nothing.
 */
int meta_queue_blob_find(struct meta_queue *q, const uint8_t hash[CAS_HASH_SZ], bool *has_stamp,
			 struct cas_digest *digest, struct cas_stamp *stamp);

#endif
