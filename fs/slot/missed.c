/* fs/slot/missed.c - names that sandboxes looked for in vain */
#include "fs/slot/missed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Out of memory is an error to return, not the end of the process. */
#define HASH_NONFATAL_OOM 1
/* Its default hash falls through switch labels, which we do not allow. */
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>
#include <utlist.h>

#include "cas/cas.h"

#define NR_KEPT	  16384
#define PATH_LONG 1024 /* longer ones are not kept */
#define FILE_MAX  ((size_t)NR_KEPT * PATH_LONG)

/* A directory in which names were missed; lives while it has any. */
struct folder {
	UT_hash_handle hh;
	struct name *names;
	char path[]; /* "" is the input root */
};

struct name {
	struct name *prev, *next; /* in its folder */
	struct folder *folder;
	char text[];
};

struct fs_missed {
	struct lock lock; /* rank QUEUE */
	struct folder *by_path GUARDED_BY(lock);
	struct name *ring[NR_KEPT] GUARDED_BY(lock); /* in order of arrival, from @next on */
	size_t next GUARDED_BY(lock);
	bool changed GUARDED_BY(lock);
};

static void reap_folder_locked(struct fs_missed *missed, struct folder *folder)
	REQUIRES(missed->lock)
{
	if (folder->names)
		return;
	HASH_DEL(missed->by_path, folder);
	free(folder);
}

static void drop_locked(struct fs_missed *missed, size_t at) REQUIRES(missed->lock)
{
	struct name *name = missed->ring[at];

	if (!name)
		return;
	DL_DELETE(name->folder->names, name);
	reap_folder_locked(missed, name->folder);
	free(name);
	missed->ring[at] = NULL;
}

/* NULL: no memory. */
static struct folder *folder_locked(struct fs_missed *missed, const char *path, size_t len)
	REQUIRES(missed->lock)
{
	struct folder *folder;

	HASH_FIND(hh, missed->by_path, path, len, folder);
	if (folder)
		return folder;
	folder = calloc(1, sizeof(*folder) + len + 1);
	if (!folder)
		return NULL;
	memcpy(folder->path, path, len);
	HASH_ADD_KEYPTR(hh, missed->by_path, folder->path, len, folder);
	if (!folder->hh.tbl) {
		free(folder);
		return NULL;
	}
	return folder;
}

static bool has_name(const struct folder *folder, const char *text)
{
	const struct name *name;

	DL_FOREACH (folder->names, name) {
		if (strcmp(name->text, text) == 0)
			return true;
	}
	return false;
}

static void add_locked(struct fs_missed *missed, const char *path) REQUIRES(missed->lock)
{
	const char *slash = strrchr(path, '/');
	const char *text = slash ? slash + 1 : path;
	struct folder *folder;
	struct name *name;

	if (text[0] == '\0' || strlen(path) >= PATH_LONG)
		return;
	folder = folder_locked(missed, path, slash ? (size_t)(slash - path) : 0);
	if (!folder || has_name(folder, text))
		return;
	name = calloc(1, sizeof(*name) + strlen(text) + 1);
	if (!name) {
		reap_folder_locked(missed, folder);
		return;
	}
	(void)strcpy(name->text, text);
	name->folder = folder;
	DL_APPEND(folder->names, name);
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

static char *path_of(const struct name *name)
{
	const char *folder = name->folder->path;
	char *path;

	if (asprintf(&path, "%s%s%s", folder, folder[0] ? "/" : "", name->text) < 0)
		return NULL;
	return path;
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
		path = path_of(name);
	lock_drop(&missed->lock);
	return path;
}

size_t fs_missed_in(struct fs_missed *missed, const char *dir, char **names, size_t max)
{
	struct folder *folder;
	struct name *name;
	size_t nr = 0;

	lock_take(&missed->lock);
	HASH_FIND(hh, missed->by_path, dir, strlen(dir), folder);
	for (name = folder ? folder->names : NULL; name && nr < max; name = name->next) {
		names[nr] = strdup(name->text);
		nr += names[nr] != NULL;
	}
	lock_drop(&missed->lock);
	return nr;
}

static int collect(struct fs_missed *missed, struct buf *out)
{
	char *path;
	int ret = 0;

	lock_take(&missed->lock);
	missed->changed = false;
	lock_drop(&missed->lock);
	for (size_t i = 0; ret == 0 && (path = fs_missed_get(missed, i)) != NULL; i++) {
		ret = buf_append(out, path, strlen(path) + 1);
		free(path);
	}
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
