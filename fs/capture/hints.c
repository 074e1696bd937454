/* fs/capture/hints.c - what is known of files that were hashed before anybody asked */
#include "fs/capture/hints.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>

#include "cas/cas.h"
#include "fs/capture/same_file.h"

#define KNOWN_MAX 32768
#define TIMES_MAX 3 /* a file that is written again and again is left alone */

struct file_key {
	uint64_t dev;
	uint64_t ino;
};

struct owner;

/* A file that is, or is being, hashed. */
struct known {
	TAILQ_ENTRY(known) age;
	LIST_ENTRY(known) of_owner;
	struct owner *owner;
	UT_hash_handle hh;
	struct file_key key;
	struct fs_early_hint hint;
	int64_t born_ns; /* inode numbers are used again; 0: not known */
	unsigned nr_times;
	bool busy;
	bool valid;
};

TAILQ_HEAD(known_list, known);

/* A sandbox with files that are known; it goes with the last of them. */
struct owner {
	UT_hash_handle hh;
	LIST_HEAD(, known) files;
	char id[];
};

struct fs_hints {
	struct lock lock; /* rank LEAF */
	pthread_cond_t done;
	struct known *known GUARDED_BY(lock);
	struct known_list ages GUARDED_BY(lock);
	struct owner *owners GUARDED_BY(lock);
	uint64_t nr_hashed GUARDED_BY(lock);
	uint64_t nr_used GUARDED_BY(lock);
};

static struct known *find_locked(struct fs_hints *hints, const struct stat *st)
	REQUIRES(hints->lock)
{
	const struct file_key key = {st->st_dev, st->st_ino};
	struct known *k;

	HASH_FIND(hh, hints->known, &key, sizeof(key), k);
	return k;
}

static struct owner *find_owner_locked(struct fs_hints *hints, const char *id) REQUIRES(hints->lock)
{
	struct owner *o;

	HASH_FIND_STR(hints->owners, id, o);
	return o;
}

static struct owner *make_owner_locked(struct fs_hints *hints, const char *id) REQUIRES(hints->lock)
{
	size_t len = strlen(id);
	struct owner *o = find_owner_locked(hints, id);

	if (o)
		return o;
	o = calloc(1, sizeof(*o) + len + 1);
	if (!o)
		return NULL;
	memcpy(o->id, id, len);
	HASH_ADD_KEYPTR(hh, hints->owners, o->id, len, o);
	if (!o->hh.tbl) {
		free(o);
		return NULL;
	}
	return o;
}

static void drop_owner_locked(struct fs_hints *hints, struct owner *o) REQUIRES(hints->lock)
{
	if (!LIST_EMPTY(&o->files))
		return;
	HASH_DEL(hints->owners, o);
	free(o);
}

/* @k is, from now on, a file of @o: inode numbers are used again. */
static void give_locked(struct fs_hints *hints, struct known *k, struct owner *o)
	REQUIRES(hints->lock)
{
	struct owner *old = k->owner;

	if (old == o)
		return;
	if (old)
		LIST_REMOVE(k, of_owner);
	LIST_INSERT_HEAD(&o->files, k, of_owner);
	k->owner = o;
	if (old)
		drop_owner_locked(hints, old);
}

static void forget_locked(struct fs_hints *hints, struct known *k) REQUIRES(hints->lock)
{
	LIST_REMOVE(k, of_owner);
	drop_owner_locked(hints, k->owner);
	HASH_DEL(hints->known, k);
	TAILQ_REMOVE(&hints->ages, k, age);
	free(k);
}

static struct known *add_locked(struct fs_hints *hints, const struct stat *st, struct owner *o)
	REQUIRES(hints->lock)
{
	struct known *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->key = (struct file_key){st->st_dev, st->st_ino};
	HASH_ADD(hh, hints->known, key, sizeof(k->key), k);
	if (!k->hh.tbl) {
		free(k);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&hints->ages, k, age);
	give_locked(hints, k, o);
	return k;
}

static int64_t born_ns(int fd)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BTIME, &stx) < 0 ||
	    !(stx.stx_mask & STATX_BTIME))
		return 0;
	return stx.stx_btime.tv_sec * 1000000000 + stx.stx_btime.tv_nsec;
}

