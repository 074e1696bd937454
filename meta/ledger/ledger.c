/* meta/ledger/ledger.c - the SQLite connection: opening, damage, transactions, checkpoints */
/*
 * SQLite before 3.51.3 can lose pages when a checkpoint meets another connection's
 * reset of the write-ahead log. So automatic checkpoints are off everywhere, closing
 * never checkpoints (nor removes the log under a running daemon), and only the holder
 * of the store's writer lock checkpoints. On filesystems where the log's shared memory
 * is not coherent (network, FUSE) the rollback journal is used instead.
 *
 * The row state.clean is 0 from the first write of a writer, made durable before it,
 * until its close: a writer that was killed, or power that was lost, leaves a 0, and the
 * next writer reconciles. With synchronous=NORMAL the log survives a killed process, and
 * power loss takes away its end only.
 */
#include "meta/ledger/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "meta/index/files.h"
#include "meta/ledger/ledger_i.h"

#define LEDGER_PATH	     "meta/ledger.db"
#define BUSY_TIMEOUT_MS	     5000
#define WAL_CHECKPOINT_PAGES 1024
#define WAL_TRUNCATE_PAGES   16384
#define FUSE_MAGIC	     0x65735546
#define CIFS_MAGIC	     0xff534d42
#define SMB2_MAGIC	     0xfe534d42

int meta_ledger_errno(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EUCLEAN;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_CANTOPEN:
		return -EACCES;
	default:
		return -EIO;
	}
}

int meta_ledger_fail(struct meta_ledger *l, int rc, const char *what, struct err *err)
{
	return err_set(err, meta_ledger_errno(rc), "ledger %s: cannot %s: %s", l->path, what,
		       l->db ? sqlite3_errmsg(l->db) : sqlite3_errstr(rc));
}

static const char *const stmt_sql[META_STMT_NR] = {
	[META_STMT_BEGIN] = "BEGIN IMMEDIATE",
	[META_STMT_COMMIT] = "COMMIT",
	[META_STMT_ROLLBACK] = "ROLLBACK",
	[META_STMT_SET_CLEAN] = "UPDATE state SET clean = ?1",
	[META_STMT_ADD] = "INSERT INTO blob(hash, size, disk, last_use, created)"
			  " VALUES(?1, ?2, ?3, ?4, ?4) ON CONFLICT(hash) DO UPDATE SET"
			  " size = excluded.size, disk = excluded.disk,"
			  " last_use = excluded.last_use",
	[META_STMT_TOUCH] = "UPDATE blob SET last_use = ?2 WHERE hash = ?1",
	[META_STMT_DROP] = "DELETE FROM blob WHERE hash = ?1",
	[META_STMT_ADOPT] = "INSERT INTO blob(hash, size, disk, last_use, created)"
			    " VALUES(?1, ?2, ?3, ?4, ?4) ON CONFLICT DO NOTHING",
	[META_STMT_CORRECT] = "UPDATE blob SET size = ?2, disk = ?3, last_use = max(last_use, ?4)"
			      " WHERE hash = ?1",
	[META_STMT_EACH] = "SELECT hash, size, disk, last_use FROM blob"
			   " WHERE hash >= ?1 AND (?2 IS NULL OR hash < ?2) ORDER BY hash",
	[META_STMT_RECOUNT] = "UPDATE total SET (blobs, bytes, disk) ="
			      " (SELECT count(*), coalesce(sum(size), 0), coalesce(sum(disk), 0)"
			      " FROM blob)",
	[META_STMT_TOTALS] = "SELECT blobs, bytes, disk FROM total",
	[META_STMT_VICTIMS] = "SELECT hash, size, disk, last_use FROM blob"
			      " WHERE (last_use, hash) > (?1, ?2)"
			      " ORDER BY last_use, hash LIMIT ?3",
	[META_STMT_TREE_TOUCH] = "INSERT INTO tree VALUES(?1, ?2, ?3) ON CONFLICT(hash) DO UPDATE"
				 " SET size = excluded.size, last_use = excluded.last_use",
	[META_STMT_TREES_DONE] = "DELETE FROM tree WHERE last_use <= ?1",
	[META_STMT_USED] = "UPDATE blob SET last_use = ?2 WHERE hash = ?1 AND last_use < ?2",
	[META_STMT_TREES] = "SELECT hash, size, 0, last_use FROM tree WHERE last_use > ?1"
			    " ORDER BY last_use DESC LIMIT ?2",
	[META_STMT_SANDBOX] = "INSERT OR REPLACE INTO sandbox"
			      "(id, created, root, state, finished, exit_code)"
			      " VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
	[META_STMT_SANDBOX_FIND] = "SELECT root, state, created, finished, exit_code FROM sandbox"
				   " WHERE id = ?1 ORDER BY created DESC LIMIT 1",
	[META_STMT_SOURCE] = "INSERT OR IGNORE INTO source(name) VALUES(?1)",
	[META_STMT_CAME] = "INSERT OR REPLACE INTO origin(hash, source, came)"
			   " SELECT ?1, id, ?3 FROM source WHERE name = ?2",
	[META_STMT_FACTS] = "SELECT blob.size, blob.disk, blob.last_use, blob.created, source.name,"
			    " origin.came FROM blob LEFT JOIN origin ON origin.hash = blob.hash"
			    " LEFT JOIN source ON source.id = origin.source WHERE blob.hash = ?1",
	[META_STMT_ORPHANS] = "DELETE FROM origin WHERE hash NOT IN (SELECT hash FROM blob)",
};

