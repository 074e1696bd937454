/* tools/cmd/local.c - the store of a command, with index and ledger */
#include "tools/cmd/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cas/cas.h"
#include "meta/meta.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/daemon.h"

#define KEEP_MAX     (4 << 20) /* bytes of rows in memory before they go to a file */
#define LOCK_STEP_MS 200
#define LOCK_MS	     60000

struct local {
	const struct cli *cli;
	struct cas_store *store;
	struct meta *meta;
	struct cas_fetch *fetch;   /* NULL: no tiers */
	struct cas_outbox *outbox; /* NULL: none of them is written to */
	struct client *client;
	bool asked;	 /* for a daemon */
	struct buf kept; /* rows, a newline after each batch */
	int spill_fd;	 /* kept rows beyond KEEP_MAX; -1: none yet */
	bool kept_any;
	bool locked; /* LOCAL_WRITER, LOCAL_EVICT */
	bool evict;  /* LOCAL_EVICT */
	bool blind;  /* and index and ledger could not be written */
};

static enum cas_durability durability_of(const struct cli *cli)
{
	if (cli->durability && strcmp(cli->durability, "none") == 0)
		return CAS_DURABILITY_NONE;
	if (cli->durability && strcmp(cli->durability, "full") == 0)
		return CAS_DURABILITY_FULL;
	return CAS_DURABILITY_BATCH;
}

static int send_to_daemon(struct local *local, const char *rows, struct err *err)
{
	const char *const words[] = {"rows", rows};

	return client_ask(local->client, words, 2, CLIENT_QUICK_MS, NULL, err);
}

/* 1: connected. 0: there is no daemon. Negative: it cannot be reached. */
static int connect_daemon(struct local *local, struct err *err)
{
	struct daemon daemon = {0};
	int ret;

	if (local->client)
		return 1;
	ret = daemon_find(cas_store_path(local->store), &daemon, err);
	if (ret == 1) {
		ret = client_open_daemon(&daemon, -1, &local->client, err);
		/* It ended between the two looks. */
		ret = ret == 0 ? 1 : ret == -ENOTCONN || ret == -ENOENT ? 0 : ret;
	}
	daemon_fini(&daemon);
	return ret;
}

static int spill(struct local *local)
{
	int ret;

	if (local->spill_fd < 0)
		local->spill_fd = memfd_create("casbox-rows", MFD_CLOEXEC);
	if (local->spill_fd < 0)
		return -errno;
	ret = io_write_full(local->spill_fd, local->kept.data, local->kept.len);
	if (ret == 0)
		buf_reset(&local->kept);
	return ret;
}

static int keep_rows(struct local *local, const char *rows, size_t len)
{
	int ret = buf_append(&local->kept, rows, len);

	if (ret == 0)
		ret = buf_append_char(&local->kept, '\n');
	local->kept_any = true;
	if (ret == 0 && local->kept.len > KEEP_MAX)
		ret = spill(local);
	return ret;
}

/* meta's sender: called by one thread at a time, with no lock held. */
static int send_rows(void *ctx, const char *rows, size_t len, struct err *err)
{
	struct local *local = ctx;
	auto_free char *text = NULL;

	/* Asked once: whoever starts to serve meanwhile gets the rows in the end. */
	if (!local->asked) {
		local->asked = true;
		(void)connect_daemon(local, NULL);
	}
	if (!local->client)
		return keep_rows(local, rows, len);
	text = strndup(rows, len);
	if (!text)
		return err_set(err, -ENOMEM, "out of memory");
	if (send_to_daemon(local, text, NULL) == 0)
		return 0;
	/* It died or refused: keep them, and ask again in the end. */
	client_close(local->client);
	local->client = NULL;
	return keep_rows(local, rows, len);
}

static int open_meta(struct local *local, enum meta_mode mode, struct err *err)
{
	struct meta_options opts = {.mode = mode, .send = send_rows, .send_ctx = local};
	int ret = meta_open(local->store, &opts, &local->meta, err);

	if (ret == 0)
		cas_store_set_catalog(local->store, meta_catalog(local->meta));
	return ret;
}