static struct known *find_or_add_locked(struct fs_hints *hints, const char *id,
					const struct stat *st) REQUIRES(hints->lock)
{
	struct known *k = find_locked(hints, st);
	struct owner *o;

	/* The thread adds them, and is busy with none now. It may be the last of this owner. */
	if (!k && HASH_COUNT(hints->known) >= KNOWN_MAX)
		forget_locked(hints, TAILQ_FIRST(&hints->ages));
	o = make_owner_locked(hints, id);
	if (!o)
		return NULL;
	if (k)
		give_locked(hints, k, o);
	else
		k = add_locked(hints, st, o);
	if (!k)
		drop_owner_locked(hints, o);
	return k;
}

bool fs_hints_begin(struct fs_hints *hints, const char *id, int fd, const struct stat *st)
{
	int64_t born = born_ns(fd);
	struct known *k;
	bool go = false;

	lock_take(&hints->lock);
	k = find_or_add_locked(hints, id, st);
	if (k && k->born_ns != born) {
		k->born_ns = born;
		k->nr_times = 0;
	}
	if (k && !(k->valid && fs_same_file(&k->hint.known.st, st)) && k->nr_times < TIMES_MAX) {
		k->valid = false;
		k->busy = true;
		k->nr_times++;
		go = true;
	}
	lock_drop(&hints->lock);
	return go;
}

void fs_hints_end(struct fs_hints *hints, const struct stat *st, const struct fs_early_hint *hint)
{
	struct known *k;

	lock_take(&hints->lock);
	k = find_locked(hints, st);
	k->busy = false;
	if (hint) {
		k->valid = true;
		hints->nr_hashed++;
		k->hint = *hint;
	}
	(void)pthread_cond_broadcast(&hints->done);
	lock_drop(&hints->lock);
}

int fs_hints_find(struct fs_hints *hints, const struct stat *st, void (*hurry)(void *ctx),
		  void *ctx, struct fs_early_hint *out)
{
	struct known *k;
	bool hurried = false;
	int ret = 0;

	lock_take(&hints->lock);
	k = find_locked(hints, st);
	while (k && k->busy) {
		if (!hurried)
			hurry(ctx);
		hurried = true;
		(void)lock_wait(&hints->lock, &hints->done, 0);
		k = find_locked(hints, st);
	}
	if (k && k->valid && fs_same_file(&k->hint.known.st, st)) {
		*out = k->hint;
		hints->nr_used++;
		ret = 1;
	}
	lock_drop(&hints->lock);
	return ret;
}

void fs_hints_forget(struct fs_hints *hints, const char *id)
{
	struct known *k = NULL;
	struct known *next;
	struct owner *o;

	lock_take(&hints->lock);
	o = find_owner_locked(hints, id);
	if (o)
		k = LIST_FIRST(&o->files);
	/* The owner goes with the last one. */
	for (; k; k = next) {
		next = LIST_NEXT(k, of_owner);
		if (!k->busy)
			forget_locked(hints, k);
	}
	lock_drop(&hints->lock);
}

void fs_hints_count(struct fs_hints *hints, struct fs_early_counts *out)
{
	lock_take(&hints->lock);
	out->nr_hashed = hints->nr_hashed;
	out->nr_used = hints->nr_used;
	out->nr_known = HASH_COUNT(hints->known);
	lock_drop(&hints->lock);
}

NO_LOCK_CHECK int fs_hints_new(struct fs_hints **out)
{
	struct fs_hints *hints = calloc(1, sizeof(*hints));

	if (!hints)
		return -ENOMEM;
	TAILQ_INIT(&hints->ages);
	lock_init(&hints->lock, LOCK_RANK_LEAF, "early hashes");
	lock_cond_init(&hints->done);
	*out = hints;
	return 0;
}

NO_LOCK_CHECK void fs_hints_free(struct fs_hints *hints)
{
	if (!hints)
		return;
	while (!TAILQ_EMPTY(&hints->ages))
		forget_locked(hints, TAILQ_FIRST(&hints->ages));
	(void)pthread_cond_destroy(&hints->done);
	lock_fini(&hints->lock);
	free(hints);
}
