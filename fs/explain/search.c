/* fs/explain/search.c - which trees hold a blob */
/*
 * A walk with a stack of its own. What was seen of a directory stays: that the target is not
 * below it, or by which name it is reached from there. So the next tree, which shares most
 * with the one before, costs what is new in it.
 */
#include "fs/explain/search.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
/* The key starts with a hash, which is as good as any that uthash would make of it. */
#define HASH_FUNCTION(key, len, out) ((void)(len), memcpy(&(out), (key), sizeof(out)))
#include <uthash.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "meta/index/dirs.h"

struct fs_seen_dir {
	uint8_t hash[CAS_HASH_SZ]; /* key */
	UT_hash_handle hh;
	char *via;		/* the entry that is the target, or leads to it; NULL: none */
	struct cas_digest next; /* that entry's digest */
};

struct child {
	struct cas_digest digest;
	char *name;
};

struct frame {
	struct frame *above;
	struct fs_seen_dir *seen;
	struct child *children; /* directories */
	size_t nr;
	size_t cap;
	size_t at; /* of them, the one that is being looked into, plus 1 */
};

struct listing {
	struct fs_search *search;
	struct frame *frame;
};

static int add_child(struct frame *f, const struct meta_dirent *e)
{
	char *name = strdup(e->name);

	if (name && f->nr == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 16;
		void *grown = realloc(f->children, cap * sizeof(*f->children));

		if (grown) {
			f->children = grown;
			f->cap = cap;
		} else {
			free(name);
			name = NULL;
		}
	}
	if (!name)
		return -ENOMEM;
	f->children[f->nr++] = (struct child){e->digest, name};
	return 0;
}

static int look_at(void *ctx, uint64_t index, const struct meta_dirent *e)
{
	struct listing *l = ctx;

	(void)index;
	if (e->kind == CAS_NODE_SYMLINK)
		return 0;
	if (cas_digest_equal(&e->digest, &l->search->target)) {
		l->frame->seen->via = strdup(e->name);
		l->frame->seen->next = e->digest;
		return l->frame->seen->via ? 1 : -ENOMEM;
	}
	return e->kind == CAS_NODE_DIRECTORY ? add_child(l->frame, e) : 0;
}

static struct fs_seen_dir *find_seen(struct fs_search *s, const struct cas_digest *dir)
{
	struct fs_seen_dir *seen;

	HASH_FIND(hh, s->seen, dir->hash, CAS_HASH_SZ, seen);
	return seen;
}

static void free_frame(struct frame *f)
{
	for (size_t i = 0; i < f->nr; i++)
		free(f->children[i].name);
	free(f->children);
	free(f);
}

/* Look into a directory that was not seen before. */
static int enter(struct fs_search *s, const struct cas_digest *dir, struct frame **stack)
{
	struct fs_seen_dir *seen = calloc(1, sizeof(*seen));
	struct frame *f = calloc(1, sizeof(*f));
	struct listing l = {s, f};
	int ret;

	if (seen) {
		memcpy(seen->hash, dir->hash, CAS_HASH_SZ);
		HASH_ADD(hh, s->seen, hash, CAS_HASH_SZ, seen);
	}
	if (!f || !seen || !seen->hh.tbl) {
		if (seen && !seen->hh.tbl)
			free(seen);
		free(f);
		return -ENOMEM;
	}
	f->seen = seen;
	f->above = *stack;
	*stack = f;
	s->nr_dirs++;
	ret = meta_dir_list(s->meta, dir, 0, look_at, &l, NULL);
	if (ret == 0 || ret == -ENOMEM)
		return ret;
	s->nr_unread++;
	return 0;
}

/* The frame on top has found it, or is done; 1: found. */
static int leave(struct frame **stack)
{
	struct frame *f = *stack;
	struct frame *above = f->above;
	const struct child *c = above ? &above->children[above->at - 1] : NULL;
	int ret = 0;

	if (f->seen->via && above) {
		above->seen->via = strdup(c->name);
		above->seen->next = c->digest;
		ret = above->seen->via ? 0 : -ENOMEM;
	}
	*stack = above;
	free_frame(f);
	return ret;
}

/* One step of the frame on top. */
static int step(struct fs_search *s, struct frame **stack)
{
	struct frame *f = *stack;
	const struct child *c;
	const struct fs_seen_dir *seen;

	if (f->seen->via || f->at == f->nr)
		return leave(stack);
	c = &f->children[f->at++];
	seen = find_seen(s, &c->digest);
	if (!seen)
		return enter(s, &c->digest, stack);
	if (seen->via) {
		f->seen->via = strdup(c->name);
		f->seen->next = c->digest;
		return f->seen->via ? 0 : -ENOMEM;
	}
	return 0;
}

/* From a directory below which the target is known to be. */
static int path_from(struct fs_search *s, const struct cas_digest *root, char **path)
{
	auto_buf struct buf b = {0};
	struct cas_digest at = *root;

	while (!cas_digest_equal(&at, &s->target)) {
		const struct fs_seen_dir *seen = find_seen(s, &at);

		if (buf_printf(&b, "%s%s", b.len ? "/" : "", seen->via) < 0)
			return -ENOMEM;
		at = seen->next;
	}
	*path = b.len ? buf_steal(&b) : strdup("");
	return *path ? 1 : -ENOMEM;
}

int fs_search_tree(struct fs_search *search, const struct cas_digest *root, char **path)
{
	struct frame *stack = NULL;
	const struct fs_seen_dir *seen = find_seen(search, root);
	int ret = 0;

	if (!seen && !cas_digest_equal(root, &search->target))
		ret = enter(search, root, &stack);
	while (ret == 0 && stack)
		ret = step(search, &stack);
	while (stack) {
		struct frame *above = stack->above;

		free_frame(stack);
		stack = above;
	}
	if (ret < 0)
		return ret;
	seen = find_seen(search, root);
	if (!cas_digest_equal(root, &search->target) && !(seen && seen->via))
		return 0;
	return path_from(search, root, path);
}

void fs_search_fini(struct fs_search *search)
{
	struct fs_seen_dir *seen;
	struct fs_seen_dir *next;

	HASH_ITER (hh, search->seen, seen, next) {
		HASH_DEL(search->seen, seen);
		free(seen->via);
		free(seen);
	}
}
