/* meta/ledger/ledger_i.h - the ledger as its own files see it */
#ifndef META_LEDGER_LEDGER_I_H
#define META_LEDGER_LEDGER_I_H

#include <sqlite3.h>

#include "meta/ledger/ledger.h"

/* Prepared when first used, kept until close. */
enum meta_stmt {
	META_STMT_BEGIN,
	META_STMT_COMMIT,
	META_STMT_ROLLBACK,
	META_STMT_SET_CLEAN,
	META_STMT_ADD,
	META_STMT_TOUCH,
	META_STMT_DROP,
	META_STMT_ADOPT,
	META_STMT_CORRECT,
	META_STMT_EACH,
	META_STMT_RECOUNT,
	META_STMT_TOTALS,
	META_STMT_VICTIMS,
	META_STMT_TREE_TOUCH,
	META_STMT_TREES,
	META_STMT_TREES_DONE,
	META_STMT_USED,
	META_STMT_SANDBOX,
	META_STMT_SANDBOX_FIND,
	META_STMT_SOURCE,
	META_STMT_CAME,
	META_STMT_FACTS,
	META_STMT_ORPHANS,
	META_STMT_NR,
};

struct meta_ledger {
	sqlite3 *db;
	sqlite3_stmt *stmts[META_STMT_NR];
	char *path;
	bool writer;
	bool wal;
	bool marked; /* the file says that a writer is at work */
	bool in_txn;
	int wal_pages;	  /* in the log, as of our last commit */
	int wal_tried;	  /* so many when it was checkpointed last */
	int64_t clock_ns; /* the latest last use of all; uses are handed out above it */
};

/* An SQLite code as a negative errno. */
int meta_ledger_errno(int rc);
/* Record what SQLite says about the last call on @l. */
int meta_ledger_fail(struct meta_ledger *l, int rc, const char *what, struct err *err);

/* NULL and *err filled in when it cannot be prepared. Reset by meta_ledger_done. */
sqlite3_stmt *meta_ledger_stmt(struct meta_ledger *l, enum meta_stmt which, struct err *err);
/* Run a bound statement that gives no rows, and reset it. */
int meta_ledger_run(struct meta_ledger *l, sqlite3_stmt *stmt, const char *what, struct err *err);
int meta_ledger_exec(struct meta_ledger *l, const char *sql, struct err *err);
/* The first column of the first row, or @otherwise when there is no row. */
int meta_ledger_int(struct meta_ledger *l, const char *sql, int64_t otherwise, int64_t *out,
		    struct err *err);

/* Is it ours and of a version that can be read? 1, 0: an empty file; -EUCLEAN: neither. */
int meta_ledger_schema_check(struct meta_ledger *l, struct err *err);
/* Bring an empty or older file up to this version. */
int meta_ledger_schema_migrate(struct meta_ledger *l, struct err *err);

#endif
