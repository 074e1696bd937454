/* meta/index/dirs.c - directories by digest, ready to be searched */
/*
 * A directory is looked for, in this order: among those held in memory; among those
 * packed lately; in the index, in place; at last in the store, from where it is packed,
 * remembered and queued for the index. Once the index has it the memory is given back;
 * where there is no writer (READER, CLIENT) the least recently used go first.
 *
 * Packed bytes are counted and immutable, so the lock only covers finding them. Two
 * threads that miss the same directory both load it: the second one's work is dropped.
 */
#include "meta/index/dirs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "meta/index/index.h"
#include "meta/index/packed_dir.h"
#include "meta/index/table_i.h"
#include "meta/ledger/queue.h"
#include "meta/meta_i.h"

#define CACHE_BYTES_MAX	 ((size_t)64 << 20)
#define LOADED_NODES_MAX 4096
#define LIST_BATCH	 64

static_assert(sizeof(struct cas_digest) == CAS_HASH_SZ + 8, "a key without padding");

struct held_dir {
	UT_hash_handle hh;
	struct cas_digest digest;
	struct meta_packed *packed;
	uint64_t nr_holds;
};

struct cached_dir {
	UT_hash_handle hh;
	TAILQ_ENTRY(cached_dir) lru; /* the head was used longest ago */
	struct cas_digest digest;
	struct meta_packed *packed;
};

TAILQ_HEAD(cached_list, cached_dir);

struct meta_dirs {
	struct lock lock;
	struct held_dir *held GUARDED_BY(lock);
	struct cached_dir *cached GUARDED_BY(lock);
	struct cached_list lru GUARDED_BY(lock);
	size_t cached_bytes GUARDED_BY(lock);
	/* What was decoded last, for who needs all of it next: to read it twice takes 25 us. */
	struct cas_digest loaded_digest GUARDED_BY(lock);
	struct cas_directory *loaded GUARDED_BY(lock);
};

int meta_dirs_new(struct meta_dirs **out)
{
	struct meta_dirs *dirs = calloc(1, sizeof(*dirs));

	if (!dirs)
		return -ENOMEM;
	lock_init(&dirs->lock, LOCK_RANK_LEAF, "meta_dirs.lock");
	lock_take(&dirs->lock);
	TAILQ_INIT(&dirs->lru);
	lock_drop(&dirs->lock);
	*out = dirs;
	return 0;
}

static void cached_del_locked(struct meta_dirs *dirs, struct cached_dir *dir) REQUIRES(dirs->lock)
{
	HASH_DEL(dirs->cached, dir);
	TAILQ_REMOVE(&dirs->lru, dir, lru);
	dirs->cached_bytes -= dir->packed->len;
	meta_packed_unref(dir->packed);
	free(dir);
}

static void held_del_locked(struct meta_dirs *dirs, struct held_dir *dir) REQUIRES(dirs->lock)
{
	HASH_DEL(dirs->held, dir);
	meta_packed_unref(dir->packed);
	free(dir);
}

void meta_dirs_free(struct meta_dirs *dirs)
{
	struct held_dir *held, *next;

	if (!dirs)
		return;
	lock_take(&dirs->lock);
	while (!TAILQ_EMPTY(&dirs->lru))
		cached_del_locked(dirs, TAILQ_FIRST(&dirs->lru));
	HASH_ITER (hh, dirs->held, held, next)
		held_del_locked(dirs, held);
	cas_directory_free(steal_ptr(&dirs->loaded));
	lock_drop(&dirs->lock);
	lock_fini(&dirs->lock);
	free(dirs);
}

static struct cached_dir *cached_find_locked(struct meta_dirs *dirs,
					     const struct cas_digest *digest) REQUIRES(dirs->lock)
{
	struct cached_dir *dir;

	HASH_FIND(hh, dirs->cached, digest, sizeof(*digest), dir);
	return dir;
}

static struct held_dir *held_find_locked(struct meta_dirs *dirs, const struct cas_digest *digest)
	REQUIRES(dirs->lock)
{
	struct held_dir *dir;

	HASH_FIND(hh, dirs->held, digest, sizeof(*digest), dir);
	return dir;
}

/* A counted reference, or NULL. */
static struct meta_packed *memory_get(struct meta_dirs *dirs, const struct cas_digest *digest)
{
	struct meta_packed *packed = NULL;
	struct cached_dir *cached;
	struct held_dir *held;

