/* fs/sandbox/missed.c - names that sandboxes looked for in vain */
#include "fs/sandbox/missed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Out of memory is an error to return, not the end of the process. */
#define HASH_NONFATAL_OOM 1
/* Its default hash falls through switch labels, which we do not allow. */
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>

#include "cas/cas.h"

#define NR_KEPT	  16384
#define PATH_LONG 1024 /* longer ones are not kept */
#define FILE_MAX  ((size_t)NR_KEPT * PATH_LONG)

struct name {
	UT_hash_handle hh;
	char path[];
};

struct fs_missed {
	struct lock lock; /* rank QUEUE */
	struct name *by_path GUARDED_BY(lock);
	struct name *ring[NR_KEPT] GUARDED_BY(lock); /* in order of arrival, from @next on */
	size_t next GUARDED_BY(lock);
	bool changed GUARDED_BY(lock);
};

static void drop_locked(struct fs_missed *missed, size_t at) REQUIRES(missed->lock)
{
	struct name *name = missed->ring[at];

	if (!name)
		return;
	HASH_DEL(missed->by_path, name);
	free(name);
	missed->ring[at] = NULL;
}

static void add_locked(struct fs_missed *missed, const char *path) REQUIRES(missed->lock)
{
	size_t len = strlen(path);
	struct name *name;

	HASH_FIND(hh, missed->by_path, path, len, name);
	if (name || len == 0 || len >= PATH_LONG)
		return;
	name = calloc(1, sizeof(*name) + len + 1);
	if (!name)
		return;
	memcpy(name->path, path, len + 1);
	HASH_ADD_KEYPTR(hh, missed->by_path, name->path, len, name);
	if (!name->hh.tbl) {
		free(name);
		return;
	}
	drop_locked(missed, missed->next);
	missed->ring[missed->next] = name;
	missed->next = (missed->next + 1) % NR_KEPT;
	missed->changed = true;
}

static void load(struct fs_missed *missed, struct cas_store *store)
{
	auto_buf struct buf text = {0};

	if (io_read_file(cas_store_dir_fd(store), "run/missed", FILE_MAX, &text) < 0)
		return;
	lock_take(&missed->lock);
	/* Each ends with a NUL, but for the last of a file that somebody cut. */
	for (size_t at = 0; at < text.len; at += strnlen(text.data + at, text.len - at) + 1) {
		if (memchr(text.data + at, '\0', text.len - at))
			add_locked(missed, text.data + at);
	}
	missed->changed = false;
	lock_drop(&missed->lock);
}

int fs_missed_new(struct cas_store *store, struct fs_missed **out)
{
	struct fs_missed *missed = calloc(1, sizeof(*missed));

	if (!missed)
		return -ENOMEM;
	lock_init(&missed->lock, LOCK_RANK_QUEUE, "missed names");
	load(missed, store);
	*out = missed;
	return 0;
}

NO_LOCK_CHECK void fs_missed_free(struct fs_missed *missed)
{
	if (!missed)
		return;
	for (size_t i = 0; i < NR_KEPT; i++)
		drop_locked(missed, i);
	lock_fini(&missed->lock);
	free(missed);
}

void fs_missed_note(struct fs_missed *missed, const char *path)
{
	lock_take(&missed->lock);
	add_locked(missed, path);
	lock_drop(&missed->lock);
}

/* Before the ring is full its empty places are the oldest. */
static size_t place_locked(const struct fs_missed *missed, size_t nth) REQUIRES(missed->lock)
{
	size_t first = missed->ring[missed->next] ? missed->next : 0;

	return (first + nth) % NR_KEPT;
}

char *fs_missed_get(struct fs_missed *missed, size_t nth)
{
	const struct name *name;
	char *path = NULL;

	if (nth >= NR_KEPT)
		return NULL;
	lock_take(&missed->lock);
	name = missed->ring[place_locked(missed, nth)];
	if (name)
		path = strdup(name->path);
	lock_drop(&missed->lock);
	return path;
}

static int collect(struct fs_missed *missed, struct buf *out)
{
	int ret = 0;

	lock_take(&missed->lock);
	for (size_t i = 0; ret == 0 && i < NR_KEPT; i++) {
		const struct name *name = missed->ring[place_locked(missed, i)];

		if (!name)
			break;
		ret = buf_append(out, name->path, strlen(name->path) + 1);
	}
	missed->changed = false;
	lock_drop(&missed->lock);
	return ret;
}

int fs_missed_save(struct fs_missed *missed, struct cas_store *store, struct err *err)
{
	auto_buf struct buf text = {0};
	auto_close int run_fd = -1;
	bool changed;
	int ret;

	lock_take(&missed->lock);
	changed = missed->changed;
	lock_drop(&missed->lock);
	if (!changed)
		return 0;
	run_fd = openat(cas_store_dir_fd(store), "run",
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	ret = run_fd < 0 ? -errno : collect(missed, &text);
	if (ret == 0)
		ret = io_replace_file(run_fd, "missed", text.data, text.len, 0600, false);
	return ret < 0 ? err_set(err, ret, "cannot keep %s/run/missed: %s", cas_store_path(store),
				 strerrordesc_np(-ret))
		       : 0;
}