sqlite3_stmt *meta_ledger_stmt(struct meta_ledger *l, enum meta_stmt which, struct err *err)
{
	if (!l->stmts[which]) {
		int rc = sqlite3_prepare_v3(l->db, stmt_sql[which], -1, SQLITE_PREPARE_PERSISTENT,
					    &l->stmts[which], NULL);

		if (rc != SQLITE_OK) {
			(void)meta_ledger_fail(l, rc, "prepare a statement", err);
			return NULL;
		}
	}
	return l->stmts[which];
}

int meta_ledger_run(struct meta_ledger *l, sqlite3_stmt *stmt, const char *what, struct err *err)
{
	int rc = sqlite3_step(stmt), ret = 0;

	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		ret = meta_ledger_fail(l, rc, what, err);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return ret;
}

static int stmt_simple(struct meta_ledger *l, enum meta_stmt which, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, which, err);

	/* An unprepared statement has left its reason with the connection. */
	if (!stmt)
		return meta_ledger_errno(sqlite3_errcode(l->db));
	return meta_ledger_run(l, stmt, stmt_sql[which], err);
}

int meta_ledger_exec(struct meta_ledger *l, const char *sql, struct err *err)
{
	int rc = sqlite3_exec(l->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : meta_ledger_fail(l, rc, sql, err);
}

int meta_ledger_int(struct meta_ledger *l, const char *sql, int64_t otherwise, int64_t *out,
		    struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(l->db, sql, -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return meta_ledger_fail(l, rc, sql, err);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*out = sqlite3_column_int64(stmt, 0);
	else if (rc == SQLITE_DONE)
		*out = otherwise;
	else
		(void)meta_ledger_fail(l, rc, sql, err);
	(void)sqlite3_finalize(stmt);
	return meta_ledger_errno(rc);
}

int meta_ledger_begin(struct meta_ledger *l, struct err *err)
{
	int ret = stmt_simple(l, META_STMT_BEGIN, err);

	l->in_txn = ret == 0;
	return ret;
}

int meta_ledger_commit(struct meta_ledger *l, struct err *err)
{
	int ret = stmt_simple(l, META_STMT_COMMIT, err);

	if (ret == 0)
		l->in_txn = false;
	return ret;
}

void meta_ledger_abort(struct meta_ledger *l)
{
	/* SQLite rolls some failures back by itself. */
	if (l->in_txn && !sqlite3_get_autocommit(l->db))
		(void)stmt_simple(l, META_STMT_ROLLBACK, NULL);
	l->in_txn = false;
}

static int set_clean(struct meta_ledger *l, bool clean, struct err *err)
{
	sqlite3_stmt *stmt = meta_ledger_stmt(l, META_STMT_SET_CLEAN, err);

	if (!stmt)
		return meta_ledger_errno(sqlite3_errcode(l->db));
	(void)sqlite3_bind_int(stmt, 1, clean);
	return meta_ledger_run(l, stmt, "mark its state", err);
}

int meta_ledger_mark(struct meta_ledger *l, struct err *err)
{
	int ret, back;

	if (l->marked)
		return 0;
	ret = meta_ledger_exec(l, "PRAGMA synchronous=FULL", err);
	if (ret == 0)
		ret = set_clean(l, false, err);
	back = meta_ledger_exec(l, "PRAGMA synchronous=NORMAL", ret == 0 ? err : NULL);
	l->marked = ret == 0;
	return ret < 0 ? ret : back;
}

static void ledger_free(struct meta_ledger *l)
{
	if (!l)
		return;
	for (int i = 0; i < META_STMT_NR; i++)
		(void)sqlite3_finalize(l->stmts[i]);
	(void)sqlite3_close(l->db);
	free(l->path);
	free(l);
}

/* Can the log's shared memory work there? */
static bool wal_possible(int store_fd)
{
	struct statfs fs;

	if (fstatfs(store_fd, &fs) < 0)
		return true;
	switch ((uint32_t)fs.f_type) {
	case NFS_SUPER_MAGIC:
	case V9FS_MAGIC:
	case CIFS_MAGIC:
	case SMB2_MAGIC:
	case FUSE_MAGIC:
		return false;
	default:
		return true;
	}
}

static int wal_grown(void *ctx, sqlite3 *db, const char *name, int nr_pages)
{
	struct meta_ledger *l = ctx;

	(void)db;
	(void)name;
	l->wal_pages = nr_pages;
	return SQLITE_OK;
}

static int db_open(struct meta_ledger *l, int flags, bool immutable, struct err *err)
{
	auto_buf struct buf uri = {0};
	int ret = buf_append_str(&uri, "file:"), rc;

	for (const char *p = l->path; ret == 0 && *p != '\0'; p++)
		ret = strchr("%?#", *p) || (unsigned char)*p < 0x21
			      ? buf_printf(&uri, "%%%02x", (unsigned char)*p)
			      : buf_append_char(&uri, *p);
	if (ret == 0 && immutable)
		ret = buf_append_str(&uri, "?immutable=1");
	if (ret < 0)
		return ret;
	rc = sqlite3_open_v2(buf_str(&uri), &l->db,
			     flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_URI |
				     SQLITE_OPEN_EXRESCODE,
			     NULL);
	if (rc != SQLITE_OK)
		return meta_ledger_fail(l, rc, "open it", err);
	(void)sqlite3_busy_timeout(l->db, BUSY_TIMEOUT_MS);
	(void)sqlite3_db_config(l->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	/* In place of the hook that checkpoints automatically. */
	(void)sqlite3_wal_hook(l->db, wal_grown, l);
	return 0;
}

/* The journal mode that took effect, which is not an error when it is another. */
static int journal_mode(struct meta_ledger *l, const char *sql, bool *wal, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(l->db, sql, -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return meta_ledger_fail(l, rc, sql, err);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*wal = sqlite3_stricmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0;
	else
		(void)meta_ledger_fail(l, rc, sql, err);
	(void)sqlite3_finalize(stmt);
	return meta_ledger_errno(rc);
}

static int writer_configure(struct meta_ledger *l, int store_fd, struct err *err)
{
	bool possible = wal_possible(store_fd);
	int ret = journal_mode(
		l, possible ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=TRUNCATE", &l->wal,
		err);

	if (ret == 0 && possible && !l->wal) {
		bool wal;

		ret = journal_mode(l, "PRAGMA journal_mode=TRUNCATE", &wal, err);
	}
	if (ret == 0 && !l->wal)
		log_warn("ledger %s: this filesystem has no write-ahead log; "
			 "using a rollback journal",
			 l->path);
	if (ret == 0)
		ret = meta_ledger_exec(l, "PRAGMA synchronous=NORMAL", err);
	return ret;
}

static int load_clock(struct meta_ledger *l, struct err *err)
{
	return meta_ledger_int(l,
			       "SELECT max((SELECT coalesce(max(last_use), 0) FROM blob),"
			       " (SELECT coalesce(max(last_use), 0) FROM tree))",
			       0, &l->clock_ns, err);
}

/* After an unfinished writer the whole file is looked over, as reconcile will the store. */
static int check_unclean(struct meta_ledger *l, bool *fresh, struct err *err)
{
	int64_t clean, bad;
	int ret = meta_ledger_int(l, "SELECT clean FROM state", 0, &clean, err);

	if (ret < 0 || clean != 0)
		return ret;
	*fresh = true;
	l->marked = true;
	ret = meta_ledger_int(l,
			      "SELECT count(*) FROM pragma_quick_check WHERE quick_check <> 'ok'",
			      0, &bad, err);
	if (ret == 0 && bad != 0)
		ret = err_set(err, -EUCLEAN, "%s is damaged", l->path);
	return ret;
}

static struct meta_ledger *ledger_new(const struct meta_ledger_options *opts)
{
	struct meta_ledger *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->writer = opts->writer;
	if (asprintf(&l->path, "%s/%s", opts->store_path, LEDGER_PATH) < 0) {
		free(l);
		return NULL;
	}
	return l;
}

/* Before the log is made: SQLite gives that to the file's owner. */
static int own_file(struct meta_ledger *l, int store_fd, struct err *err)
{
	int ret = meta_give_to_owner(store_fd, LEDGER_PATH);

	if (ret < 0)
		return err_set(err, ret, "cannot give %s to its store's owner: %s", l->path,
			       strerror(-ret));
	return 0;
}

static int writer_try(const struct meta_ledger_options *opts, struct meta_ledger **out, bool *fresh,
		      struct err *err)
{
	struct meta_ledger *l = ledger_new(opts);
	int ret;

	if (!l)
		return -ENOMEM;
	ret = db_open(l, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, false, err);
	if (ret == 0)
		ret = own_file(l, opts->store_fd, err);
	if (ret == 0)
		ret = meta_ledger_schema_check(l, err);
	if (ret >= 0)
		ret = writer_configure(l, opts->store_fd, err);
	if (ret == 0)
		ret = meta_ledger_schema_migrate(l, err);
	if (ret == 0)
		ret = check_unclean(l, fresh, err);
	if (ret == 0)
		ret = load_clock(l, err);
	if (ret == 0)
		*out = steal_ptr(&l);
	ledger_free(l);
	return ret;
}

static int open_writer(const struct meta_ledger_options *opts, struct meta_ledger **out,
		       bool *fresh, struct err *err)
{
	static const char *const suffixes[] = {"-wal", "-shm", "-journal", NULL};
	struct err first = {0};
	bool dirty = false;
	struct stat st;
	int ret = io_mkdir_parents(opts->store_fd, "meta", 0700);

	if (ret < 0)
		return err_set(err, ret, "cannot make %s/meta: %s", opts->store_path,
			       strerror(-ret));
	ret = writer_try(opts, out, &dirty, &first);
	if (ret == -EUCLEAN ||
	    (ret < 0 && fstatat(opts->store_fd, LEDGER_PATH, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	     !S_ISREG(st.st_mode))) {
		log_warn("%s", err_text(&first, ret));
		ret = meta_set_aside(opts->store_fd, LEDGER_PATH, suffixes, err);
		if (ret < 0)
			return ret;
		ret = writer_try(opts, out, &dirty, err);
	} else if (ret < 0) {
		(void)err_set(err, ret, "%s", err_text(&first, ret));
	}
	if (ret == 0)
		*fresh = dirty;
	return ret;
}

/* Only a file that nobody writes, with nothing left in a log, reads right without locks. */
static bool immutable_is_safe(int store_fd)
{
	struct stat st;

	return faccessat(store_fd, "meta", W_OK, AT_EACCESS) < 0 &&
	       (fstatat(store_fd, LEDGER_PATH "-wal", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		st.st_size == 0);
}

static int reader_try(const struct meta_ledger_options *opts, bool immutable,
		      struct meta_ledger **out, struct err *err)
{
	struct meta_ledger *l = ledger_new(opts);
	int ret;

	if (!l)
		return -ENOMEM;
	ret = db_open(l, SQLITE_OPEN_READONLY, immutable, err);
	if (ret == 0)
		ret = meta_ledger_schema_check(l, err);
	if (ret > 0)
		*out = steal_ptr(&l);
	else if (ret == 0)
		ret = err_set(err, -ENOENT, "%s is empty", l->path);
	ledger_free(l);
	return ret < 0 ? ret : 0;
}

static int open_reader(const struct meta_ledger_options *opts, struct meta_ledger **out)
{
	struct err err = {0};
	struct stat st;
	int ret;

	*out = NULL;
	if (fstatat(opts->store_fd, LEDGER_PATH, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	ret = reader_try(opts, false, out, &err);
	if (ret < 0 && immutable_is_safe(opts->store_fd))
		ret = reader_try(opts, true, out, &err);
	if (ret == -ENOMEM)
		return ret;
	if (ret < 0)
		log_warn("going without the ledger: %s", err_text(&err, ret));
	return 0;
}

int meta_ledger_open(const struct meta_ledger_options *opts, struct meta_ledger **out, bool *fresh,
		     struct err *err)
{
	*fresh = false;
	return opts->writer ? open_writer(opts, out, fresh, err) : open_reader(opts, out);
}

int meta_ledger_checkpoint(struct meta_ledger *l, struct err *err)
{
	int mode, rc;

	/* The log starts over once all of it is in the file. */
	if (l->wal_pages < l->wal_tried)
		l->wal_tried = 0;
	if (!l->writer || l->wal_pages - l->wal_tried < WAL_CHECKPOINT_PAGES)
		return 0;
	l->wal_tried = l->wal_pages;
	mode = l->wal_pages >= WAL_TRUNCATE_PAGES ? SQLITE_CHECKPOINT_TRUNCATE
						  : SQLITE_CHECKPOINT_PASSIVE;
	(void)sqlite3_busy_timeout(l->db, 0);
	rc = sqlite3_wal_checkpoint_v2(l->db, NULL, mode, NULL, NULL);
	(void)sqlite3_busy_timeout(l->db, BUSY_TIMEOUT_MS);
	if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED)
		return 0;
	return meta_ledger_fail(l, rc, "checkpoint", err);
}

int meta_ledger_close(struct meta_ledger *l, bool clean, struct err *err)
{
	int ret = 0;

	if (!l)
		return 0;
	if (l->writer && l->marked && clean)
		ret = set_clean(l, true, err);
	if (ret == 0)
		ret = meta_ledger_checkpoint(l, err);
	ledger_free(l);
	return ret;
}