static int close_meta(struct local *local, struct err *err)
{
	struct meta *meta = local->meta;

	local->meta = NULL;
	cas_store_set_catalog(local->store, &cas_catalog_null);
	return meta ? meta_close(meta, err) : 0;
}

/* With blobs elsewhere, what is put here is moved here unless a daemon does. */
static int start_spool(struct local *local, struct err *err)
{
	const struct cas_spool_options opts = {
		.max_bytes = local->cli->spool_max_bytes,
		.max_blobs = cli_spool_count(local->cli),
	};

	return cas_spool_start(local->store, &opts, err);
}

static enum meta_mode meta_mode_of(const struct local *local, enum local_mode mode)
{
	if (mode == LOCAL_WRITER || mode == LOCAL_EVICT)
		return META_WRITER;
	if (mode == LOCAL_READ || cas_store_is_read_only(local->store))
		return META_READER;
	return META_CLIENT;
}

/* What can be read of index and ledger has to do. @err: why they cannot be written. */
static int go_blind(struct local *local, int code, struct err *err)
{
	cli_warn(local->cli, "going by the files alone: %s", err_text(err, code));
	*err = (struct err){0};
	(void)close_meta(local, NULL);
	local->blind = true;
	return open_meta(local, META_READER, err);
}

/*
 * A new store gets its databases before it gets blobs: afterwards they would have to be
 * compared with all of these. Whoever else writes here makes them, too.
 */
static void make_databases(struct local *local)
{
	struct meta *meta = NULL;
	const struct meta_options opts = {.mode = META_WRITER};

	if (cas_store_is_read_only(local->store) ||
	    faccessat(cas_store_dir_fd(local->store), "meta/index", F_OK, 0) == 0 ||
	    cas_store_writer_lock(local->store, 0, NULL) < 0)
		return;
	if (meta_open(local->store, &opts, &meta, NULL) == 0)
		(void)meta_close(meta, NULL);
	cas_store_writer_unlock(local->store);
}

/* Whoever holds the lock is soon done, or a daemon: that is not waited for. */
static int lock_or_daemon(struct local *local, struct err *err)
{
	unsigned long long end = lock_now_ns() + LOCK_MS * 1000000ULL;
	int ret;

	for (;;) {
		struct daemon daemon = {0};

		ret = cas_store_writer_lock(local->store, LOCK_STEP_MS, err);
		if (ret != -EBUSY || lock_now_ns() >= end)
			return ret;
		if (daemon_find(cas_store_path(local->store), &daemon, NULL) == 1)
			ret = err_set(err, -EALREADY, "a daemon serves the store (pid %d)",
				      (int)daemon.pid);
		daemon_fini(&daemon);
		if (ret == -EALREADY)
			return ret;
	}
}

int local_open(const struct cli *cli, enum local_mode mode, struct local **out, struct err *err)
{
	struct cas_store_options opts = {
		.path = cli->store,
		.blobs = cli->blobs,
		.create = true,
		.durability = durability_of(cli),
	};
	struct local *local = calloc(1, sizeof(*local));
	int ret;

	if (!local)
		return err_set(err, -ENOMEM, "out of memory");
	local->cli = cli;
	local->spill_fd = -1;
	local->evict = mode == LOCAL_EVICT;
	ret = cas_store_open(&opts, &local->store, err);
	if (ret == 0 && (mode == LOCAL_WRITER || local->evict)) {
		ret = lock_or_daemon(local, err);
		local->locked = ret == 0;
	}
	if (ret == 0 && mode == LOCAL_RECORD)
		make_databases(local);
	if (ret == 0)
		ret = open_meta(local, meta_mode_of(local, mode), err);
	if (ret && local->evict && local->locked)
		ret = go_blind(local, ret, err);
	if (ret == 0 && mode == LOCAL_RECORD)
		ret = start_spool(local, err);
	if (ret == 0 && mode == LOCAL_RECORD && cli->tiers.nr > 0)
		ret = cas_fetch_open(local->store, cli->tiers.items, cli->tiers.nr, &local->fetch,
				     err);
	if (ret == 0)
		ret = cas_outbox_open(local->store, local->fetch, false, &local->outbox, err);
	if (ret) {
		cas_fetch_close(local->fetch);
		if (local->store)
			(void)close_meta(local, NULL);
		if (local->locked)
			cas_store_writer_unlock(local->store);
		cas_store_close(local->store);
		free(local);
		return ret;
	}
	*out = local;
	return 0;
}

