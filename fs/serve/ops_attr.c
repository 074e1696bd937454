/* fs/serve/ops_attr.c - attributes of nodes */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "cas/cas.h"
#include "fs/backing/backing.h"
#include "fs/message/proto_json.h"
#include "fs/node/identity.h"
#include "fs/node/inode.h"
#include "fs/report/events.h"
#include "fs/serve/ops.h"
#include "fs/serve/session.h"
#include "fs/upper/upper.h"
#include "fs/view/attr.h"

#define BLOCK	       4096
#define NAME_MAX_SHOWN 255

struct fs_session *fs_req_session(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

bool fs_req_node(fuse_req_t req, fuse_ino_t ino, struct fs_inode *out)
{
	bool found = fs_inode_get(fs_req_session(req)->table, ino, out);

	if (!found) {
		log_error("the kernel asks for node %llu, which it has forgotten",
			  (unsigned long long)ino);
		(void)fuse_reply_err(req, ESTALE);
	}
	return found;
}

/* What a person may want to know of an input that could not be shown. */
static void tell_failed(const struct fs_session *session, int code, const char *what,
			const struct fs_entry *e, struct err *err)
{
	struct cas_digest missing;
	bool is_missing = err && (cas_err_missing(err, &missing) || err->code == -ENOENT);

	if (!session->opts.events)
		return;
	if (!err || !cas_err_missing(err, &missing))
		missing = e->digest;
	fs_event(session->opts.events,
		 is_missing	    ? "blob-missing"
		 : code == -EBADMSG ? "blob-wrong"
				    : "input-failed",
		 "{s:s, s:s, s:o*}", "digest", CAS_DIGEST_TEXT(&missing), "while", what, "error",
		 fs_json_text(err_text(err, code)));
}

void fs_reply_error(fuse_req_t req, int code, const char *what, const struct fs_inode *node,
		    const char *name, struct err *err)
{
	const struct fs_entry *e = &node->entry;
	bool has_digest = e->kind == FS_KIND_FILE || (e->kind == FS_KIND_DIR && e->digest.size > 0);
	struct cas_digest missing;

	/* A process may still sit in a tree that is gone, or see a sandbox go: there is nothing. */
	if (code == -ENOENT && e->kind == FS_KIND_DIR && !e->fleeting &&
	    !fs_inode_ended(fs_req_session(req)->table, node->id, &e->digest))
		code = -EIO;
	if (code == -EIO || code == -EBADMSG || code == -EUCLEAN || code == -ENOMEM)
		log_error("%s%s%s in node %llu (%s): %s", what, name ? " " : "", name ? name : "",
			  (unsigned long long)node->id,
			  has_digest ? CAS_DIGEST_TEXT(&e->digest) : "no digest",
			  err_text(err, code));
	else
		log_debug("%s%s%s in node %llu: %s", what, name ? " " : "", name ? name : "",
			  (unsigned long long)node->id, err_text(err, code));
	if (has_digest && (code == -EIO || code == -EBADMSG || code == -EUCLEAN))
		tell_failed(fs_req_session(req), code, what, e, err);
	if (code == -EBADMSG || code == -EUCLEAN)
		code = -EIO;
	/* An input: the result of whoever needs it will say so. */
	if (code == -EIO && err && cas_err_missing(err, &missing))
		cas_store_note_missed(fs_req_session(req)->opts.store, &missing);
	(void)fuse_reply_err(req, -code);
}

static int size_of(const struct fs_entry *entry, off_t *out)
{
	auto_buf struct buf text = {0};
	int ret;

	switch ((enum fs_kind)entry->kind) {
	case FS_KIND_DIR:
		*out = BLOCK;
		break;
	case FS_KIND_FILE:
		*out = (off_t)entry->digest.size;
		break;
	case FS_KIND_SYMLINK:
		*out = (off_t)strlen(entry->target);
		break;
	case FS_KIND_TEXT:
		*out = (off_t)entry->digest.size;
		if (entry->slow)
			break;
		ret = entry->view->ops->text(entry->view, entry, &text);
		if (ret < 0)
			return ret;
		*out = (off_t)text.len;
		break;
	case FS_KIND_CONTROL:
	case FS_KIND_EVENTS:
	case FS_KIND_UPPER: /* has a stat of its own */
		*out = 0;
		break;
	}
	return 0;
}

/*
 * An input that is shown as root's is no more its owner's than anybody else's: what the
 * owner may, all others may. None but he is let in, or all were to be.
 */
static void give_to_root(const struct fs_entry *entry, struct stat *st)
{
	if (entry->kind == FS_KIND_DIR)
		return;
	st->st_uid = 0;
	st->st_gid = 0;
	st->st_mode |= (st->st_mode >> 6) & 05;
}

/* What of a layer is as in the tree still is the sandbox's alone all the same. */
static int fill_upper(const struct fs_session *session, const struct fs_entry *entry,
		      struct stat *st)
{
	struct fs_entry lower;
	int ret = entry->view->ops->stat(entry->view, entry, st, &lower);
	ino_t ino = st->st_ino;

	if (ret <= 0)
		return ret;
	ret = fs_attr_fill(session, &lower, st);
	st->st_ino = ino;
	st->st_mode = fs_attr_mode(&lower);
	st->st_uid = session->opts.uid;
	st->st_gid = session->opts.gid;
	return ret;
}

int fs_attr_fill(const struct fs_session *session, const struct fs_entry *entry, struct stat *st)
{
	struct timespec mtime = fs_attr_mtime(entry);

	if (entry->kind == FS_KIND_UPPER)
		return fill_upper(session, entry, st);
	*st = (struct stat){
		.st_ino = fs_key_ino(&entry->key),
		.st_mode = fs_attr_mode(entry),
		.st_nlink = 1,
		.st_uid = session->opts.uid,
		.st_gid = session->opts.gid,
		.st_blksize = BLOCK,
		.st_atim = mtime,
		.st_mtim = mtime,
		.st_ctim = mtime,
	};
	int ret = size_of(entry, &st->st_size);

	if (session->opts.inputs_of_root)
		give_to_root(entry, st);
	if (entry->kind == FS_KIND_EVENTS && session->opts.events) {
		st->st_size = (off_t)fs_events_size(session->opts.events, &st->st_mtim);
		st->st_ctim = st->st_mtim;
	}
	st->st_blocks = entry->kind == FS_KIND_FILE
				? (blkcnt_t)fs_backing_blocks(session->opts.backing, &entry->digest)
				: (st->st_size + 511) / 512;
	return ret;
}

uint64_t fs_ops_layer(const struct fs_session *session, const struct fs_inode *node)
{
	if (!session->opts.uppers || node->entry.kind != FS_KIND_DIR || node->id == FS_INODE_ROOT ||
	    !fs_uppers_any(session->opts.uppers))
		return 0;
	return fs_inode_serial(session->table, node->id);
}

int fs_ops_hold(const struct fs_session *session, struct fs_inode *node, uint64_t layer,
		struct err *err)
{
	struct fs_entry entry;
	int ret =
		layer && node->entry.kind == FS_KIND_DIR
			? fs_uppers_dir(session->opts.uppers, layer, &node->entry.key, &entry, err)
			: 0;

	if (ret > 0)
		node->entry = entry;
	return ret;
}

void fs_ops_unhold(const struct fs_inode *node)
{
	node->entry.view->ops->let_go(node->entry.view, &node->entry);
}

int fs_attr_of(const struct fs_session *session, const struct fs_inode *node, uint64_t layer,
	       struct stat *st)
{
	struct fs_inode held = *node;
	int held_it = fs_ops_hold(session, &held, layer, NULL);
	int ret = held_it < 0 ? held_it : fs_attr_fill(session, &held.entry, st);

	if (held_it > 0)
		fs_ops_unhold(&held);
	return ret;
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct fs_session *session = fs_req_session(req);
	struct fs_inode node;
	struct stat st;
	int ret;

	if (!fs_req_node(req, ino, &node))
		return;
	ret = fs_attr_of(session, &node, fs_ops_layer(session, &node), &st);
	if (ret < 0)
		fs_reply_error(req, ret, "stat", &node, NULL, NULL);
	else
		(void)fuse_reply_attr(req, &st, node.entry.fleeting ? 0 : FS_FOREVER);
}

/* `echo WORD > FILE` truncates first: that is fine, and means nothing. */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	const int harmless = FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW |
			     FUSE_SET_ATTR_CTIME;
	struct fs_inode node;

	if (!fs_req_node(req, ino, &node) || fs_ops_setattr_upper(req, &node, attr, to_set))
		return;
	if ((node.entry.kind == FS_KIND_CONTROL ||
	     (node.entry.kind == FS_KIND_TEXT && (node.entry.mode & 0200))) &&
	    (to_set & ~harmless) == 0)
		op_getattr(req, ino, fi);
	else
		(void)fuse_reply_err(req, EROFS);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;

	if (fstatvfs(cas_store_dir_fd(fs_req_session(req)->opts.store), &st) < 0) {
		(void)fuse_reply_err(req, errno);
		return;
	}
	st.f_namemax = NAME_MAX_SHOWN;
	(void)fuse_reply_statfs(req, &st);
}

/*
 * Left to libfuse, which answers ENOSYS, after which the kernel never asks again:
 * access (default_permissions decides), getxattr and listxattr (unless asked for: answering
 * them at all makes every exec ask), flush and fsync.
 */
void fs_ops_attr(struct fuse_lowlevel_ops *ops)
{
	ops->getattr = op_getattr;
	ops->setattr = op_setattr;
	ops->statfs = op_statfs;
}
