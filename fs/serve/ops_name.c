/* fs/serve/ops_name.c - names: lookup, forget, listings, link targets */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/backing/await.h"
#include "fs/node/identity.h"
#include "fs/node/inode.h"
#include "fs/node/readdir.h"
#include "fs/serve/ops.h"
#include "fs/serve/session.h"
#include "fs/trace/trace.h"
#include "fs/upper/upper.h"
#include "fs/view/attr.h"

int fs_ops_enter(const struct fs_session *session, const struct fs_inode *dir, const char *name,
		 uint64_t layer, struct fs_entry *entry, struct fuse_entry_param *out)
{
	struct fs_inode node;
	int ret = fs_inode_lookup(session->table, dir->id, name, entry, &node);

	if (ret < 0)
		return ret;
	*out = (struct fuse_entry_param){
		.ino = node.id,
		.entry_timeout =
			node.entry.fleeting && node.entry.kind == FS_KIND_DIR ? 0 : FS_FOREVER,
		.attr_timeout = node.entry.fleeting ? 0 : FS_FOREVER,
	};
	ret = fs_attr_of(session, &node, layer, &out->attr);
	if (ret < 0)
		fs_inode_forget(session->table, node.id, 1);
	return ret;
}

static void reply_missing(fuse_req_t req, const struct fs_view *view)
{
	const struct fuse_entry_param none = {.ino = 0, .entry_timeout = FS_FOREVER};

	if (view->ops->negative_forever)
		(void)fuse_reply_entry(req, &none);
	else
		(void)fuse_reply_err(req, ENOENT);
}

static bool is_walker(fuse_req_t req)
{
	pid_t walker = atomic_load(&fs_req_session(req)->walker);

	return walker > 0 && fuse_req_ctx(req)->pid == walker;
}

/* Is it a directory of a tree, of which more may be worth knowing beforehand? */
static bool is_walked(const struct fs_inode *dir)
{
	return dir->id != FS_INODE_ROOT && dir->entry.kind == FS_KIND_DIR;
}

/*
 * A Directory is missing: it is waited for, and what else is missing of the tree that it
 * belongs to is looked for meanwhile, a level at a time.
 */
static bool await_directory(const struct fs_session *session, const struct fs_again *again,
			    const struct err *err)
{
	struct cas_fetch *fetch = cas_fetch_of(session->opts.store);
	const struct cas_digest *parent = &again->node.entry.digest;
	struct cas_digest missing;

	if (!fs_await(session->opts.awaits, again, err) || !cas_err_missing(err, &missing))
		return false;
	/* A root with parents of outputs added is in no store. */
	if (cas_store_has(session->opts.store, parent) == 1)
		cas_fetch_foresee_tree(fetch, parent);
	else
		cas_fetch_foresee_tree(fetch, &missing);
	return true;
}

/* The name stands for a blob, and is there as soon as that is. */
static bool await_name(const struct fs_session *session, const struct fs_again *again,
		       const struct err *err)
{
	struct fs_again once = *again;

	once.may_be_absent = true;
	return fs_await(session->opts.awaits, &once, err);
}

/* What traces hear, before the answer; who looks ahead asks for nothing. */
static void tap_lookup(fuse_req_t req, const struct fs_inode *dir, const char *name,
		       const struct fuse_entry_param *found)
{
	const struct fs_session *session = fs_req_session(req);

	if (session->opts.tap && !is_walker(req))
		fs_tap_looked(session->opts.tap, session->table, dir->id, name,
			      found ? found->ino : 0, found && !S_ISDIR(found->attr.st_mode),
			      fuse_req_ctx(req)->pid);
}

static void set_apart(const struct fs_session *session, uint64_t layer, struct fs_entry *entry)
{
	if (layer && entry->kind == FS_KIND_DIR)
		entry->apart = fs_uppers_apart(session->opts.uppers, layer, &entry->key);
}