int local_reconcile(struct local *local, struct meta_reconcile_result *out, struct err *err)
{
	return local->blind ? 0 : meta_reconcile(local->meta, out, err);
}

int local_recount(struct local *local, struct err *err)
{
	int ret = local->blind ? 0 : meta_recount(local->meta, NULL, err);

	return ret && local->evict ? go_blind(local, ret, err) : ret;
}

struct cas_store *local_store(struct local *local)
{
	return local->store;
}

struct cas_fetch *local_fetch(struct local *local)
{
	return local->fetch;
}

struct meta *local_meta(struct local *local)
{
	return local->meta;
}

const char *local_path(struct local *local)
{
	return cas_store_path(local->store);
}

int local_sync(struct local *local, struct err *err)
{
	const struct cas_catalog *catalog = cas_store_catalog(local->store);
	struct err lost = {0};
	int ret = cas_store_sync(local->store, err);

	if (ret)
		return ret;
	ret = catalog->ops->flush(catalog->ctx, &lost);
	if (ret)
		cli_warn(local->cli, "stored, but not recorded in index and ledger: %s",
			 err_text(&lost, ret));
	return 0;
}

/* Hand each kept batch to @take; batches have no newline inside. */
static int each_batch(struct local *local, char *text, size_t len,
		      int (*take)(struct local *local, const char *rows, size_t len,
				  struct err *err),
		      struct err *err)
{
	while (len > 0) {
		char *end = memchr(text, '\n', len);
		size_t part = end ? (size_t)(end - text) : len;
		int ret = 0;

		text[part] = '\0';
		ret = take(local, text, part, err);
		if (ret)
			return ret;
		part += end != NULL;
		text += part;
		len -= part;
	}
	return 0;
}

static int each_kept(struct local *local,
		     int (*take)(struct local *local, const char *rows, size_t len,
				 struct err *err),
		     struct err *err)
{
	off_t len = 0;
	char *map;
	int ret;

	if (local->spill_fd >= 0 && local->kept.len > 0) {
		ret = spill(local);
		if (ret)
			return err_set(err, ret, "out of memory");
	}
	if (local->spill_fd < 0)
		return each_batch(local, local->kept.data, local->kept.len, take, err);
	len = lseek(local->spill_fd, 0, SEEK_END);
	map = mmap(NULL, (size_t)len, PROT_READ | PROT_WRITE, MAP_PRIVATE, local->spill_fd, 0);
	if (map == MAP_FAILED)
		return err_set(err, -errno, "cannot map rows: %s", strerror(errno));
	ret = each_batch(local, map, (size_t)len, take, err);
	(void)munmap(map, (size_t)len);
	return ret;
}

static int take_send(struct local *local, const char *rows, size_t len, struct err *err)
{
	(void)len;
	return send_to_daemon(local, rows, err);
}

static int take_apply(struct local *local, const char *rows, size_t len, struct err *err)
{
	return meta_rows_apply(local->meta, rows, len, err);
}

/* The writer's lock is ours: write ourselves. */
static int write_kept(struct local *local, struct err *err)
{
	int ret = open_meta(local, META_WRITER, err);

	if (ret)
		return ret;
	ret = each_kept(local, take_apply, err);
	/* New databases, or a writer that was killed: more than these rows is missing. */
	if (ret == 0 && meta_needs_reconcile(local->meta))
		ret = meta_reconcile(local->meta, NULL, err);
	if (ret) {
		(void)close_meta(local, NULL);
		return ret;
	}
	return close_meta(local, err);
}

