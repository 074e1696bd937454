/* cas/evict/evict_mark.c - what must stay */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/evict/evict_i.h"
#include "cas/reapi/directory.h"
#include "cas/reapi/directory_i.h"
#include "cas/store/store_i.h"

/* @walked: a directory whose children have been marked, too. */
struct cas_mark {
	uint8_t hash[CAS_HASH_SZ];
	bool walked;
	UT_hash_handle hh;
};

/* Directories still to be looked into. */
struct stack {
	struct cas_digest *at;
	size_t nr;
	size_t cap;
};

static struct cas_mark *find(const struct cas_marks *m, const uint8_t hash[CAS_HASH_SZ])
{
	struct cas_mark *found = NULL;

	if (m->head)
		HASH_FIND(hh, m->head, hash, CAS_HASH_SZ, found);
	return found;
}

bool cas_marks_has(const struct cas_marks *m, const uint8_t hash[CAS_HASH_SZ])
{
	return find(m, hash) != NULL;
}

/* Find or add; NULL: out of memory. */
static struct cas_mark *get(struct cas_marks *m, const uint8_t hash[CAS_HASH_SZ])
{
	struct cas_mark *mark = find(m, hash);

	if (mark)
		return mark;
	mark = calloc(1, sizeof(*mark));
	if (mark == NULL)
		return NULL;
	memcpy(mark->hash, hash, CAS_HASH_SZ);
	HASH_ADD(hh, m->head, hash, CAS_HASH_SZ, mark);
	if (mark->hh.tbl == NULL) {
		free(mark);
		return NULL;
	}
	m->nr++;
	if (m->fresh)
		m->fresh(m->ctx, hash);
	return mark;
}

int cas_marks_add(struct cas_marks *m, const uint8_t hash[CAS_HASH_SZ])
{
	return get(m, hash) ? 0 : -ENOMEM;
}

int cas_marks_meet(const struct cas_marks *a, const struct cas_marks *b)
{
	for (const struct cas_mark *mark = a->head; mark; mark = mark->hh.next) {
		if (cas_marks_has(b, mark->hash))
			return 1;
	}
	return 0;
}

void cas_marks_fini(struct cas_marks *m)
{
	struct cas_mark *mark;
	struct cas_mark *next;

	HASH_ITER (hh, m->head, mark, next) {
		HASH_DEL(m->head, mark);
		free(mark);
	}
	m->nr = 0;
}

static int push(struct stack *s, const struct cas_digest *d)
{
	if (s->nr == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 64;
		struct cas_digest *at = reallocarray(s->at, cap, sizeof(*at));

		if (at == NULL)
			return -ENOMEM;
		s->at = at;
		s->cap = cap;
	}
	s->at[s->nr++] = *d;
	return 0;
}

static int mark_children(struct cas_marks *m, const struct cas_directory *dir, struct stack *s)
{
	for (size_t i = 0; i < dir->nr_nodes; i++) {
		const struct cas_node *node = &dir->nodes[i];
		int ret = 0;

		if (node->kind == CAS_NODE_FILE)
			ret = cas_marks_add(m, node->digest.hash);
		else if (node->kind == CAS_NODE_DIRECTORY)
			ret = push(s, &node->digest);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* What eviction itself reads is no use of it. */
static int look_into(struct cas_store *store, const struct cas_digest *d,
		     struct cas_directory **out, struct err *err)
{
	auto_buf struct buf raw = {0};
	int ret = cas_blob_peek(store, d, CAS_DIRECTORY_MAX, &raw, err);

	if (ret == -EFBIG)
		return -EUCLEAN;
	return ret < 0 ? ret : cas_directory_decode(raw.data, raw.len, out, err);
}

static int mark_directory(struct cas_marks *m, struct cas_store *store, const struct cas_digest *d,
			  bool needed, struct stack *s, struct err *err)
{
	struct cas_mark *mark = get(m, d->hash);
	struct cas_directory *dir = NULL;
	struct err why = {0};
	int ret;

	if (mark == NULL)
		return -ENOMEM;
	if (mark->walked)
		return 0;
	mark->walked = true;
	ret = look_into(store, d, &dir, &why);
	if (ret == -ENOENT || ret == -EUCLEAN || ret == -EBADMSG) {
		if (needed)
			log_warn("what directory %s needs cannot be kept: %s", CAS_DIGEST_TEXT(d),
				 err_text(&why, ret));
		return 0;
	}
	if (ret < 0)
		return err_set(err, ret, "%s", err_text(&why, ret));
	ret = mark_children(m, dir, s);
	cas_directory_free(dir);
	return ret;
}

int cas_marks_add_tree(struct cas_marks *m, struct cas_store *store, const struct cas_digest *root,
		       bool needed, struct err *err)
{
	struct stack s = {0};
	int ret = push(&s, root);

	while (ret == 0 && s.nr > 0) {
		struct cas_digest d = s.at[--s.nr];

		ret = mark_directory(m, store, &d, needed, &s, err);
	}
	free(s.at);
	if (ret == -ENOMEM)
		return err_set(err, ret, "cannot remember what is needed: out of memory");
	return ret;
}

struct marking {
	struct cas_store *store;
	struct cas_marks *live;
	struct err *err;
};

static int mark_root(void *arg, const struct cas_digest *d, bool is_directory)
{
	struct marking *m = arg;

	if (is_directory)
		return cas_marks_add_tree(m->live, m->store, d, true, m->err);
	if (cas_marks_add(m->live, d->hash) < 0)
		return err_set(m->err, -ENOMEM, "cannot remember what is needed: out of memory");
	return 0;
}

int cas_evict_mark(struct cas_store *store, const struct cas_evict_roots *roots,
		   struct cas_marks *live, struct err *err)
{
	struct marking m = {.store = store, .live = live, .err = err};

	if (roots == NULL || roots->each == NULL)
		return 0;
	return roots->each(roots->ctx, mark_root, &m, err);
}
