/* cas/fsck/fsck.c - compare every blob with its name */
#include "cas/fsck/fsck.h"
#include "cas/landing/landing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/fsck/adopt_i.h"
#include "cas/hash.h"
#include "cas/reapi.pb-c.h"
#include "cas/store/store_i.h"

/*
 * Threads take one shard after the other: of cas/, then of links/ and ac/. What a stamp
 * says is not believed here; every byte is read. Repair means: wrong blobs and results
 * are moved aside (.bad-), a right blob gets its mode back, a changed variant is unlinked
 * (the next checkout makes it anew). Names that are not ours are told, never touched.
 */

#define THREADS_MAX 64
#define ACTION_MAX  (256u << 20)

enum area { AREA_CAS, AREA_LINKS_0444, AREA_LINKS_0555, AREA_AC, AREA_SPOOL, NR_AREAS };

/* @talk: one callback at a time. @first_error: what stopped a thread. */
struct fsck {
	struct cas_store *store;
	const struct cas_fsck_options *opts;
	_Atomic unsigned next;
	_Atomic uint64_t blobs;
	_Atomic uint64_t bytes;
	_Atomic uint64_t disk;
	_Atomic uint64_t faults;
	_Atomic uint64_t repaired;
	_Atomic uint64_t foreign;
	struct lock talk;
	int first_error GUARDED_BY(talk);
	struct err *err GUARDED_BY(talk);
};

struct walk {
	struct fsck *f;
	enum area area;
	int top_fd;
};

__attribute__((format(printf, 2, 3))) static void fault(struct fsck *f, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	atomic_fetch_add(&f->faults, 1);
	lock_take(&f->talk);
	if (f->opts->fault)
		f->opts->fault(f->opts->ctx, line);
	lock_drop(&f->talk);
}

static void note(struct fsck *f, const char *path, const char *what)
{
	char line[512];

	(void)snprintf(line, sizeof(line), "%s %s", path, what);
	lock_take(&f->talk);
	if (f->opts->note)
		f->opts->note(f->opts->ctx, line);
	lock_drop(&f->talk);
}

static void foreign(struct fsck *f, const char *path)
{
	atomic_fetch_add(&f->foreign, 1);
	note(f, path, "is not the store's; left alone");
}

static bool is_cancelled(const struct fsck *f)
{
	return f->opts->progress && atomic_load(&f->opts->progress->cancel);
}

static void progress(struct fsck *f, uint64_t bytes)
{
	atomic_fetch_add(&f->blobs, 1);
	atomic_fetch_add(&f->bytes, bytes);
	if (f->opts->progress) {
		atomic_fetch_add(&f->opts->progress->blobs, 1);
		atomic_fetch_add(&f->opts->progress->bytes, bytes);
	}
}

/* Count a repair that worked; say when one did not. */
static void mended(struct fsck *f, const char *path, int ret)
{
	if (ret == 0)
		atomic_fetch_add(&f->repaired, 1);
	else
		fault(f, "%s: cannot be repaired: %s", path, strerrordesc_np(-ret));
}

/* Its right size is what was recorded, as far as it was; no row is of an empty file. */
static void lose(struct walk *w, struct cas_digest *d)
{
	const struct cas_catalog *cat = w->f->store->catalog;
	uint64_t size;

	if (cat->ops->size_find(cat->ctx, d->hash, &size) == 1)
		d->size = size;
	cas_pending_drop(w->f->store, d);
	if (d->size > 0)
		cat->ops->blob_drop(cat->ctx, d);
	lock_take(&w->f->talk);
	if (w->f->opts->lost)
		w->f->opts->lost(w->f->opts->ctx, d);
	lock_drop(&w->f->talk);
}

static void set_aside(struct walk *w, const struct cas_walk_item *item)
{
	struct cas_digest d = {.size = (uint64_t)item->st.st_size};
	int ret;

	if (!w->f->opts->repair)
		return;
	ret = cas_quarantine(w->f->store, w->top_fd, item->hash, item->st.st_ino);
	mended(w->f, item->path, ret < 0 ? ret : 0);
	if (ret == 1 && w->area == AREA_CAS) {
		memcpy(d.hash, item->hash, CAS_HASH_SZ);
		lose(w, &d);
	}
}

/* Does this failure to open tell about the file, and not about us (no right, no descriptor)? */
static bool blames_file(const struct walk *w, const struct cas_walk_item *item, int code)
{
	if (code == EACCES)
		return !cas_adopt_is_others(w->f->store, &item->st);
	return code == ELOOP || code == ENXIO || code == EISDIR;
}

