/* fs/learn/ahead.c - from paths to the blobs that are not here */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cas/cas.h"
#include "fs/learn/learn_i.h"
#include "meta/meta.h"

/*
 * All paths are followed at the same time, as far as Directories are here; those that are
 * missing then are fetched together, and so on: a round trip or two for each level, and
 * only for what the paths need.
 */

#define BYTES_MAX (UINT64_C(4) << 30) /* of files, for one sandbox */

struct item {
	const char *path;
	const char *rest;     /* of it; NULL: it leads nowhere */
	struct cas_digest at; /* a Directory; with nothing left, the file */
};

/* A Directory that was missing. */
struct tried {
	UT_hash_handle hh;
	struct cas_digest digest;
	unsigned round;
};

struct finder {
	struct meta *meta;
	struct tried *tried;
	struct cas_digest *missing; /* of this round */
	size_t nr_missing;
	unsigned round;
};

static void finder_fini(struct finder *f)
{
	struct tried *t;
	struct tried *next;

	HASH_ITER (hh, f->tried, t, next) {
		HASH_DEL(f->tried, t);
		free(t);
	}
	free(f->missing);
}

/* True: it is fetched before the next round. */
static bool want_directory(struct finder *f, const struct cas_digest *digest)
{
	struct tried *t;

	HASH_FIND(hh, f->tried, digest, sizeof(*digest), t);
	if (t)
		return t->round == f->round;
	t = malloc(sizeof(*t));
	if (!t)
		return false;
	t->digest = *digest;
	t->round = f->round;
	HASH_ADD(hh, f->tried, digest, sizeof(t->digest), t);
	if (!t->hh.tbl) {
		free(t);
		return false;
	}
	f->missing[f->nr_missing++] = *digest;
	return true;
}

/* One name further; false: not in this round. */
static bool step(struct finder *f, struct item *item)
{
	size_t len = strcspn(item->rest, "/");
	bool is_last = item->rest[len] == '\0';
	char name[CAS_NAME_MAX + 1];
	struct meta_dirent ent;
	struct cas_digest missing;
	struct err err = {0};
	int ret = -ENOENT;

	if (len > 0 && len < sizeof(name)) {
		memcpy(name, item->rest, len);
		name[len] = '\0';
		ret = meta_dir_find(f->meta, &item->at, name, &ent, &err);
	}
	if (ret < 0 && cas_err_missing(&err, &missing) && want_directory(f, &missing))
		return false;
	if (ret != 1) {
		item->rest = NULL;
		return false;
	}
	item->at = ent.digest;
	item->rest = ent.kind == (is_last ? CAS_NODE_FILE : CAS_NODE_DIRECTORY)
			     ? item->rest + len + !is_last
			     : NULL;
	meta_dirent_fini(&ent);
	return item->rest && !is_last;
}

/* As far as the Directories go that can be had. */
static int follow(struct finder *f, struct cas_fetch *fetch, struct item *items, size_t nr,
		  const _Atomic bool *stop)
{
	int ret = 0;

	do {
		f->nr_missing = 0;
		f->round++;
		for (size_t i = 0; i < nr; i++) {
			while (items[i].rest && items[i].rest[0] && step(f, &items[i]))
				;
		}
		if (f->nr_missing > 0)
			ret = cas_fetch_ahead(fetch, f->missing, f->nr_missing, stop);
	} while (ret == 0 && f->nr_missing > 0);
	return ret;
}

static int add_blob(struct fs_ahead *ahead, const struct item *item, uint64_t *bytes)
{
	size_t len = strlen(item->path);
	struct fs_ahead_blob *blob;

	HASH_FIND(hh, ahead->blobs, &item->at, sizeof(item->at), blob);
	if (blob || *bytes + item->at.size > BYTES_MAX)
		return 0;
	blob = calloc(1, sizeof(*blob) + len + 1);
	if (!blob)
		return -ENOMEM;
	blob->digest = item->at;
	memcpy(blob->path, item->path, len);
	HASH_ADD(hh, ahead->blobs, digest, sizeof(blob->digest), blob);
	if (!blob->hh.tbl) {
		free(blob);
		return -ENOMEM;
	}
	*bytes += item->at.size;
	return 0;
}