/* What was removed by the files alone has made room to write it down. */
static int catch_up(struct local *local, struct err *err)
{
	int ret = open_meta(local, META_WRITER, err);

	if (ret == 0)
		ret = meta_reconcile(local->meta, NULL, err);
	if (ret) {
		(void)close_meta(local, NULL);
		return ret;
	}
	return close_meta(local, err);
}

/* Uses alone are not worth opening index and ledger for. 1: they are left to who does. */
static int leave_uses(struct local *local)
{
	if (local->spill_fd >= 0 || connect_daemon(local, NULL) != 0)
		return 0;
	return meta_uses_leave(local->store, local->kept.data, local->kept.len, NULL) == 1;
}

/* Whoever holds the lock is a daemon, which takes rows, or soon done. */
static int deliver_kept(struct local *local, struct err *err)
{
	unsigned long long end = lock_now_ns() + LOCK_MS * 1000000ULL;

	if (leave_uses(local))
		return 0;
	for (;;) {
		int ret = cas_store_writer_lock(local->store, LOCK_STEP_MS, err);

		if (ret == 0) {
			ret = write_kept(local, err);
			cas_store_writer_unlock(local->store);
			return ret;
		}
		if (ret != -EBUSY)
			return ret;
		ret = connect_daemon(local, err);
		if (ret == 1)
			return each_kept(local, take_send, err);
		if (ret == 0 && lock_now_ns() >= end)
			ret = err_set(err, -EBUSY, "another process is writing the store");
		if (ret)
			return ret;
	}
}

static void forget_kept(struct local *local)
{
	buf_reset(&local->kept);
	if (local->spill_fd >= 0)
		(void)close(steal_fd(&local->spill_fd));
	local->kept_any = false;
}

int local_record(struct local *local, struct err *err)
{
	struct err why = {0};
	int ret = local_sync(local, err);

	/* Movers use the catalog until they are stopped: then it comes with local_close. */
	if (ret || !local->kept_any || local->cli->blobs)
		return ret;
	/* One process opens the index once. */
	ret = close_meta(local, &why);
	if (ret == 0)
		ret = deliver_kept(local, &why);
	if (ret)
		cli_warn(local->cli, "stored, but not recorded in index and ledger: %s",
			 err_text(&why, ret));
	forget_kept(local);
	return open_meta(local, META_CLIENT, err);
}

/* What was put, and what others have left: write-through, as far as the tiers let us. */
static void send_outbox(struct local *local)
{
	struct cas_push_progress progress = {0};
	struct err err = {0};
	int ret = local->outbox ? cas_outbox_send(local->outbox, &progress, &err) : 0;

	if (ret < 0)
		cli_warn(local->cli,
			 "stored, but not sent to all tiers: %s; the next put, push or mount "
			 "tries again",
			 err_text(&err, ret));
}

void local_close(struct local *local)
{
	struct err err = {0};
	int ret;

	if (!local)
		return;
	send_outbox(local);
	cas_outbox_close(local->outbox);
	cas_fetch_close(local->fetch);
	cas_spool_stop(local->store);
	/* While somebody still takes the rows of what is synced with it. */
	ret = cas_store_sync(local->store, &err);
	if (ret == 0)
		ret = close_meta(local, &err);
	else
		(void)close_meta(local, NULL);
	if (ret == 0 && local->kept_any)
		ret = deliver_kept(local, &err);
	if (local->blind)
		ret = catch_up(local, &err);
	if (ret)
		cli_warn(local->cli, "%s, but not recorded in index and ledger: %s",
			 local->evict ? "done" : "stored", err_text(&err, ret));
	client_close(local->client);
	if (local->spill_fd >= 0)
		(void)close(local->spill_fd);
	if (local->locked)
		cas_store_writer_unlock(local->store);
	buf_fini(&local->kept);
	cas_store_close(local->store);
	free(local);
}