/* The bytes are right: the mode may be mended, and the stamp is worth remembering. */
static void accept_blob(struct walk *w, const struct cas_walk_item *item, int fd,
			const struct cas_digest *digest)
{
	struct cas_store *store = w->f->store;
	struct cas_stamp stamp;
	struct stat st = item->st;

	/* Where others put, modes are as found. */
	if (!cas_store_is_adopted(store) && (st.st_mode & 07777) != CAS_BLOB_MODE) {
		fault(w->f, "%s: mode is %04o, not %04o", item->path, st.st_mode & 07777,
		      CAS_BLOB_MODE);
		if (w->f->opts->repair)
			mended(w->f, item->path, fchmod(fd, CAS_BLOB_MODE) < 0 ? -errno : 0);
		if (fstat(fd, &st) < 0)
			return;
	}
	cas_stamp_of(&st, &stamp);
	if (!store->read_only)
		store->catalog->ops->blob_add(store->catalog->ctx, digest, &stamp);
}

static void check_blob(struct walk *w, const struct cas_walk_item *item)
{
	auto_close int fd = openat(item->shard_fd, item->name,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct cas_digest real;
	int code = errno;
	int ret;

	if (fd < 0 && code == ENOENT)
		return;
	if (fd < 0) {
		fault(w->f, "%s: cannot be opened: %s", item->path, strerrordesc_np(code));
		if (blames_file(w, item, code))
			set_aside(w, item);
		return;
	}
	ret = cas_hash_fd(fd, &real);
	if (ret < 0) {
		fault(w->f, "%s: cannot be read: %s", item->path, strerrordesc_np(-ret));
		return;
	}
	progress(w->f, real.size);
	atomic_fetch_add(&w->f->disk, (uint64_t)item->st.st_blocks * 512);
	if (memcmp(real.hash, item->hash, CAS_HASH_SZ) != 0) {
		fault(w->f, "%s: its %llu bytes hash to %.64s", item->path,
		      (unsigned long long)real.size, CAS_DIGEST_TEXT(&real));
		set_aside(w, item);
		return;
	}
	accept_blob(w, item, fd, &real);
}

/* What a checkout may have done to the file that it links. */
static void check_variant(struct walk *w, const struct cas_walk_item *item)
{
	mode_t mode = w->area == AREA_LINKS_0555 ? 0555 : 0444;
	auto_close int fd = -1;
	struct cas_digest real;

	if (!cas_variant_intact(w->f->store, &item->st, mode, (uint64_t)item->st.st_size)) {
		fault(w->f,
		      "%s: was changed through a checkout: mode %04o, owner %u, time %lld, "
		      "not %04o, %u, %d",
		      item->path, item->st.st_mode & 07777, item->st.st_uid,
		      (long long)item->st.st_mtim.tv_sec, mode, w->f->store->owner, CAS_EPOCH_SEC);
	} else {
		fd = openat(item->shard_fd, item->name,
			    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0 || cas_hash_fd(fd, &real) < 0)
			return;
		if (memcmp(real.hash, item->hash, CAS_HASH_SZ) == 0)
			return;
		fault(w->f, "%s: was changed through a checkout: it hashes to %.64s", item->path,
		      CAS_DIGEST_TEXT(&real));
	}
	if (w->f->opts->repair)
		mended(w->f, item->path,
		       unlinkat(item->shard_fd, item->name, 0) < 0 && errno != ENOENT ? -errno : 0);
}

static void check_action(struct walk *w, const struct cas_walk_item *item)
{
	auto_buf struct buf b = {0};
	Reapi__ActionResult *result = NULL;
	int ret = io_read_file(item->shard_fd, item->name, ACTION_MAX, &b);

	if (ret == -ENOENT)
		return;
	if (ret == 0 && b.len > 0)
		result = reapi__action_result__unpack(NULL, b.len, (const uint8_t *)b.data);
	if (result == NULL) {
		fault(w->f, "%s: is no ActionResult%s%s", item->path, ret < 0 ? ": " : "",
		      ret < 0 ? strerrordesc_np(-ret) : "");
		if (ret == 0 || ret == -EFBIG || blames_file(w, item, -ret))
			set_aside(w, item);
		return;
	}
	reapi__action_result__free_unpacked(result, NULL);
}

static int check_item(void *ctx, const struct cas_walk_item *item)
{
	struct walk *w = ctx;

	if (is_cancelled(w->f))
		return -ECANCELED;
	/* Whoever moves a spool file compares it with its name before. */
	if (w->area == AREA_SPOOL) {
		if (item->kind == CAS_WALK_BAD)
			note(w->f, item->path,
			     "was damaged in the spool, never moved, and goes after two days");
		return 0;
	}
	if (item->kind == CAS_WALK_FOREIGN)
		foreign(w->f, item->path);
	if (item->kind == CAS_WALK_WRONG_TYPE) {
		fault(w->f, "%s: is no regular file", item->path);
		set_aside(w, item);
	}
	if (item->kind != CAS_WALK_ENTRY)
		return 0;
	if (w->area == AREA_CAS)
		check_blob(w, item);
	else if (w->area == AREA_AC)
		check_action(w, item);
	else
		check_variant(w, item);
	return 0;
}

static const char *area_open(const struct cas_store *store, enum area area, int *top_fd)
{
	switch (area) {
	case AREA_CAS:
		*top_fd = store->cas_fd;
		return "cas";
	case AREA_LINKS_0444:
		*top_fd = store->link_fd[0];
		return "links/0444";
	case AREA_LINKS_0555:
		*top_fd = store->link_fd[1];
		return "links/0555";
	case AREA_SPOOL:
		*top_fd = store->spool_fd;
		return "spool";
	case AREA_AC:
	case NR_AREAS:
	default:
		*top_fd = store->ac_fd;
		return "ac";
	}
}

/* One shard of one area, or (the one after the last shard) what lies beside them. */
static int check_unit(struct fsck *f, unsigned unit, struct err *err)
{
	struct walk w = {.f = f, .area = unit / (CAS_LAYOUT_NR_SHARDS + 1)};
	unsigned shard = unit % (CAS_LAYOUT_NR_SHARDS + 1);
	const char *top = area_open(f->store, w.area, &w.top_fd);

	if (w.top_fd < 0)
		return 0;
	if (shard == CAS_LAYOUT_NR_SHARDS)
		return cas_walk_beside(w.top_fd, top, check_item, &w, err);
	return cas_walk_shard(w.top_fd, top, shard, check_item, &w, err);
}

/* A directory that cannot be listed is a fault like any other; only a cancel stops. */
static void *work(void *arg)
{
	struct fsck *f = arg;
	const unsigned nr = NR_AREAS * (CAS_LAYOUT_NR_SHARDS + 1);

	for (;;) {
		struct err err = {0};
		unsigned unit = atomic_fetch_add(&f->next, 1);
		int ret = unit < nr ? check_unit(f, unit, &err) : -ENOENT;

		if (ret == 0)
			continue;
		if (unit < nr && ret != -ECANCELED) {
			fault(f, "%s", err_text(&err, ret));
			continue;
		}
		if (ret == -ECANCELED) {
			lock_take(&f->talk);
			f->first_error = err_set(f->err, ret, "the check was cancelled");
			lock_drop(&f->talk);
		}
		return NULL;
	}
}

static void run_threads(struct fsck *f)
{
	pthread_t threads[THREADS_MAX];
	long nr = f->opts->nr_threads > 0 ? f->opts->nr_threads : sysconf(_SC_NPROCESSORS_ONLN);
	int started = 0;

	if (nr > THREADS_MAX)
		nr = THREADS_MAX;
	/* This thread works too, so that it goes on when no other can be started. */
	while (started + 1 < nr && pthread_create(&threads[started], NULL, work, f) == 0)
		started++;
	(void)work(f);
	while (started > 0)
		(void)pthread_join(threads[--started], NULL);
}

static bool is_part(const char *name)
{
	static const char *const parts[] = {
		".",	 "..",	    "VERSION",	 "lock", "cas",	   "ac", "links", "pins",  "run",
		"spool", "landing", "sandboxes", "meta", "config", "id", "owner", "trees", "outbox",
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (strcmp(name, parts[i]) == 0)
			return true;
	}
	return strncmp(name, CAS_TMP_PREFIX, strlen(CAS_TMP_PREFIX)) == 0;
}

static int check_top(struct fsck *f)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	int fd = openat(f->store->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	dir = fd < 0 ? NULL : fdopendir(fd);
	if (dir == NULL) {
		int code = errno;

		if (fd >= 0)
			(void)close(fd);
		return err_set(f->err, -code, "cannot list %s: %s", f->store->path,
			       strerrordesc_np(code));
	}
	while ((de = readdir(dir)) != NULL) {
		if (!is_part(de->d_name))
			foreign(f, de->d_name);
	}
	return 0;
}

int cas_fsck(struct cas_store *store, const struct cas_fsck_options *opts,
	     struct cas_fsck_result *out, struct err *err)
{
	struct fsck f = {.store = store, .opts = opts, .err = err};
	struct err why = {0};
	int ret;

	if (opts->repair && store->read_only)
		return err_set(err, -EROFS, "cannot repair store %s: it is read-only", store->path);
	lock_init(&f.talk, LOCK_RANK_QUEUE, "fsck.talk");
	ret = cas_store_check_version(store, &why);
	if (ret < 0)
		fault(&f, "VERSION: %s", err_text(&why, ret));
	ret = cas_landing_settle(store, &why);
	if (ret < 0)
		fault(&f, "landing: %s", err_text(&why, ret));
	ret = check_top(&f);
	if (ret == 0) {
		run_threads(&f);
		ret = f.first_error;
	}
	lock_fini(&f.talk);
	if (ret < 0)
		return ret;
	*out = (struct cas_fsck_result){
		.blobs = atomic_load(&f.blobs),
		.bytes = atomic_load(&f.bytes),
		.disk = atomic_load(&f.disk),
		.faults = atomic_load(&f.faults),
		.repaired = atomic_load(&f.repaired),
		.foreign = atomic_load(&f.foreign),
	};
	return 0;
}
