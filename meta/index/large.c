/* meta/index/large.c - the large files of a tree, by its root digest */
/*
 * list(D) = the large files in D, and for each directory S in D those of list(S) with
 * S's name before them; the largest META_LARGE_MAX of all these. Most directories have
 * neither: their packed head says so, and nothing else of them is looked at.
 *
 * What a QUICK search may spend is counted in units of an entry looked at, some 50 ns.
 */
#include "meta/index/large.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "meta/index/packed_dir.h"
#include "meta/index/table_i.h"
#include "meta/meta_i.h"

#define CACHE_BYTES_MAX ((size_t)16 << 20)
#define QUICK_UNITS	2000
#define QUICK_LOADS	8	 /* directories read from the store */
#define WORK_NS		1000000L /* between rests of a THOROUGH one */
#define UNITS_A_DIR	16	 /* to find it, before its entries */
#define DEPTH_MAX	128	 /* what lies deeper is not looked at */

static_assert(sizeof(struct cas_digest) == CAS_HASH_SZ + 8, "a key without padding");

struct known {
	UT_hash_handle hh;
	TAILQ_ENTRY(known) lru; /* the head was used longest ago */
	struct cas_digest digest;
	struct meta_large_list *list;
	size_t bytes;
};

TAILQ_HEAD(known_list, known);

struct meta_large {
	struct meta *meta;
	uint64_t min_size;
	struct meta_large_list *none; /* what most directories have */
	_Atomic bool stop;
	struct lock lock;
	struct known *known GUARDED_BY(lock);
	struct known_list lru GUARDED_BY(lock);
	size_t bytes GUARDED_BY(lock);
};

static struct meta_large_list *list_ref(struct meta_large_list *list)
{
	atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
	return list;
}

void meta_large_unref(struct meta_large_list *list)
{
	/* Partner: the same decrement of the other holders. */
	if (list && atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) == 1)
		free(list);
}

/* The paths of @files are copied, in the memory of the list. */
static struct meta_large_list *list_new(const struct meta_large_file *files, size_t nr,
					size_t *bytes)
{
	struct meta_large_list *list;
	char *text;

	*bytes = sizeof(*list) + nr * sizeof(*files);
	for (size_t i = 0; i < nr; i++)
		*bytes += strlen(files[i].path) + 1;
	list = malloc(*bytes);
	if (!list)
		return NULL;
	atomic_init(&list->refs, 1);
	list->nr = nr;
	text = (char *)(list->files + nr);
	for (size_t i = 0; i < nr; i++) {
		list->files[i] = (struct meta_large_file){files[i].size, text};
		text = stpcpy(text, files[i].path) + 1;
	}
	return list;
}

int meta_large_new(struct meta *meta, uint64_t min_size, struct meta_large **out)
{
	struct meta_large *large = calloc(1, sizeof(*large));
	size_t bytes;

	if (!large)
		return -ENOMEM;
	large->none = list_new(NULL, 0, &bytes);
	if (!large->none) {
		free(large);
		return -ENOMEM;
	}
	large->meta = meta;
	large->min_size = min_size;
	lock_init(&large->lock, LOCK_RANK_LEAF, "meta_large.lock");
	lock_take(&large->lock);
	TAILQ_INIT(&large->lru);
	lock_drop(&large->lock);
	*out = large;
	return 0;
}

static void forget_locked(struct meta_large *large, struct known *k) REQUIRES(large->lock)
{
	HASH_DEL(large->known, k);
	TAILQ_REMOVE(&large->lru, k, lru);
	large->bytes -= k->bytes;
	meta_large_unref(k->list);
	free(k);
}

void meta_large_free(struct meta_large *large)
{
	if (!large)
		return;
	lock_take(&large->lock);
	while (!TAILQ_EMPTY(&large->lru))
		forget_locked(large, TAILQ_FIRST(&large->lru));
	lock_drop(&large->lock);
	lock_fini(&large->lock);
	meta_large_unref(large->none);
	free(large);
}

void meta_large_stop(struct meta_large *large)
{
	atomic_store(&large->stop, true);
}

static struct meta_large_list *recall(struct meta_large *large, const struct cas_digest *dir)
{
	struct meta_large_list *list = NULL;
	struct known *k;

