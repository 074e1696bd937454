/* meta/ledger/ledger_lru.c - sizes, last use, victims */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cas/base/err.h"
#include "meta/ledger/ledger_i.h"

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

/* Size, disk and time as ?2, ?3 and ?4. */
static void bind_blob(sqlite3_stmt *stmt, uint64_t size, uint64_t disk, int64_t use_ns)
{
	(void)sqlite3_bind_int64(stmt, 2, (int64_t)size);
	(void)sqlite3_bind_int64(stmt, 3, (int64_t)disk);
	(void)sqlite3_bind_int64(stmt, 4, use_ns);
}

int meta_ledger_blob_add(struct meta_ledger *l, const struct cas_digest *digest, uint64_t disk,
			 struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_ADD, digest, err);

	if (!stmt)
		return unprepared(l);
	bind_blob(stmt, digest->size, disk, next_use(l));
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

/* A time that a file had: it is no use of later than now. */
static int64_t past_use(struct meta_ledger *l, int64_t use_ns)
{
	int64_t now = real_now_ns();

	if (use_ns > now)
		use_ns = now;
	if (use_ns > l->clock_ns)
		l->clock_ns = use_ns;
	return use_ns;
}

static int run_found(struct meta_ledger *l, enum meta_stmt which, const char *what,
		     const struct meta_ledger_blob *blob, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, which, &blob->digest, err);

	if (!stmt)
		return unprepared(l);
	bind_blob(stmt, blob->digest.size, blob->disk, past_use(l, blob->last_use_ns));
	return meta_ledger_run(l, stmt, what, err);
}

int meta_ledger_blob_adopt(struct meta_ledger *l, const struct meta_ledger_blob *blob,
			   struct err *err)
{
	return run_found(l, META_STMT_ADOPT, "adopt a blob", blob, err);
}

int meta_ledger_blob_correct(struct meta_ledger *l, const struct meta_ledger_blob *blob,
			     struct err *err)
{
	return run_found(l, META_STMT_CORRECT, "correct a blob", blob, err);
}

/* The columns hash, size, disk, last_use; false: a row that no writer of ours made. */
static bool column_blob(sqlite3_stmt *stmt, struct meta_ledger_blob *out)
{
	const void *hash = sqlite3_column_blob(stmt, 0);

	if (!hash || sqlite3_column_bytes(stmt, 0) != CAS_HASH_SZ)
		return false;
	memcpy(out->digest.hash, hash, CAS_HASH_SZ);
	out->digest.size = (uint64_t)sqlite3_column_int64(stmt, 1);
	out->disk = (uint64_t)sqlite3_column_int64(stmt, 2);
	out->last_use_ns = sqlite3_column_int64(stmt, 3);
	return true;
}

int meta_ledger_blob_each(struct meta_ledger *l, unsigned shard,
			  int (*each)(void *ctx, const struct meta_ledger_blob *blob), void *ctx,
			  struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_EACH, err);
	const uint8_t bounds[2] = {(uint8_t)shard, (uint8_t)(shard + 1)};
	struct meta_ledger_blob blob;
	int rc, ret = 0;

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_blob(stmt, 1, &bounds[0], 1, SQLITE_STATIC);
	if (bounds[1] != 0)
		(void)sqlite3_bind_blob(stmt, 2, &bounds[1], 1, SQLITE_STATIC);
	while (ret == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (column_blob(stmt, &blob))
			ret = each(ctx, &blob);
	}
	if (ret == 0 && rc != SQLITE_DONE)
		ret = meta_ledger_fail(l, rc, "list blobs", err);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return ret;
}

int meta_ledger_recount(struct meta_ledger *l, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_RECOUNT, err);
	int ret;

	if (!stmt)
		return unprepared(l);
	ret = meta_ledger_run(l, stmt, "count blobs", err);
	if (ret < 0)
		return ret;
	/* Of blobs that were never told of. */
	stmt = meta_ledger_stmt(l, META_STMT_ORPHANS, err);
	if (!stmt)
		return unprepared(l);
	return meta_ledger_run(l, stmt, "forget origins", err);
}

int meta_ledger_totals(struct meta_ledger *l, struct cas_usage *out, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_TOTALS, err);
	int rc, ret = 0;

	if (!stmt)
		return unprepared(l);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*out = (struct cas_usage){
			.blobs = (uint64_t)sqlite3_column_int64(stmt, 0),
			.bytes = (uint64_t)sqlite3_column_int64(stmt, 1),
			.disk = (uint64_t)sqlite3_column_int64(stmt, 2),
			.latest_ns = l->clock_ns,
		};
	else if (rc == SQLITE_DONE)
		ret = err_set(err, -EUCLEAN, "ledger %s has no totals", l->path);
	else
		ret = meta_ledger_fail(l, rc, "read the totals", err);
	(void)sqlite3_reset(stmt);
	return ret;
}

/* What is left of the rows that @stmt gives, at most @max; resets it. */
static int take_victims(struct meta_ledger *l, sqlite3_stmt *stmt, const char *what,
			struct cas_victim *out, int max, struct err *err)
{
	int rc = SQLITE_DONE, nr = 0, ret = 0;

	while (nr < max && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct meta_ledger_blob row;

		if (!column_blob(stmt, &row))
			continue;
		out[nr++] = (struct cas_victim){row.digest, row.last_use_ns, row.disk};
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

int meta_ledger_blob_used(struct meta_ledger *l, const struct cas_victim *use, struct err *err)
{
	sqlite3_stmt *stmt = stmt_for(l, META_STMT_USED, &use->digest, err);

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_int64(stmt, 2, use->last_use_ns);
	return meta_ledger_run(l, stmt, "record a use", err);
}

int meta_ledger_trees_done(struct meta_ledger *l, int64_t until_ns, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_TREES_DONE, err);

	if (!stmt)
		return unprepared(l);
	(void)sqlite3_bind_int64(stmt, 1, until_ns);
	return meta_ledger_run(l, stmt, "forget trees", err);
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
