/* fs/learn/habit.c - what actions of a kind have read, in order */
#include "fs/learn/habit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "meta/meta.h"

/*
 * The file is records that end with a NUL, since a name may hold anything else:
 *
 *   casbox-habit 1
 *   outputs HASH/SIZE
 *   top HASH/SIZE NAME
 *   read WASTED PATH
 */
#define HEADER "casbox-habit 1"

/* ---- roots ---- */

static int add_top(struct fs_habit_tops *tops, const char *name, const struct cas_digest *digest)
{
	struct fs_habit_top *top = &tops->at[tops->nr];

	top->name = strdup(name);
	if (!top->name)
		return -ENOMEM;
	top->digest = *digest;
	tops->nr++;
	return 0;
}

static int each_top(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	struct fs_habit_tops *tops = ctx;

	if (tops->nr == FS_HABIT_TOPS_MAX)
		return 1;
	return add_top(tops, entry->name,
		       entry->kind == CAS_NODE_SYMLINK ? &cas_digest_empty : &entry->digest);
}

int fs_habit_tops_of(struct meta *meta, const struct cas_digest *root, struct fs_habit_tops *out)
{
	int ret;

	out->nr = 0;
	ret = meta_dir_list(meta, root, 0, each_top, out, NULL);
	if (ret < 0)
		fs_habit_tops_fini(out);
	return ret;
}

void fs_habit_tops_fini(struct fs_habit_tops *tops)
{
	for (size_t i = 0; i < tops->nr; i++)
		free(tops->at[i].name);
	tops->nr = 0;
}

unsigned fs_habit_likeness(const struct fs_habit_tops *a, const struct fs_habit_tops *b)
{
	size_t most = a->nr > b->nr ? a->nr : b->nr;
	size_t nr = 0;

	for (size_t i = 0, j = 0; i < a->nr && j < b->nr;) {
		int order = strcmp(a->at[i].name, b->at[j].name);

		if (order == 0)
			nr += 1 + cas_digest_equal(&a->at[i].digest, &b->at[j].digest);
		i += order <= 0;
		j += order >= 0;
	}
	return most == 0 ? 100 : (unsigned)(nr * 50 / most);
}

/* ---- a habit ---- */

struct fs_habit *fs_habit_new(const struct cas_digest *outputs, struct fs_habit_tops *tops)
{
	struct fs_habit *habit = calloc(1, sizeof(*habit));

	if (!habit)
		return NULL;
	if (io_random_hex(habit->name, 16) < 0) {
		free(habit);
		return NULL;
	}
	habit->outputs = *outputs;
	habit->tops = *tops;
	tops->nr = 0;
	habit->changed = true;
	return habit;
}

static void drop_path(struct fs_habit *habit, struct fs_habit_path *p)
{
	HASH_DEL(habit->paths, p);
	free(p);
}

void fs_habit_free(struct fs_habit *habit)
{
	struct fs_habit_path *p;
	struct fs_habit_path *next;

	if (!habit)
		return;
	HASH_ITER (hh, habit->paths, p, next)
		drop_path(habit, p);
	fs_habit_tops_fini(&habit->tops);
	free(habit);
}

static struct fs_habit_path *find_path(const struct fs_habit *habit, const char *path)
{
	struct fs_habit_path *p;

	HASH_FIND(hh, habit->paths, path, strlen(path), p);
	return p;
}

static int add_path(struct fs_habit *habit, const char *path, unsigned wasted)
{
	size_t len = strlen(path);
	struct fs_habit_path *p;

	if (HASH_COUNT(habit->paths) >= FS_HABIT_PATHS_MAX)
		return 0;
	p = calloc(1, sizeof(*p) + len + 1);
	if (!p)
		return -ENOMEM;
	memcpy(p->path, path, len);
	p->wasted = wasted;
	HASH_ADD_KEYPTR(hh, habit->paths, p->path, len, p);
	if (!p->hh.tbl) {
		free(p);
		return -ENOMEM;
	}
	habit->changed = true;
	return 0;
}

void fs_habit_read(struct fs_habit *habit, const char *path)
{
	struct fs_habit_path *p = find_path(habit, path);

	if (!p) {
		(void)add_path(habit, path, 0);
	} else if (p->wasted > 0) {
		p->wasted = 0;
		habit->changed = true;
	}
}

