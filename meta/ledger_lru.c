/* meta/ledger_lru.c - sizes, last use, victims */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cas/base/err.h"
#include "meta/ledger_i.h"

static int64_t real_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Unique and growing, whatever the clock does: the order of uses is the order of rows. */
static int64_t next_use(struct meta_ledger *l)
{
	int64_t now = real_now_ns();

	l->clock_ns = now > l->clock_ns ? now : l->clock_ns + 1;
	return l->clock_ns;
}

/* The statement with the hash bound as ?1. */
static sqlite3_stmt *stmt_for(struct meta_ledger *l, enum meta_stmt which,
			      const struct cas_digest *digest, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, which, err);

	if (stmt)
		(void)sqlite3_bind_blob(stmt, 1, digest->hash, CAS_HASH_SZ, SQLITE_STATIC);
	return stmt;
}

static int unprepared(struct meta_ledger *l)
{
	return meta_ledger_errno(sqlite3_errcode(l->db));
}

int meta_ledger_blob_add(struct meta_ledger *l, const struct cas_digest *digest, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_ADD, digest, err);
	int64_t now;

	if (!stmt)
		return unprepared(l);
	now = next_use(l);
	(void)sqlite3_bind_int64(stmt, 2, (int64_t)digest->size);
	(void)sqlite3_bind_int64(stmt, 3, now);
	(void)sqlite3_bind_int64(stmt, 4, now);
	return meta_ledger_run(l, stmt, "add a blob", err);
}

int meta_ledger_blob_touch(struct meta_ledger *l, const struct cas_digest *digest, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_TOUCH, digest, err);

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_int64(stmt, 2, next_use(l));
	return meta_ledger_run(l, stmt, "touch a blob", err);
}

int meta_ledger_blob_drop(struct meta_ledger *l, const struct cas_digest *digest, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_DROP, digest, err);

	if (!stmt)
		return unprepared(l);
	return meta_ledger_run(l, stmt, "drop a blob", err);
}

int meta_ledger_blob_adopt(struct meta_ledger *l, const struct cas_digest *digest,
			   int64_t last_use_ns, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_ADOPT, digest, err);
	int64_t now = real_now_ns();

	if (!stmt)
		return unprepared(l);
	if (last_use_ns > now)
		last_use_ns = now;
	if (last_use_ns > l->clock_ns)
		l->clock_ns = last_use_ns;
	(void)sqlite3_bind_int64(stmt, 2, (int64_t)digest->size);
	(void)sqlite3_bind_int64(stmt, 3, last_use_ns);
	(void)sqlite3_bind_int64(stmt, 4, last_use_ns);
	return meta_ledger_run(l, stmt, "adopt a blob", err);
}

int meta_ledger_blob_resize(struct meta_ledger *l, const struct cas_digest *digest, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_RESIZE, digest, err);

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_int64(stmt, 2, (int64_t)digest->size);
	return meta_ledger_run(l, stmt, "resize a blob", err);
}

/* The columns hash and size; false: a row that no writer of ours made. */
static bool column_digest(sqlite3_stmt *stmt, struct cas_digest *out)
{
	const void *hash = sqlite3_column_blob(stmt, 0);

	if (!hash || sqlite3_column_bytes(stmt, 0) != CAS_HASH_SZ)
		return false;
	memcpy(out->hash, hash, CAS_HASH_SZ);
	out->size = (uint64_t)sqlite3_column_int64(stmt, 1);
	return true;
}

int meta_ledger_blob_each(struct meta_ledger *l,
			  int (*each)(void *ctx, const struct cas_digest *digest), void *ctx,
			  struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_EACH, err);
	struct cas_digest digest;
	int rc, ret = 0;

	if (!stmt)
		return unprepared(l);
	while (ret == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (column_digest(stmt, &digest))
			ret = each(ctx, &digest);
	}
	if (ret == 0 && rc != SQLITE_DONE)
		ret = meta_ledger_fail(l, rc, "list blobs", err);
	(void)sqlite3_reset(stmt);
	return ret;
}

int meta_ledger_recount(struct meta_ledger *l, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_RECOUNT, err);

	if (!stmt)
		return unprepared(l);
	return meta_ledger_run(l, stmt, "count blobs", err);
}

int meta_ledger_totals(struct meta_ledger *l, uint64_t *blobs, uint64_t *bytes, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_TOTALS, err);
	int rc, ret = 0;

	if (!stmt)
		return unprepared(l);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		*blobs = (uint64_t)sqlite3_column_int64(stmt, 0);
		*bytes = (uint64_t)sqlite3_column_int64(stmt, 1);
	} else if (rc == SQLITE_DONE) {
		ret = err_set(err, -EUCLEAN, "ledger %s has no totals", l->path);
	} else {
		ret = meta_ledger_fail(l, rc, "read the totals", err);
	}
	(void)sqlite3_reset(stmt);
	return ret;
}

/* What is left of the rows that @stmt gives, at most @max; resets it. */
static int take_victims(struct meta_ledger *l, sqlite3_stmt *stmt, const char *what,
			struct cas_victim *out, int max, struct err *err)
{
	int rc = SQLITE_DONE, nr = 0, ret = 0;

	while (nr < max && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (!column_digest(stmt, &out[nr].digest))
			continue;
		out[nr++].last_use_ns = sqlite3_column_int64(stmt, 2);
	}
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		ret = meta_ledger_fail(l, rc, what, err);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return ret < 0 ? ret : nr;
}

int meta_ledger_victims(struct meta_ledger *l, const struct cas_victim *after,
			struct cas_victim *out, int max, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_VICTIMS, err);
	static const uint8_t lowest[1];

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_int64(stmt, 1, after ? after->last_use_ns : INT64_MIN);
	(void)sqlite3_bind_blob(stmt, 2, after ? after->digest.hash : lowest,
				after ? CAS_HASH_SZ : 0, SQLITE_STATIC);
	(void)sqlite3_bind_int(stmt, 3, max);
	return take_victims(l, stmt, "list victims", out, max, err);
}

int meta_ledger_tree_touch(struct meta_ledger *l, const struct cas_digest *root, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_TREE_TOUCH, root, err);

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_int64(stmt, 2, (int64_t)root->size);
	(void)sqlite3_bind_int64(stmt, 3, next_use(l));
	return meta_ledger_run(l, stmt, "touch a tree", err);
}

int meta_ledger_trees(struct meta_ledger *l, int64_t after_ns, struct cas_victim *out, int max,
		      struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_TREES, l->writer ? err : NULL);

	/* A ledger that no writer of this version has opened yet knows of none. */
	if (!stmt)
		return l->writer ? unprepared(l) : 0;
	(void)sqlite3_bind_int64(stmt, 1, after_ns);
	(void)sqlite3_bind_int(stmt, 2, max);
	return take_victims(l, stmt, "list trees", out, max, err);
}
