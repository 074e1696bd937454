/* cas/tier/reapi_tree.c - all Directories below a root, as a server sends them */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "cas/tier/reapi_i.h"

#define HASH_NONFATAL_OOM	     1
#define HASH_FUNCTION(key, len, out) memcpy(&(out), (key), sizeof(out))
#include <uthash.h>

/*
 * GetTree sends Directories in any order and without their digests, so each is hashed, and
 * passed on when the root or one that was passed on names it: nothing else that a server
 * sends gets any further. One that comes before its parent is held until that comes; most
 * servers send parents first.
 */

#define HELD_MAX (64u << 20) /* bytes; what comes above it is left out */

/* WANTED: named, not come. HELD: come, not named (@data). GIVEN: passed on. */
enum dir_state { DIR_WANTED, DIR_HELD, DIR_GIVEN };

struct dir {
	struct cas_digest digest;
	enum dir_state state;
	uint8_t *data;
	struct dir *next; /* held ones that turned out to be named */
	UT_hash_handle hh;
};

struct tree {
	struct reapi *r;
	const struct cas_digest *root;
	int (*each)(void *ctx, const void *data, size_t len);
	void *ctx;
	char *token; /* where the next page begins, "": nowhere */
	struct dir *dirs;
	uint64_t held;
	bool has_root;
};

static struct dir *find(const struct tree *t, const struct cas_digest *digest)
{
	struct dir *dir;

	HASH_FIND(hh, t->dirs, digest, sizeof(*digest), dir);
	return dir;
}

static struct dir *add(struct tree *t, const struct cas_digest *digest, enum dir_state state)
{
	struct dir *dir = calloc(1, sizeof(*dir));

	if (dir == NULL)
		return NULL;
	dir->digest = *digest;
	dir->state = state;
	HASH_ADD(hh, t->dirs, digest, sizeof(dir->digest), dir);
	if (dir->hh.tbl)
		return dir;
	free(dir);
	return NULL;
}

static void tree_fini(struct tree *t)
{
	struct dir *dir;
	struct dir *next;

	HASH_ITER (hh, t->dirs, dir, next) {
		HASH_DEL(t->dirs, dir);
		free(dir->data);
		free(dir);
	}
	free(t->token);
}

/* What it names is wanted; what of that is held goes onto *ready. */
static int want_children(struct tree *t, const void *data, size_t len, struct dir **ready)
{
	Reapi__Directory *message = reapi__directory__unpack(NULL, len, data);
	int ret = 0;

	/* One that is malformed names nothing; who looks into it is told. */
	for (size_t i = 0; message && i < message->n_directories && ret == 0; i++) {
		struct cas_digest digest;
		struct dir *dir;

		if (reapi_digest_take(message->directories[i]->digest, &digest) < 0)
			continue;
		dir = find(t, &digest);
		if (dir == NULL) {
			ret = add(t, &digest, DIR_WANTED) ? 0 : -ENOMEM;
		} else if (dir->state == DIR_HELD) {
			dir->state = DIR_WANTED;
			dir->next = *ready;
			*ready = dir;
		}
	}
	if (message)
		reapi__directory__free_unpacked(message, NULL);
	return ret;
}

static int hold(struct tree *t, const struct cas_digest *digest, const ProtobufCBinaryData *body)
{
	struct dir *dir;

	if (body->len == 0 || body->len > HELD_MAX - t->held)
		return 0;
	dir = add(t, digest, DIR_HELD);
	if (dir == NULL)
		return -ENOMEM;
	dir->data = malloc(body->len);
	if (dir->data == NULL)
		return -ENOMEM;
	memcpy(dir->data, body->data, body->len);
	t->held += body->len;
	return 0;
}

