/* cas/reapi/tree.c - a root Directory and all below it as one Tree message */
#include "cas/reapi/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Out of memory is an error to return: uthash's own way is to end the process. */
#define HASH_NONFATAL_OOM 1
/* The key starts with a hash, which is as good as any that uthash would make of it. */
#define HASH_FUNCTION(key, len, out) ((void)(len), memcpy(&(out), (key), sizeof(out)))
#include <uthash.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/reapi/directory_i.h"
#include "cas/store/store.h"

/*
 * A depth-first walk with its own stack (trees may be 10,000 deep) that visits each
 * distinct Directory once. The reverse of the order in which it leaves them puts
 * parents before children; children are visited last first, so that the result lists
 * them in order of name.
 */
struct tree_dir {
	struct cas_digest digest; /* key; all bytes of it are set */
	UT_hash_handle hh;
	struct buf raw;
	struct cas_directory *dir; /* until it is left */
	size_t next;		   /* nodes[0 .. next) are still to be visited */
	struct tree_dir *above;	   /* on the stack: whoever is below; afterwards: left before */
};

struct tree_walk {
	struct cas_store *store;
	cas_raw_find_fn find; /* may be NULL */
	void *ctx;
	struct tree_dir *all;	/* hash */
	struct tree_dir *stack; /* linked by above */
	struct tree_dir *left;	/* last left first, linked by above */
};

static void walk_fini(struct tree_walk *w)
{
	struct tree_dir *d;
	struct tree_dir *next;

	HASH_ITER (hh, w->all, d, next) {
		HASH_DEL(w->all, d);
		cas_directory_free(d->dir);
		buf_fini(&d->raw);
		free(d);
	}
}

static int load(struct tree_walk *w, struct tree_dir *d, struct err *err)
{
	const struct buf *raw = w->find ? w->find(w->ctx, &d->digest) : NULL;
	int ret;

	if (raw == NULL)
		return cas_directory_load_raw(w->store, &d->digest, &d->raw, &d->dir, err);
	ret = buf_append(&d->raw, raw->data, raw->len);
	return ret < 0 ? ret : cas_directory_decode(d->raw.data, d->raw.len, &d->dir, err);
}

static int walk_enter(struct tree_walk *w, const struct cas_digest *digest, struct err *err)
{
	struct cas_digest key;
	struct tree_dir *d = NULL;
	int ret;

	/* The padding, if any, must compare equal too. */
	memset(&key, 0, sizeof(key));
	memcpy(key.hash, digest->hash, sizeof(key.hash));
	key.size = digest->size;
	HASH_FIND(hh, w->all, &key, sizeof(key), d);
	if (d)
		return 0;
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return -ENOMEM;
	memcpy(&d->digest, &key, sizeof(key));
	HASH_ADD(hh, w->all, digest, sizeof(d->digest), d);
	if (d->hh.tbl == NULL) {
		free(d);
		return -ENOMEM;
	}
	ret = load(w, d, err);
	if (ret < 0)
		return ret;
	d->next = d->dir->nr_nodes;
	d->above = w->stack;
	w->stack = d;
	return 0;
}

static void walk_leave(struct tree_walk *w)
{
	struct tree_dir *d = w->stack;

	w->stack = d->above;
	d->above = w->left;
	w->left = d;
	cas_directory_free(d->dir);
	d->dir = NULL;
}

static int walk(struct tree_walk *w, const struct cas_digest *root, struct err *err)
{
	int ret = walk_enter(w, root, err);

	while (ret == 0 && w->stack) {
		struct tree_dir *d = w->stack;
		const struct cas_node *node;

		if (d->next == 0) {
			walk_leave(w);
			continue;
		}
		node = &d->dir->nodes[--d->next];
		if (node->kind == CAS_NODE_DIRECTORY)
			ret = walk_enter(w, &node->digest, err);
	}
	return ret;
}

static int record_append(struct buf *out, char tag, const struct buf *raw)
{
	char head[11];
	size_t pos = 0;
	size_t len = raw->len;
	int ret;

	head[pos++] = tag;
	while (len >= 0x80) {
		head[pos++] = (char)(len | 0x80);
		len >>= 7;
	}
	head[pos++] = (char)len;
	ret = buf_append(out, head, pos);
	return ret < 0 ? ret : buf_append(out, raw->data, raw->len);
}

int cas_tree_encode(struct cas_store *store, const struct cas_digest *root, struct buf *out,
		    struct err *err)
{
	return cas_tree_encode_with(store, root, NULL, NULL, out, err);
}

int cas_tree_encode_with(struct cas_store *store, const struct cas_digest *root,
			 cas_raw_find_fn find, void *ctx, struct buf *out, struct err *err)
{
	struct tree_walk w = {.store = store, .find = find, .ctx = ctx};
	size_t start = out->len;
	int ret = walk(&w, root, err);

	for (struct tree_dir *d = w.left; ret == 0 && d; d = d->above)
		ret = record_append(out, d == w.left ? 0x0a : 0x12, &d->raw);
	if (ret == -ENOMEM)
		(void)err_set(err, ret, "no memory for the Tree of %s", CAS_DIGEST_TEXT(root));
	if (ret < 0 && out->data) {
		out->len = start;
		out->data[start] = '\0';
	}
	walk_fini(&w);
	return ret;
}