	lock_take(&dirs->lock);
	held = held_find_locked(dirs, digest);
	cached = held ? NULL : cached_find_locked(dirs, digest);
	if (held) {
		packed = meta_packed_ref(held->packed);
	} else if (cached) {
		packed = meta_packed_ref(cached->packed);
		TAILQ_REMOVE(&dirs->lru, cached, lru);
		TAILQ_INSERT_TAIL(&dirs->lru, cached, lru);
	}
	lock_drop(&dirs->lock);
	return packed;
}

/* Room for @len more bytes; one directory may be larger than all that is allowed. */
static void cache_trim_locked(struct meta_dirs *dirs, size_t len) REQUIRES(dirs->lock)
{
	while (dirs->cached_bytes > 0 && dirs->cached_bytes + len > CACHE_BYTES_MAX)
		cached_del_locked(dirs, TAILQ_FIRST(&dirs->lru));
}

/* Remember it; failing to is no loss. */
static void memory_add(struct meta_dirs *dirs, const struct cas_digest *digest,
		       struct meta_packed *packed)
{
	struct cached_dir *dir = calloc(1, sizeof(*dir));

	if (!dir)
		return;
	dir->digest = *digest;
	lock_take(&dirs->lock);
	if (cached_find_locked(dirs, digest) == NULL) {
		cache_trim_locked(dirs, packed->len);
		HASH_ADD(hh, dirs->cached, digest, sizeof(dir->digest), dir);
		if (dir->hh.tbl) {
			dir->packed = meta_packed_ref(packed);
			TAILQ_INSERT_TAIL(&dirs->lru, dir, lru);
			dirs->cached_bytes += packed->len;
			dir = NULL;
		}
	}
	lock_drop(&dirs->lock);
	free(dir);
}

void meta_dirs_recorded(struct meta_dirs *dirs, const struct cas_digest *digest)
{
	struct cached_dir *dir;

	lock_take(&dirs->lock);
	dir = cached_find_locked(dirs, digest);
	if (dir)
		cached_del_locked(dirs, dir);
	lock_drop(&dirs->lock);
}

static void queue_packed(struct meta *meta, const struct cas_digest *digest,
			 struct meta_packed *packed)
{
	struct meta_row *row;

	if (meta->opts.mode != META_WRITER)
		return;
	row = meta_row_new(META_ROW_DIR, digest);
	if (!row)
		return;
	row->dir = meta_packed_ref(packed);
	meta_queue_push(meta->queue, row);
}

/* Keep @dir, or free it when it is large. */
static void keep_loaded(struct meta_dirs *dirs, const struct cas_digest *digest,
			struct cas_directory *dir)
{
	struct cas_directory *old;

	if (dir->nr_nodes <= LOADED_NODES_MAX) {
		lock_take(&dirs->lock);
		old = dirs->loaded;
		dirs->loaded = dir;
		dir = old;
		dirs->loaded_digest = *digest;
		lock_drop(&dirs->lock);
	}
	cas_directory_free(dir);
}

int meta_dir_load(struct meta *meta, const struct cas_digest *digest, struct cas_directory **out,
		  struct err *err)
{
	struct meta_dirs *dirs = meta->dirs;
	struct cas_directory *dir = NULL;

	lock_take(&dirs->lock);
	if (dirs->loaded && cas_digest_equal(&dirs->loaded_digest, digest))
		dir = steal_ptr(&dirs->loaded);
	lock_drop(&dirs->lock);
	if (dir == NULL)
		return cas_directory_load(meta->store, digest, out, err);
	*out = dir;
	return 0;
}

static int load(struct meta *meta, const struct cas_digest *digest, struct meta_packed **out,
		struct err *err)
{
	struct cas_directory *dir;
	struct meta_packed *packed;
	int ret = cas_directory_load(meta->store, digest, &dir, err);

	if (ret < 0)
		return ret;
	ret = meta_packed_new(dir, digest, &packed);
	if (ret < 0) {
		cas_directory_free(dir);
		return err_set(err, ret, "cannot pack directory %s: %s", CAS_DIGEST_TEXT(digest),
			       strerror(-ret));
	}
	keep_loaded(meta->dirs, digest, dir);
	memory_add(meta->dirs, digest, packed);
	queue_packed(meta, digest, packed);
	*out = packed;
	return 0;
}