void fs_habit_wasted(struct fs_habit *habit, const char *path)
{
	struct fs_habit_path *p = find_path(habit, path);

	if (!p)
		return;
	habit->changed = true;
	if (++p->wasted >= FS_HABIT_WASTED)
		drop_path(habit, p);
}

size_t fs_habit_count(const struct fs_habit *habit)
{
	return HASH_COUNT(habit->paths);
}

/* ---- as a file ---- */

static int end_record(int ret, struct buf *out)
{
	return ret < 0 ? ret : buf_append_char(out, '\0');
}

int fs_habit_format(const struct fs_habit *habit, struct buf *out)
{
	int ret = end_record(buf_append_str(out, HEADER), out);

	if (ret == 0)
		ret = end_record(buf_printf(out, "outputs %s", CAS_DIGEST_TEXT(&habit->outputs)),
				 out);
	for (size_t i = 0; ret == 0 && i < habit->tops.nr; i++) {
		const struct fs_habit_top *top = &habit->tops.at[i];

		ret = end_record(
			buf_printf(out, "top %s %s", CAS_DIGEST_TEXT(&top->digest), top->name),
			out);
	}
	for (const struct fs_habit_path *p = habit->paths; ret == 0 && p; p = p->hh.next)
		ret = end_record(buf_printf(out, "read %u %s", p->wasted, p->path), out);
	return ret;
}

/* "HASH/SIZE" and what follows the blank after it; NULL: it is no digest. */
static const char *parse_digest(const char *text, struct cas_digest *out)
{
	char digest[CAS_DIGEST_STR_SZ];
	size_t len = strcspn(text, " ");

	if (len >= sizeof(digest))
		return NULL;
	memcpy(digest, text, len);
	digest[len] = '\0';
	if (cas_digest_parse(digest, out) < 0)
		return NULL;
	return text + len + (text[len] == ' ');
}

static int parse_top(struct fs_habit *habit, const char *text)
{
	struct cas_digest digest;
	const char *name = parse_digest(text, &digest);

	if (!name || name[0] == '\0' || habit->tops.nr == FS_HABIT_TOPS_MAX)
		return -EUCLEAN;
	/* In order, as they are compared. */
	if (habit->tops.nr > 0 && strcmp(habit->tops.at[habit->tops.nr - 1].name, name) >= 0)
		return -EUCLEAN;
	return add_top(&habit->tops, name, &digest);
}

static int parse_read(struct fs_habit *habit, const char *text)
{
	if (text[0] < '0' || text[0] >= '0' + FS_HABIT_WASTED || text[1] != ' ' ||
	    text[2] == '\0' || find_path(habit, text + 2))
		return -EUCLEAN;
	return add_path(habit, text + 2, (unsigned)(text[0] - '0'));
}

static int parse_record(struct fs_habit *habit, size_t nr, const char *record)
{
	const char *rest;

	if (nr == 0)
		return strcmp(record, HEADER) == 0 ? 0 : -EUCLEAN;
	if (nr == 1) {
		rest = strncmp(record, "outputs ", 8) == 0
			       ? parse_digest(record + 8, &habit->outputs)
			       : NULL;
		return rest && rest[0] == '\0' ? 0 : -EUCLEAN;
	}
	if (strncmp(record, "top ", 4) == 0)
		return parse_top(habit, record + 4);
	return strncmp(record, "read ", 5) == 0 ? parse_read(habit, record + 5) : -EUCLEAN;
}

int fs_habit_parse(const char *text, size_t len, struct fs_habit **out)
{
	struct fs_habit *habit = calloc(1, sizeof(*habit));
	size_t nr = 0;
	int ret = habit ? 0 : -ENOMEM;

	for (size_t at = 0; ret == 0 && at < len; nr++) {
		if (!memchr(text + at, '\0', len - at))
			ret = -EUCLEAN;
		else
			ret = parse_record(habit, nr, text + at);
		at += strnlen(text + at, len - at) + 1;
	}
	if (ret == 0 && nr < 2)
		ret = -EUCLEAN;
	if (ret < 0) {
		fs_habit_free(habit);
		return ret;
	}
	habit->changed = false;
	*out = habit;
	return 0;
}