	lock_take(&large->lock);
	HASH_FIND(hh, large->known, dir, sizeof(*dir), k);
	if (k) {
		list = list_ref(k->list);
		TAILQ_REMOVE(&large->lru, k, lru);
		TAILQ_INSERT_TAIL(&large->lru, k, lru);
	}
	lock_drop(&large->lock);
	return list;
}

/* Failing to is no loss. */
static void remember(struct meta_large *large, const struct cas_digest *dir,
		     struct meta_large_list *list, size_t bytes)
{
	struct known *k = calloc(1, sizeof(*k));
	struct known *other;

	if (!k)
		return;
	k->digest = *dir;
	k->bytes = bytes + sizeof(*k);
	lock_take(&large->lock);
	HASH_FIND(hh, large->known, dir, sizeof(*dir), other);
	if (!other) {
		while (large->bytes > 0 && large->bytes + k->bytes > CACHE_BYTES_MAX)
			forget_locked(large, TAILQ_FIRST(&large->lru));
		HASH_ADD(hh, large->known, digest, sizeof(k->digest), k);
		if (k->hh.tbl) {
			k->list = list_ref(list);
			large->bytes += k->bytes;
			TAILQ_INSERT_TAIL(&large->lru, k, lru);
			k = NULL;
		}
	}
	lock_drop(&large->lock);
	free(k);
}

/* --- search --- */

struct search {
	struct meta_large *large;
	bool quick; /* or less; then: */
	unsigned units_left;
	unsigned loads_left;
	unsigned long long rested_ns; /* else: when it last did */
	struct err *err;
};

/* The largest so far, in order; paths are owned. */
struct best {
	size_t nr;
	struct meta_large_file files[META_LARGE_MAX];
};

static void best_fini(struct best *best)
{
	for (size_t i = 0; i < best->nr; i++)
		free((char *)(uintptr_t)best->files[i].path);
}

static bool is_before(const struct meta_large_file *a, const struct meta_large_file *b)
{
	return a->size != b->size ? a->size > b->size : strcmp(a->path, b->path) < 0;
}

/* @rest NULL: @name is the file itself. */
static int best_add(struct best *best, const char *name, const char *rest, uint64_t size)
{
	struct meta_large_file file = {.size = size};
	size_t name_len = strlen(name);
	size_t at = best->nr;
	char *path;

	if (at == META_LARGE_MAX && size < best->files[at - 1].size)
		return 0;
	if (name_len + (rest ? strlen(rest) : 0) + 2 > PATH_MAX)
		return 0;
	path = malloc(name_len + (rest ? strlen(rest) : 0) + 2);
	if (!path)
		return -ENOMEM;
	memcpy(path, name, name_len + 1);
	if (rest) {
		path[name_len] = '/';
		(void)stpcpy(path + name_len + 1, rest);
	}
	file.path = path;
	while (at > 0 && is_before(&file, &best->files[at - 1]))
		at--;
	if (at == META_LARGE_MAX) {
		free(path);
		return 0;
	}
	if (best->nr == META_LARGE_MAX)
		free((char *)(uintptr_t)best->files[--best->nr].path);
	memmove(&best->files[at + 1], &best->files[at], (best->nr - at) * sizeof(file));
	best->files[at] = file;
	best->nr++;
	return 0;
}

/* Sandboxes are being made and used meanwhile. */
static void rest(struct search *s)
{
	const struct timespec pause = {.tv_nsec = 4 * WORK_NS};

	if (lock_now_ns() - s->rested_ns < WORK_NS)
		return;
	(void)nanosleep(&pause, NULL);
	s->rested_ns = lock_now_ns();
}

static int spend(struct search *s, uint64_t units)
{
	if (atomic_load_explicit(&s->large->stop, memory_order_relaxed))
		return -ECANCELED;
	if (!s->quick) {
		rest(s);
		return 0;
	}
	if (units > s->units_left)
		return -EAGAIN;
	s->units_left -= (unsigned)units;
	return 0;
}

static int get_info(struct search *s, const struct cas_digest *dir, struct meta_dirinfo *out)
{
	int ret = spend(s, UNITS_A_DIR);

	if (ret == 0 && s->quick) {
		ret = meta_dirs_info_known(s->large->meta, dir, out);
		if (ret != 0)
			return ret < 0 ? ret : 0;
		if (s->loads_left == 0)
			return -EAGAIN;
		s->loads_left--;
	}
	return ret < 0 ? ret : meta_dir_info(s->large->meta, dir, out, s->err);
}

