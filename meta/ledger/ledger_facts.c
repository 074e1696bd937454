/* meta/ledger/ledger_facts.c - what is known of one blob, and of a sandbox that was */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/err.h"
#include "meta/ledger/ledger_i.h"
#include "meta/ledger/queue.h"
#include "meta/meta_i.h"

static int unprepared(struct meta_ledger *l)
{
	return meta_ledger_errno(sqlite3_errcode(l->db));
}

int meta_ledger_blob_came(struct meta_ledger *l, const struct cas_digest *digest,
			  const char *source, int64_t when_ns, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_SOURCE, err);
	int ret;

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_text(stmt, 1, source, -1, SQLITE_STATIC);
	ret = meta_ledger_run(l, stmt, "record a source", err);
	if (ret < 0)
		return ret;
	stmt = meta_ledger_stmt(l, META_STMT_CAME, err);
	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_blob(stmt, 1, digest->hash, CAS_HASH_SZ, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 2, source, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, when_ns);
	return meta_ledger_run(l, stmt, "record where a blob came from", err);
}

/* A copy of a column of text; NULL when it has none, or no memory (*ret). */
static char *column_text(sqlite3_stmt *stmt, int i, int *ret)
{
	const unsigned char *text = sqlite3_column_text(stmt, i);
	char *copy = text ? strdup((const char *)text) : NULL;

	if (text && !copy)
		*ret = -ENOMEM;
	return copy;
}

/* 1: @stmt stands at a row; 0: there is none. Reset it afterwards. */
static int first_row(struct meta_ledger *l, sqlite3_stmt *stmt, const char *what, struct err *err)
{
	int rc = sqlite3_step(stmt);

	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		return rc == SQLITE_ROW;
	return meta_ledger_fail(l, rc, what, err);
}

static void done(sqlite3_stmt *stmt)
{
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
}

int meta_ledger_blob_facts(struct meta_ledger *l, const uint8_t hash[CAS_HASH_SZ],
			   struct meta_blob_facts *out, struct err *err)
{
	/* A reader may meet a ledger that no writer of this version has opened yet. */
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_FACTS, l->writer ? err : NULL);
	struct meta_blob_facts got = {0};
	int ret;

	if (!stmt)
		return l->writer ? unprepared(l) : 0;
	(void)sqlite3_bind_blob(stmt, 1, hash, CAS_HASH_SZ, SQLITE_STATIC);
	ret = first_row(l, stmt, "look for a blob", err);
	if (ret == 1) {
		got.size = (uint64_t)sqlite3_column_int64(stmt, 0);
		got.disk = (uint64_t)sqlite3_column_int64(stmt, 1);
		got.last_use_ns = sqlite3_column_int64(stmt, 2);
		got.created_ns = sqlite3_column_int64(stmt, 3);
		got.source = column_text(stmt, 4, &ret);
		got.came_ns = sqlite3_column_int64(stmt, 5);
	}
	done(stmt);
	if (ret == 1)
		*out = got;
	return ret;
}

int meta_ledger_sandbox_find(struct meta_ledger *l, const char *id, struct meta_sandbox_facts *out,
			     struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_SANDBOX_FIND, err);
	struct meta_sandbox_facts got = {0};
	int ret;

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_text(stmt, 1, id, -1, SQLITE_STATIC);
	ret = first_row(l, stmt, "look for a sandbox", err);
	if (ret == 1) {
		got.root = column_text(stmt, 0, &ret);
		got.state = column_text(stmt, 1, &ret);
		got.created_ns = sqlite3_column_int64(stmt, 2);
		got.finished_ns = sqlite3_column_int64(stmt, 3);
		got.exit_code = sqlite3_column_int(stmt, 4);
	}
	done(stmt);
	if (ret == 1)
		*out = got;
	else
		meta_sandbox_facts_fini(&got);
	return ret;
}

/* What was queued before is in the ledger, if that is ours to write. */
static void settle(struct meta *meta)
{
	if (meta->queue && meta->opts.mode == META_WRITER)
		(void)meta_queue_flush(meta->queue, NULL);
}

int meta_blob_facts(struct meta *meta, const struct cas_digest *digest, struct meta_blob_facts *out,
		    struct err *err)
{
	struct meta_ledger *ledger;
	int ret = 0;

	settle(meta);
	lock_take(&meta->ledger_lock);
	ledger = meta_ledger_get_locked(meta);
	if (ledger)
		ret = meta_ledger_blob_facts(ledger, digest->hash, out, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

void meta_blob_facts_fini(struct meta_blob_facts *facts)
{
	free(facts->source);
	*facts = (struct meta_blob_facts){0};
}

int meta_sandbox_find(struct meta *meta, const char *id, struct meta_sandbox_facts *out,
		      struct err *err)
{
	struct meta_ledger *ledger;
	int ret = 0;

	settle(meta);
	lock_take(&meta->ledger_lock);
	ledger = meta_ledger_get_locked(meta);
	if (ledger)
		ret = meta_ledger_sandbox_find(ledger, id, out, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

void meta_sandbox_facts_fini(struct meta_sandbox_facts *facts)
{
	free(facts->root);
	free(facts->state);
	*facts = (struct meta_sandbox_facts){0};
}