/* A question to a directory: 0 or more is its answer, -EUCLEAN: the bytes are damaged. */
struct question {
	const struct cas_digest *digest;
	int (*ask)(void *ctx, const struct meta_packed_view *view);
	void *ctx;
};

static int ask_bytes(void *ctx, const void *data, size_t len)
{
	const struct question *q = ctx;
	struct meta_packed_view view;
	int ret = meta_packed_view_init(&view, q->digest, data, len);

	return ret < 0 ? ret : q->ask(q->ctx, &view);
}

static void warn_damaged(const struct cas_digest *digest)
{
	log_warn("index: directory %s is damaged there; reading it anew", CAS_DIGEST_TEXT(digest));
}

static int ask_packed(struct question *q, struct meta_packed *packed)
{
	int ret = ask_bytes(q, packed->data, packed->len);

	meta_packed_unref(packed);
	return ret;
}

/* 1 and the answer in *ret, 0: not known without the store. */
static int ask_known(struct meta *meta, struct question *q, int *ret)
{
	struct meta_packed *packed = memory_get(meta->dirs, q->digest);

	if (packed) {
		*ret = ask_packed(q, packed);
		return 1;
	}
	if (meta_index_dir_use(meta_index_of(meta), q->digest, ask_bytes, q, ret) != 1)
		return 0;
	if (*ret != -EUCLEAN)
		return 1;
	warn_damaged(q->digest);
	return 0;
}

static int ask(struct meta *meta, struct question *q, struct err *err)
{
	struct meta_packed *packed;
	int ret;

	if (ask_known(meta, q, &ret) == 1)
		return ret;
	ret = load(meta, q->digest, &packed, err);
	return ret < 0 ? ret : ask_packed(q, packed);
}

static int copy_bytes(void *ctx, const void *data, size_t len)
{
	struct meta_packed **out = ctx;
	struct meta_packed *copy = malloc(sizeof(*copy) + len);

	if (!copy)
		return -ENOMEM;
	atomic_init(&copy->refs, 1);
	copy->len = len;
	memcpy(copy->data, data, len);
	*out = copy;
	return 0;
}

static int packed_check(const struct meta_packed *packed, const struct cas_digest *digest)
{
	struct meta_packed_view view;
	int ret = meta_packed_view_init(&view, digest, packed->data, packed->len);

	return ret < 0 ? ret : meta_packed_view_check(&view);
}

int meta_dirs_get(struct meta *meta, const struct cas_digest *digest, struct meta_packed **out,
		  struct err *err)
{
	struct meta_packed *packed = memory_get(meta->dirs, digest);
	int ret = 0;

	if (!packed &&
	    meta_index_dir_use(meta_index_of(meta), digest, copy_bytes, &packed, &ret) == 1) {
		if (ret < 0)
			return ret;
		if (packed_check(packed, digest) < 0) {
			warn_damaged(digest);
			meta_packed_unref(packed);
			packed = NULL;
		}
	}
	if (!packed)
		return load(meta, digest, out, err);
	*out = packed;
	return 0;
}

struct find {
	const char *name;
	struct meta_dirent *out;
};

static int ask_find(void *ctx, const struct meta_packed_view *view)
{
	struct find *find = ctx;

	return meta_packed_view_find(view, find->name, find->out);
}

int meta_dir_find(struct meta *meta, const struct cas_digest *dir, const char *name,
		  struct meta_dirent *out, struct err *err)
{
	struct find find = {.name = name, .out = out};
	struct question q = {.digest = dir, .ask = ask_find, .ctx = &find};

	return cas_digest_is_empty(dir) ? 0 : ask(meta, &q, err);
}

static int ask_info(void *ctx, const struct meta_packed_view *view)
{
	struct meta_dirinfo *out = ctx;

	*out = view->info;
	return 0;
}

int meta_dir_info(struct meta *meta, const struct cas_digest *dir, struct meta_dirinfo *out,
		  struct err *err)
{
	struct question q = {.digest = dir, .ask = ask_info, .ctx = out};

	if (cas_digest_is_empty(dir)) {
		*out = (struct meta_dirinfo){0};
		return 0;
	}
	return ask(meta, &q, err);
}