/* May a directory have a large file itself? */
static bool may_have(const struct meta_dirinfo *info, uint64_t min_size)
{
	return info->file_bits == 0 || info->file_bits > 64 ||
	       UINT64_C(1) << (info->file_bits - 1) > min_size;
}

static int find_list(struct search *s, const struct cas_digest *dir, unsigned depth,
		     struct meta_large_list **out);

static int add_below(struct search *s, const struct meta_dirent *entry, unsigned depth,
		     struct best *best)
{
	struct meta_large_list *below;
	int ret = find_list(s, &entry->digest, depth + 1, &below);

	if (ret < 0)
		return ret;
	for (size_t i = 0; ret == 0 && i < below->nr; i++)
		ret = best_add(best, entry->name, below->files[i].path, below->files[i].size);
	meta_large_unref(below);
	return ret;
}

static int add_entry(struct search *s, const struct meta_packed_view *view, uint32_t index,
		     unsigned depth, struct best *best)
{
	auto_free struct meta_dirent *entry = malloc(sizeof(*entry));
	int ret = entry ? meta_packed_view_get(view, index, entry) : -ENOMEM;

	if (ret < 0)
		return ret;
	if (entry->kind == CAS_NODE_DIRECTORY)
		ret = add_below(s, entry, depth, best);
	else if (entry->kind == CAS_NODE_FILE && entry->digest.size >= s->large->min_size)
		ret = best_add(best, entry->name, NULL, entry->digest.size);
	meta_dirent_fini(entry);
	return ret;
}

static int add_entries(struct search *s, const struct cas_digest *dir, unsigned depth,
		       struct best *best)
{
	struct meta_packed_view view;
	struct meta_packed *packed;
	int ret = meta_dirs_get(s->large->meta, dir, &packed, s->err);

	if (ret < 0)
		return ret;
	ret = meta_packed_view_init(&view, dir, packed->data, packed->len);
	for (uint32_t i = 0; ret == 0 && i < view.nr_entries; i++)
		ret = add_entry(s, &view, i, depth, best);
	meta_packed_unref(packed);
	return ret;
}

/* A directory that is looked into. */
static int make_list(struct search *s, const struct cas_digest *dir, unsigned depth,
		     struct meta_large_list **out, size_t *bytes)
{
	auto_free struct best *best = calloc(1, sizeof(*best));
	int ret = best ? add_entries(s, dir, depth, best) : -ENOMEM;

	if (ret == 0 && best->nr > 0) {
		*out = list_new(best->files, best->nr, bytes);
		ret = *out ? 0 : -ENOMEM;
	} else if (ret == 0) {
		*out = list_ref(s->large->none);
	}
	if (best)
		best_fini(best);
	return ret;
}

static int find_list(struct search *s, const struct cas_digest *dir, unsigned depth,
		     struct meta_large_list **out)
{
	struct meta_large_list *list = recall(s->large, dir);
	struct meta_dirinfo info;
	size_t bytes = 0;
	int ret;

	if (!list && (cas_digest_is_empty(dir) || depth == DEPTH_MAX))
		list = list_ref(s->large->none);
	if (list) {
		*out = list;
		return 0;
	}
	ret = get_info(s, dir, &info);
	if (ret == 0 && info.nr_subdirs == 0 && !may_have(&info, s->large->min_size))
		list = list_ref(s->large->none);
	else if (ret == 0)
		ret = spend(s, info.nr_entries);
	if (ret == 0 && !list)
		ret = make_list(s, dir, depth, &list, &bytes);
	if (ret < 0)
		return ret;
	remember(s->large, dir, list, bytes);
	*out = list;
	return 0;
}

int meta_large_find(struct meta_large *large, const struct cas_digest *root,
		    enum meta_large_effort effort, struct meta_large_list **out, struct err *err)
{
	struct search s = {
		.large = large,
		.quick = effort != META_LARGE_THOROUGH,
		.units_left = QUICK_UNITS,
		.loads_left = effort == META_LARGE_QUICK ? QUICK_LOADS : 0,
		.rested_ns = lock_now_ns(),
		.err = err,
	};

	return find_list(&s, root, 0, out);
}
