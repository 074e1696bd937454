/* fs/learn/table.c - the habits of a store, and which of them fits */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "cas/cas.h"
#include "fs/learn/learn_i.h"

#define HABITS	   "run/habits"
#define HABITS_MAX 256
#define PATHS_MAX  (1u << 18) /* of all of them */
#define LIKE_SAME  25	      /* a root is of the same kind with the same outputs */
#define LIKE_OTHER 50	      /* with others */
#define VOTERS_MAX 4

/* ---- files ---- */

static void load(struct fs_habits *t, const char *name)
{
	auto_buf struct buf text = {0};
	struct fs_habit *habit = NULL;
	int ret = io_read_file(t->dir_fd, name, FS_HABIT_FILE_MAX, &text);

	if (ret == 0)
		ret = fs_habit_parse(buf_str(&text), text.len, &habit);
	if (ret == -EUCLEAN || ret == -EFBIG || ret == -EISDIR || ret == -ELOOP) {
		log_info("run/habits/%s is no habit: removed", name);
		(void)io_remove_tree(t->dir_fd, name, NULL);
	}
	if (ret < 0)
		return;
	(void)strcpy(habit->name, name);
	fs_habits_add(t, habit);
}

static int is_habit(const struct dirent *ent)
{
	return strlen(ent->d_name) == 32 && strspn(ent->d_name, "0123456789abcdef") == 32;
}

static int open_dir(int top_fd)
{
	int fd;

	if (mkdirat(top_fd, HABITS, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(top_fd, HABITS, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

int fs_habits_open(struct cas_store *store, struct fs_habits *t)
{
	int top_fd = cas_store_dir_fd(store);
	struct dirent **list = NULL;
	int nr;

	*t = (struct fs_habits){.dir_fd = -1};
	nr = open_dir(top_fd);
	if (nr == -ENOTDIR || nr == -ELOOP) {
		log_warn(HABITS " is no directory: removed, and made anew");
		(void)unlinkat(top_fd, HABITS, 0);
		nr = open_dir(top_fd);
	}
	if (nr < 0)
		return nr;
	t->dir_fd = nr;
	io_give_to_dir_owner(top_fd, HABITS);
	nr = scandirat(t->dir_fd, ".", &list, is_habit, alphasort);
	for (int i = 0; i < nr; i++) {
		load(t, list[i]->d_name);
		free(list[i]);
	}
	free(list);
	return 0;
}

void fs_habits_close(struct fs_habits *t)
{
	struct fs_habit *habit;
	struct fs_habit *next;

	DL_FOREACH_SAFE(t->all, habit, next)
	fs_habit_free(habit);
	if (t->dir_fd >= 0)
		(void)close(t->dir_fd);
	*t = (struct fs_habits){.dir_fd = -1};
}

void fs_habits_save(struct fs_habits *t, struct fs_habit *habit)
{
	auto_buf struct buf text = {0};
	int ret;

	if (!habit->changed || t->dir_fd < 0 || fs_habit_count(habit) == 0)
		return;
	ret = fs_habit_format(habit, &text);
	if (ret == 0)
		ret = io_replace_file(t->dir_fd, habit->name, text.data, text.len, 0600, false);
	if (ret < 0)
		log_info("cannot keep run/habits/%s: %s", habit->name, strerrordesc_np(-ret));
	else
		habit->changed = false;
}

/* ---- the table ---- */

static void count_paths(struct fs_habits *t)
{
	struct fs_habit *habit;

	t->nr_paths = 0;
	DL_FOREACH (t->all, habit)
		t->nr_paths += fs_habit_count(habit);
}

/* The oldest that no sandbox adds to. */
static bool drop_one(struct fs_habits *t)
{
	struct fs_habit *habit = t->all ? t->all->prev : NULL;

	while (habit && habit->nr_users > 0)
		habit = habit == t->all ? NULL : habit->prev;
	if (!habit || habit == t->all)
		return false;
	DL_DELETE(t->all, habit);
	t->nr--;
	if (t->dir_fd >= 0)
		(void)unlinkat(t->dir_fd, habit->name, 0);
	fs_habit_free(habit);
	return true;
}

void fs_habits_add(struct fs_habits *t, struct fs_habit *habit)
{
	DL_PREPEND(t->all, habit);
	t->nr++;
	count_paths(t);
	while ((t->nr > HABITS_MAX || t->nr_paths > PATHS_MAX) && drop_one(t))
		count_paths(t);
}

struct fs_habit *fs_habits_find(struct fs_habits *t, const struct cas_digest *outputs,
				const struct fs_habit_tops *tops)
{
	struct fs_habit *best = NULL;
	struct fs_habit *habit;
	unsigned best_like = LIKE_SAME - 1;

	DL_FOREACH (t->all, habit) {
		unsigned like;

		if (!cas_digest_equal(&habit->outputs, outputs))
			continue;
		like = fs_habit_likeness(&habit->tops, tops);
		if (like > best_like) {
			best = habit;
			best_like = like;
		}
	}
	if (best) {
		DL_DELETE(t->all, best);
		DL_PREPEND(t->all, best);
	}
	return best;
}

/* The habits whose roots are most like this one, the best first: their count. */
static size_t find_voters(struct fs_habits *t, const struct fs_habit_tops *tops,
			  const struct fs_habit *voters[VOTERS_MAX])
{
	unsigned likes[VOTERS_MAX];
	struct fs_habit *habit;
	size_t nr = 0;

	DL_FOREACH (t->all, habit) {
		unsigned like = fs_habit_likeness(&habit->tops, tops);
		size_t at = nr;

		if (like < LIKE_OTHER || fs_habit_count(habit) == 0)
			continue;
		while (at > 0 && likes[at - 1] < like)
			at--;
		if (at == VOTERS_MAX)
			continue;
		nr += nr < VOTERS_MAX;
		for (size_t i = nr - 1; i > at; i--) {
			likes[i] = likes[i - 1];
			voters[i] = voters[i - 1];
		}
		likes[at] = like;
		voters[at] = habit;
	}
	return nr;
}

static bool has_path(const struct fs_habit *habit, const char *path)
{
	const struct fs_habit_path *p;

	HASH_FIND(hh, habit->paths, path, strlen(path), p);
	return p != NULL;
}

/* Do most of them have it, and none before the one it is taken from? */
static bool is_common(const struct fs_habit *const *voters, size_t nr, size_t from,
		      const char *path)
{
	size_t votes = 0;

	for (size_t i = 0; i < nr; i++) {
		bool has = i == from || has_path(voters[i], path);

		if (has && i < from)
			return false;
		votes += has;
	}
	return votes * 2 >= nr;
}

size_t fs_habits_paths(struct fs_habits *t, const struct fs_habit *own,
		       const struct fs_habit_tops *tops, char ***paths)
{
	const struct fs_habit *voters[VOTERS_MAX] = {own};
	size_t nr_voters = own ? 1 : find_voters(t, tops, voters);
	size_t max = 0;
	size_t nr = 0;

	for (size_t i = 0; i < nr_voters; i++)
		max += fs_habit_count(voters[i]);
	*paths = max > 0 ? calloc(max, sizeof(char *)) : NULL;
	for (size_t i = 0; *paths && i < nr_voters; i++) {
		for (const struct fs_habit_path *p = voters[i]->paths; p; p = p->hh.next) {
			if (!is_common(voters, nr_voters, i, p->path))
				continue;
			(*paths)[nr] = strdup(p->path);
			nr += (*paths)[nr] != NULL;
		}
	}
	return nr;
}
