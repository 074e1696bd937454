/* meta/ledger/ledger_schema.c - migrations, one numbered step each */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "cas/base/err.h"
#include "meta/ledger/ledger_i.h"

#define LEDGER_APPLICATION_ID 0x63736278 /* "csbx" */

/*
 * Step N takes a file from user_version N to N + 1. Steps are never edited once
 * released, only added. Triggers keep the totals exact whatever changes a row.
 */
static const char *const steps[] = {
	"CREATE TABLE blob("
	"  hash BLOB PRIMARY KEY NOT NULL CHECK(length(hash) = 32),"
	"  size INTEGER NOT NULL CHECK(size >= 0),"
	"  last_use INTEGER NOT NULL,"
	"  created INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX blob_last_use ON blob(last_use);"
	"CREATE TABLE total("
	"  id INTEGER PRIMARY KEY CHECK(id = 0),"
	"  blobs INTEGER NOT NULL,"
	"  bytes INTEGER NOT NULL);"
	"INSERT INTO total VALUES(0, 0, 0);"
	"CREATE TRIGGER blob_inserted AFTER INSERT ON blob BEGIN"
	"  UPDATE total SET blobs = blobs + 1, bytes = bytes + NEW.size; END;"
	"CREATE TRIGGER blob_deleted AFTER DELETE ON blob BEGIN"
	"  UPDATE total SET blobs = blobs - 1, bytes = bytes - OLD.size; END;"
	"CREATE TRIGGER blob_resized AFTER UPDATE OF size ON blob"
	"  WHEN NEW.size <> OLD.size BEGIN"
	"  UPDATE total SET bytes = bytes + NEW.size - OLD.size; END;"
	"CREATE TABLE action("
	"  hash BLOB PRIMARY KEY NOT NULL CHECK(length(hash) = 32),"
	"  last_use INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE pin("
	"  name TEXT PRIMARY KEY NOT NULL,"
	"  digest TEXT NOT NULL,"
	"  created INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE sandbox("
	"  id TEXT NOT NULL,"
	"  created INTEGER NOT NULL,"
	"  root TEXT NOT NULL,"
	"  state TEXT NOT NULL,"
	"  finished INTEGER NOT NULL,"
	"  exit_code INTEGER NOT NULL,"
	"  PRIMARY KEY(created, id)) WITHOUT ROWID;"
	/* 1: nobody was writing, and everything was recorded. */
	"CREATE TABLE state("
	"  id INTEGER PRIMARY KEY CHECK(id = 0),"
	"  clean INTEGER NOT NULL);"
	"INSERT INTO state VALUES(0, 0);",
	/* Trees by their last use as a whole, the latest CAS_TREES_MAX of them. */
	"CREATE TABLE tree("
	"  hash BLOB PRIMARY KEY NOT NULL CHECK(length(hash) = 32),"
	"  size INTEGER NOT NULL CHECK(size >= 0),"
	"  last_use INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX tree_last_use ON tree(last_use);"
	"CREATE TRIGGER tree_inserted AFTER INSERT ON tree BEGIN"
	"  DELETE FROM tree WHERE last_use <= (SELECT last_use FROM tree"
	"   ORDER BY last_use DESC LIMIT 1 OFFSET 1024); END;"
	"CREATE TRIGGER tree_root_deleted AFTER DELETE ON blob BEGIN"
	"  DELETE FROM tree WHERE hash = OLD.hash; END;",
	/* What blobs take on the disk, by guess until the files have been looked at. */
	"ALTER TABLE blob ADD COLUMN disk INTEGER NOT NULL DEFAULT 0;"
	"UPDATE blob SET disk = (size + 4095) / 4096 * 4096;"
	"ALTER TABLE total ADD COLUMN disk INTEGER NOT NULL DEFAULT 0;"
	"UPDATE total SET disk = (SELECT coalesce(sum(disk), 0) FROM blob);"
	"UPDATE state SET clean = CASE (SELECT count(*) FROM blob) WHEN 0 THEN clean ELSE 0 END;"
	"DROP TRIGGER blob_inserted;"
	"DROP TRIGGER blob_deleted;"
	"DROP TRIGGER blob_resized;"
	"CREATE TRIGGER blob_inserted AFTER INSERT ON blob BEGIN"
	"  UPDATE total SET blobs = blobs + 1, bytes = bytes + NEW.size,"
	"  disk = disk + NEW.disk; END;"
	"CREATE TRIGGER blob_deleted AFTER DELETE ON blob BEGIN"
	"  UPDATE total SET blobs = blobs - 1, bytes = bytes - OLD.size,"
	"  disk = disk - OLD.disk; END;"
	"CREATE TRIGGER blob_resized AFTER UPDATE OF size, disk ON blob"
	"  WHEN NEW.size <> OLD.size OR NEW.disk <> OLD.disk BEGIN"
	"  UPDATE total SET bytes = bytes + NEW.size - OLD.size,"
	"  disk = disk + NEW.disk - OLD.disk; END;",
	/*
	 * Which tier a blob was brought from, and when; without a row it was put here. The row
	 * may come before that of the blob, and goes with it.
	 */
	"CREATE TABLE source("
	"  id INTEGER PRIMARY KEY,"
	"  name TEXT NOT NULL UNIQUE);"
	"CREATE TABLE origin("
	"  hash BLOB PRIMARY KEY NOT NULL CHECK(length(hash) = 32),"
	"  source INTEGER NOT NULL REFERENCES source(id),"
	"  came INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TRIGGER origin_deleted AFTER DELETE ON blob BEGIN"
	"  DELETE FROM origin WHERE hash = OLD.hash; END;"
	/* The latest of an id is asked for. */
	"CREATE INDEX sandbox_id ON sandbox(id, created);",
};

#define NR_STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

int meta_ledger_schema_check(struct meta_ledger *l, struct err *err)
{
	int64_t app = 0, version = 0, tables = 0;
	int ret = meta_ledger_int(l, "PRAGMA application_id", 0, &app, err);

	if (ret == 0)
		ret = meta_ledger_int(l, "PRAGMA user_version", 0, &version, err);
	if (ret == 0)
		ret = meta_ledger_int(l, "SELECT count(*) FROM sqlite_schema", 0, &tables, err);
	if (ret < 0)
		return ret;
	if (app == 0 && version == 0 && tables == 0)
		return 0;
	if (app != LEDGER_APPLICATION_ID)
		return err_set(err, -EUCLEAN, "%s is not a ledger of casbox", l->path);
	if (version < 1 || version > NR_STEPS)
		return err_set(err, -EUCLEAN, "%s has version %" PRId64 ", known are 1 to %d",
			       l->path, version, NR_STEPS);
	return 1;
}

static int step_run(struct meta_ledger *l, int version, struct err *err)
{
	char mark[96];
	int ret = meta_ledger_begin(l, err);

	if (ret < 0)
		return ret;
	(void)snprintf(mark, sizeof(mark), "PRAGMA application_id = %d; PRAGMA user_version = %d;",
		       LEDGER_APPLICATION_ID, version + 1);
	ret = meta_ledger_exec(l, steps[version], err);
	if (ret == 0)
		ret = meta_ledger_exec(l, mark, err);
	if (ret == 0)
		ret = meta_ledger_commit(l, err);
	meta_ledger_abort(l);
	return ret;
}

int meta_ledger_schema_migrate(struct meta_ledger *l, struct err *err)
{
	int64_t version;
	int ret = meta_ledger_int(l, "PRAGMA user_version", 0, &version, err);

	for (int v = (int)version; ret == 0 && v < NR_STEPS; v++)
		ret = step_run(l, v, err);
	return ret;
}