int meta_dirs_info_known(struct meta *meta, const struct cas_digest *dir, struct meta_dirinfo *out)
{
	struct question q = {.digest = dir, .ask = ask_info, .ctx = out};
	int ret;

	return ask_known(meta, &q, &ret) == 1 ? (ret < 0 ? ret : 1) : 0;
}

/* Some entries, copied out, so that no lock and no transaction is held over a callback. */
struct batch {
	uint64_t start;
	int nr;
	struct meta_dirent entries[LIST_BATCH];
};

static void batch_clear(struct batch *batch)
{
	for (int i = 0; i < batch->nr; i++)
		meta_dirent_fini(&batch->entries[i]);
	batch->nr = 0;
}

static int ask_list(void *ctx, const struct meta_packed_view *view)
{
	struct batch *batch = ctx;

	while (batch->nr < LIST_BATCH && batch->start + (uint64_t)batch->nr < view->nr_entries) {
		uint32_t index = (uint32_t)(batch->start + (uint64_t)batch->nr);
		int ret = meta_packed_view_get(view, index, &batch->entries[batch->nr]);

		if (ret < 0) {
			batch_clear(batch);
			return ret;
		}
		batch->nr++;
	}
	return 0;
}

int meta_dir_list(struct meta *meta, const struct cas_digest *dir, uint64_t start,
		  int (*each)(void *ctx, uint64_t index, const struct meta_dirent *entry),
		  void *ctx, struct err *err)
{
	auto_free struct batch *batch = NULL;
	struct question q = {.digest = dir, .ask = ask_list};
	int ret, nr;

	if (cas_digest_is_empty(dir))
		return 0;
	batch = malloc(sizeof(*batch));
	if (!batch)
		return -ENOMEM;
	q.ctx = batch;
	do {
		batch->start = start;
		batch->nr = 0;
		ret = ask(meta, &q, err);
		nr = batch->nr;
		for (int i = 0; ret == 0 && i < nr; i++)
			ret = each(ctx, start + (uint64_t)i, &batch->entries[i]);
		batch_clear(batch);
		start += (uint64_t)nr;
	} while (ret == 0 && nr == LIST_BATCH);
	return ret < 0 ? ret : 0;
}

static int hold_packed(struct meta_dirs *dirs, const struct cas_digest *digest,
		       struct meta_packed *packed)
{
	struct held_dir *fresh = calloc(1, sizeof(*fresh)), *dir;
	int ret = 0;

	if (!fresh)
		return -ENOMEM;
	fresh->digest = *digest;
	fresh->nr_holds = 1;
	lock_take(&dirs->lock);
	dir = held_find_locked(dirs, digest);
	if (dir) {
		dir->nr_holds++;
	} else {
		HASH_ADD(hh, dirs->held, digest, sizeof(fresh->digest), fresh);
		ret = fresh->hh.tbl ? 0 : -ENOMEM;
		if (ret == 0) {
			fresh->packed = meta_packed_ref(packed);
			fresh = NULL;
		}
	}
	lock_drop(&dirs->lock);
	free(fresh);
	return ret;
}

int meta_dir_hold(struct meta *meta, struct cas_directory *dir, struct cas_digest *digest,
		  struct err *err)
{
	auto_buf struct buf encoded = {0};
	struct meta_packed *packed;
	struct cas_digest got;
	int ret = cas_directory_encode(dir, &encoded, &got, err);

	if (ret < 0)
		return ret;
	if (!cas_digest_is_empty(&got)) {
		ret = meta_packed_new(dir, &got, &packed);
		if (ret == 0) {
			ret = hold_packed(meta->dirs, &got, packed);
			meta_packed_unref(packed);
		}
		if (ret < 0)
			return err_set(err, ret, "cannot hold directory %s: %s",
				       CAS_DIGEST_TEXT(&got), strerror(-ret));
	}
	*digest = got;
	return 0;
}

void meta_dir_release(struct meta *meta, const struct cas_digest *digest)
{
	struct held_dir *dir;

	lock_take(&meta->dirs->lock);
	dir = held_find_locked(meta->dirs, digest);
	if (dir && --dir->nr_holds == 0)
		held_del_locked(meta->dirs, dir);
	lock_drop(&meta->dirs->lock);
}
