/* tools/cmd/local.h - the store of a command, with index and ledger */
#ifndef TOOLS_CMD_LOCAL_H
#define TOOLS_CMD_LOCAL_H

#include <stdbool.h>

struct cas_fetch;
struct cas_store;
struct cli;
struct err;
struct meta;
struct meta_reconcile_result;

/*
 * A command that stores publishes files at once and sends its rows to the daemon when
 * one serves the store. When none does, they are kept and written in the end, under the
 * writer's lock for that moment only: neither a mount nor another command waits for a
 * long put. Rows are hints: losing them costs time later, nothing else.
 */
struct local;

enum local_mode {
	LOCAL_READ,   /* nothing is recorded */
	LOCAL_RECORD, /* files are published, or uses counted */
	LOCAL_WRITER, /* the writer's lock is held until local_close */
	/*
	 * The same, and not stopped by index and ledger that cannot be written, as on a
	 * full disk: they are only read then, and local_close makes good for it.
	 */
	LOCAL_EVICT,
};

/*
 * Open the store of @cli, made when missing. -EBUSY (the last two): another command held
 * the lock for a minute; -EALREADY: a daemon holds it, and is to be asked.
 * LOCAL_RECORD asks the tiers for what is not here.
 */
int local_open(const struct cli *cli, enum local_mode mode, struct local **out, struct err *err);

/* Make index and ledger agree with the files; 0 or negative. @out may be NULL. */
int local_reconcile(struct local *local, struct meta_reconcile_result *out, struct err *err);
/* The same by names, before an eviction; LOCAL_EVICT goes on without when it fails. */
int local_recount(struct local *local, struct err *err);

struct cas_store *local_store(struct local *local);
/* NULL: no tiers, or a mode that asks none. */
struct cas_fetch *local_fetch(struct local *local);
struct meta *local_meta(struct local *local);
const char *local_path(struct local *local);

/*
 * Durable as configured, then recorded as far as a daemon takes rows: before anything
 * that was put is acknowledged. Rows that were lost are a warning.
 */
int local_sync(struct local *local, struct err *err);

/*
 * local_sync, and what was kept is written, too: a gc that comes afterwards, or goes on
 * then, knows what was used. Waits up to a minute for another writer; not getting to
 * write is reported as a warning. With blobs elsewhere it waits for local_close.
 */
int local_record(struct local *local, struct err *err);

/* Write what was kept; a failure is reported as a warning, since rows are hints. */
void local_close(struct local *local);

#endif
