/* meta/ledger/ledger_sandbox.c - sandbox history */
#include <errno.h>

#include "meta/ledger/ledger_i.h"
#include "meta/meta.h"

int meta_ledger_sandbox_add(struct meta_ledger *l, const struct meta_sandbox_row *row,
			    struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_SANDBOX, err);

	if (!stmt)
		return meta_ledger_errno(sqlite3_errcode(l->db));
	(void)sqlite3_bind_text(stmt, 1, row->id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 2, row->created_ns);
	(void)sqlite3_bind_text(stmt, 3, row->root, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 4, row->state, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 5, row->finished_ns);
	(void)sqlite3_bind_int(stmt, 6, row->exit_code);
	return meta_ledger_run(l, stmt, "record a sandbox", err);
}