static int find(const struct fs_session *session, const struct fs_inode *dir, const char *name,
		uint64_t layer, struct fs_entry *out, struct err *err)
{
	struct fs_inode at = *dir;
	int held = fs_ops_hold(session, &at, layer, err);
	const struct fs_view *view = at.entry.view;
	int ret = held < 0 ? held : view->ops->lookup(view, &at.entry, name, out, err);

	if (held > 0)
		fs_ops_unhold(&at);
	if (ret > 0)
		set_apart(session, layer, out);
	return ret;
}

static void lookup(const struct fs_again *again)
{
	fuse_req_t req = again->req;
	const struct fs_inode *dir = &again->node;
	const char *name = again->name;
	struct fs_session *session = fs_req_session(req);
	struct fuse_entry_param e;
	struct fs_entry entry = {0};
	struct err err = {0};
	uint64_t layer = fs_ops_layer(session, dir);
	bool wanted;
	int ret = find(session, dir, name, layer, &entry, &err);

	if (ret == 0) {
		bool told = session->opts.missed && is_walked(dir) && !is_walker(req);

		if (await_name(session, again, &err))
			return;
		tap_lookup(req, dir, name, NULL);
		reply_missing(req, dir->entry.view);
		if (told)
			session->opts.missed(session->opts.ctx, dir->id, name);
		return;
	}
	if (ret > 0)
		ret = fs_ops_enter(session, dir, name, layer, &entry, &e);
	if (ret < 0 && await_directory(session, again, &err))
		return;
	if (ret < 0) {
		fs_reply_error(req, ret, "lookup of", dir, name, &err);
		return;
	}
	tap_lookup(req, dir, name, &e);
	wanted = session->opts.want && is_walked(dir) && !is_walker(req) &&
		 fs_inode_asked(session->table, dir->id);
	if (fuse_reply_entry(req, &e) < 0)
		fs_inode_forget(session->table, e.ino, 1); /* the kernel does not have it */
	else if (wanted)
		session->opts.want(session->opts.ctx, dir->id);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs_again again = {.run = lookup, .req = req, .what = "lookup of"};

	if (!fs_req_node(req, parent, &again.node))
		return;
	if (parent == FS_INODE_ROOT && is_walker(req)) {
		(void)fuse_reply_err(req, ENOENT);
		return;
	}
	if (strlen(name) > CAS_NAME_MAX) {
		(void)fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	(void)strcpy(again.name, name);
	lookup(&again);
}

static void reap(fuse_req_t req)
{
	struct fs_uppers *uppers = fs_req_session(req)->opts.uppers;

	if (uppers)
		fs_uppers_reap(uppers);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nr)
{
	fs_inode_forget(fs_req_session(req)->table, ino, nr);
	reap(req);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		fs_inode_forget(fs_req_session(req)->table, forgets[i].ino, forgets[i].nlookup);
	reap(req);
	fuse_reply_none(req);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct fs_inode node;

	if (!fs_req_node(req, ino, &node) || fs_ops_readlink_upper(req, &node))
		return;
	fs_tap_read(fs_req_session(req)->opts.tap, ino, fuse_req_ctx(req)->pid);
	if (node.entry.kind != FS_KIND_SYMLINK)
		(void)fuse_reply_err(req, EINVAL);
	else
		(void)fuse_reply_readlink(req, node.entry.target);
}

/* A listing being written for one request. */
struct reply {
	fuse_req_t req;
	const struct fs_session *session;
	struct fs_inode dir;
	uint64_t layer; /* as fs_ops_layer */
	char *data;
	size_t len;
	size_t cap;
	size_t nr_entered;
	uint64_t *entered; /* node ids that got a lookup */
};

static void add_plain(struct reply *r, const struct fs_diritem *item)
{
	struct stat st = {
		.st_ino = fs_key_ino(&item->entry.key),
		.st_mode = fs_attr_mode(&item->entry),
	};

	r->len += fuse_add_direntry(r->req, r->data + r->len, r->cap - r->len, item->name, &st,
				    (off_t)item->next_off);
}

/*
 * The kernel counts a lookup for every entry with a node, but never for dots. What can
 * not be completed is listed without a node: a lookup will tell why.
 */
static void add_plus(struct reply *r, struct fs_diritem *item)
{
	const struct fs_view *view = item->entry.view;
	struct fuse_entry_param e = {0};
	bool with_node = !item->is_dot && !item->entry.partial;

	set_apart(r->session, r->layer, &item->entry);
	if (with_node && view->ops->complete)
		with_node = view->ops->complete(view, &item->entry, NULL) == 0;
	if (with_node) {
		with_node = fs_ops_enter(r->session, &r->dir, item->name, r->layer, &item->entry,
					 &e) == 0;
		if (item->entry.kind == FS_KIND_SYMLINK)
			item->entry.target = NULL; /* taken over */
	}
	if (with_node) {
		r->entered[r->nr_entered++] = e.ino;
	} else {
		e = (struct fuse_entry_param){0};
		e.attr.st_ino = fs_key_ino(&item->entry.key);
		e.attr.st_mode = fs_attr_mode(&item->entry);
	}
	r->len += fuse_add_direntry_plus(r->req, r->data + r->len, r->cap - r->len, item->name, &e,
					 (off_t)item->next_off);
}

static int write_items(struct reply *r, struct fs_dirlist *list, bool plus)
{
	r->data = malloc(r->cap ? r->cap : 1);
	r->entered = malloc((list->nr + 1) * sizeof(*r->entered));
	if (!r->data || !r->entered)
		return -ENOMEM;
	for (size_t i = 0; i < list->nr; i++) {
		if (plus)
			add_plus(r, &list->items[i]);
		else
			add_plain(r, &list->items[i]);
	}
	return 0;
}

/* A node of a layer does not know its parent's. */
static void set_up(struct fs_inode *dir)
{
	uint64_t ino = fs_upper_parent_ino((struct fs_unode *)(uintptr_t)dir->entry.tag);

	memcpy(dir->up.bytes, &ino, sizeof(ino));
}

static void list_again(const struct fs_again *again)
{
	fuse_req_t req = again->req;
	struct reply r = {
		.req = req, .session = fs_req_session(req), .dir = again->node, .cap = again->size};
	struct fs_dirlist list = {0};
	struct err err = {0};
	int held;
	int ret;

	r.layer = fs_ops_layer(r.session, &r.dir);
	ret = held = fs_ops_hold(r.session, &r.dir, r.layer, &err);
	if (r.dir.entry.kind == FS_KIND_UPPER)
		set_up(&r.dir);
	if (ret >= 0)
		ret = fs_dirlist_collect(&r.dir, (uint64_t)again->off, again->size, again->plus,
					 &list, &err);
	if (ret == 0)
		ret = write_items(&r, &list, again->plus);
	if (ret < 0 && await_directory(r.session, again, &err))
		r.nr_entered = 0;
	else if (ret < 0)
		fs_reply_error(req, ret, "listing", &r.dir, NULL, &err);
	else if (fuse_reply_buf(req, r.data, r.len) < 0)
		for (size_t i = 0; i < r.nr_entered; i++)
			fs_inode_forget(r.session->table, r.entered[i], 1);
	if (held > 0)
		fs_ops_unhold(&r.dir);
	fs_dirlist_fini(&list);
	free(r.data);
	free(r.entered);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct fs_again again = {.run = list_again,
				 .req = req,
				 .what = "listing",
				 .size = size,
				 .off = off,
				 .plus = plus};

	if (!fs_req_node(req, ino, &again.node))
		return;
	if (plus)
		fs_inode_listed(fs_req_session(req)->table, ino);
	if (!is_walker(req))
		fs_tap_listed(fs_req_session(req)->opts.tap, fs_req_session(req)->table, ino);
	list_again(&again);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	do_readdir(req, ino, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	do_readdir(req, ino, size, off, true);
}

void fs_ops_name(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->forget = op_forget;
	ops->forget_multi = op_forget_multi;
	ops->readlink = op_readlink;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
}