int fs_ahead_find(struct cas_store *store, struct meta *meta, struct cas_fetch *fetch,
		  struct fs_ahead *ahead)
{
	auto_free struct item *items = calloc(ahead->nr_paths + 1, sizeof(*items));
	struct finder f = {.meta = meta};
	uint64_t bytes = 0;
	int ret = 0;

	/* No more than one for each path at a time. */
	f.missing = calloc(ahead->nr_paths + 1, sizeof(*f.missing));
	if (!items || !f.missing) {
		finder_fini(&f);
		return -ENOMEM;
	}
	for (size_t i = 0; i < ahead->nr_paths; i++)
		items[i] = (struct item){ahead->paths[i], ahead->paths[i], ahead->root};
	ret = follow(&f, fetch, items, ahead->nr_paths, &ahead->stop);
	for (size_t i = 0; ret == 0 && i < ahead->nr_paths; i++) {
		if (items[i].rest && cas_store_has(store, &items[i].at) == 0)
			ret = add_blob(ahead, &items[i], &bytes);
	}
	finder_fini(&f);
	return ret;
}

int fs_ahead_digests(const struct fs_ahead *ahead, struct cas_digest **out, size_t *nr)
{
	size_t max = HASH_COUNT(ahead->blobs);
	struct cas_digest *digests = calloc(max + 1, sizeof(*digests));

	if (!digests)
		return -ENOMEM;
	*nr = 0;
	for (const struct fs_ahead_blob *b = ahead->blobs; b; b = b->hh.next)
		digests[(*nr)++] = b->digest;
	*out = digests;
	return 0;
}

void fs_ahead_blobs_free(struct fs_ahead_blob **blobs)
{
	struct fs_ahead_blob *b;
	struct fs_ahead_blob *next;

	HASH_ITER (hh, *blobs, b, next) {
		HASH_DEL(*blobs, b);
		free(b);
	}
}

void fs_ahead_free(struct fs_ahead *ahead)
{
	if (!ahead)
		return;
	for (size_t i = 0; i < ahead->nr_paths; i++)
		free(ahead->paths[i]);
	free(ahead->paths);
	free(ahead->id);
	fs_ahead_blobs_free(&ahead->blobs);
	free(ahead);
}

/* ---- the threads that fetch ---- */

static struct fs_ahead *next_locked(struct fs_learn *l) REQUIRES(l->lock)
{
	struct fs_ahead *ahead;

	DL_FOREACH (l->aheads, ahead) {
		if (!ahead->running)
			return ahead;
	}
	return NULL;
}

static void run_ahead(struct fs_learn *l, struct fs_ahead *ahead)
{
	auto_free struct cas_digest *digests = NULL;
	size_t nr = 0;

	if (fs_ahead_find(l->store, l->meta, l->fetch, ahead) < 0)
		return;
	if (fs_ahead_digests(ahead, &digests, &nr) < 0)
		return;
	fs_learn_hand_over(l, ahead->id, steal_ptr(&ahead->blobs));
	(void)cas_fetch_ahead(l->fetch, digests, nr, &ahead->stop);
}

void *fs_learn_fetcher(void *learn)
{
	struct fs_learn *l = learn;

	cas_fetch_never_here(true);
	lock_take(&l->lock);
	while (!l->ending) {
		struct fs_ahead *ahead = next_locked(l);

		if (!ahead) {
			(void)lock_wait(&l->lock, &l->work, 0);
			continue;
		}
		ahead->running = true;
		lock_drop(&l->lock);
		run_ahead(l, ahead);
		lock_take(&l->lock);
		DL_DELETE(l->aheads, ahead);
		fs_ahead_free(ahead);
	}
	lock_drop(&l->lock);
	return NULL;
}