static int take_dir(struct tree *t, const ProtobufCBinaryData *body)
{
	struct cas_digest digest;
	struct dir *ready = NULL;
	struct dir *dir;
	int ret = cas_hash_bytes(body->data, body->len, &digest);

	if (ret < 0)
		return ret;
	dir = find(t, &digest);
	if (dir == NULL)
		return hold(t, &digest, body);
	if (dir->state != DIR_WANTED)
		return 0;
	dir->state = DIR_GIVEN;
	t->has_root = t->has_root || cas_digest_equal(&digest, t->root);
	ret = t->each(t->ctx, body->data, body->len);
	if (ret == 0)
		ret = want_children(t, body->data, body->len, &ready);
	while (ret == 0 && ready) {
		dir = ready;
		ready = dir->next;
		dir->state = DIR_GIVEN;
		ret = t->each(t->ctx, dir->data, dir->digest.size);
		if (ret == 0)
			ret = want_children(t, dir->data, dir->digest.size, &ready);
		t->held -= dir->digest.size;
		free(dir->data);
		dir->data = NULL;
	}
	return ret;
}

static int take_page(struct tree *t, const Reapi__GetTreeResponse *page)
{
	int ret = 0;

	for (size_t i = 0; i < page->n_directories && ret == 0; i++)
		ret = take_dir(t, &page->directories[i]);
	if (ret == 0) {
		free(t->token);
		t->token = strdup(page->next_page_token);
		ret = t->token ? 0 : -ENOMEM;
	}
	return ret;
}

/* One call, which may send many pages. */
static int get_pages(struct tree *t, struct cas_call *call, struct err *err)
{
	static const struct tier_rpc_to to = {.method = REAPI_CAS "GetTree"};
	Reapi__GetTreeRequest request = REAPI__GET_TREE_REQUEST__INIT;
	char hash[CAS_HASH_HEX_SZ + 1];
	Reapi__Digest digest;
	ProtobufCMessage *page;
	struct tier_rpc *rpc;
	int ret = tier_rpc_begin(t->r->grpc, &to, call, &rpc, err);

	if (ret < 0)
		return ret;
	reapi_digest(t->root, hash, &digest);
	request.instance_name = t->r->instance;
	request.root_digest = &digest;
	request.page_token = t->token;
	request.digest_function = REAPI_SHA256;
	ret = tier_rpc_send(rpc, &request.base, true);
	/* The token that follows is for after this page. */
	free(t->token);
	t->token = strdup("");
	if (t->token == NULL)
		ret = -ENOMEM;
	while (ret == 0) {
		ret = tier_rpc_receive_message(rpc, &reapi__get_tree_response__descriptor, &page,
					       err);
		if (ret != 1)
			break;
		ret = take_page(t, (const Reapi__GetTreeResponse *)page);
		protobuf_c_message_free_unpacked(page, NULL);
	}
	return tier_rpc_end(rpc, ret, err);
}

static int get_all(struct tree *t, struct cas_call *call, struct err *err)
{
	int ret;

	do {
		auto_free char *before = strdup(t->token);

		ret = before ? get_pages(t, call, err) : -ENOMEM;
		if (ret == 0 && t->token[0] != '\0' && strcmp(before, t->token) == 0)
			ret = err_set(err, -EPROTO, "tier %s goes round in the tree %s", t->r->name,
				      CAS_DIGEST_TEXT(t->root));
	} while (ret == 0 && t->token[0] != '\0');
	return ret;
}

int reapi_get_tree(void *ctx, const struct cas_digest *root,
		   int (*each)(void *each_ctx, const void *data, size_t len), void *each_ctx,
		   struct cas_call *call, struct err *err)
{
	struct tree t = {
		.r = ctx, .root = root, .each = each, .ctx = each_ctx, .token = strdup("")};
	struct reapi_caps caps;
	int ret = reapi_caps_get(t.r, &caps, call, err);

	if (ret == 0 && t.r->no_trees)
		ret = err_set(err, -EOPNOTSUPP, "tier %s sends no trees", t.r->name);
	if (ret == 0 && (t.token == NULL || add(&t, root, DIR_WANTED) == NULL))
		ret = -ENOMEM;
	if (ret == 0)
		ret = get_all(&t, call, err);
	if (ret == -EOPNOTSUPP)
		t.r->no_trees = true;
	if (ret == 0 && !t.has_root)
		ret = err_set(err, -ENOENT, "tier %s did not send the root of the tree %s",
			      t.r->name, CAS_DIGEST_TEXT(root));
	tree_fini(&t);
	return ret;
}
