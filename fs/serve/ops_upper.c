/* fs/serve/ops_upper.c - operations that change something: nodes of layers that we serve */

/*
 * Whatever is no node of a layer is read-only. An operation may find that an input has to
 * be copied first whose bytes are not here, or are many: then all of it is done again by a
 * thread that may wait for them.
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/serve/executor.h"
#include "fs/serve/ops.h"
#include "fs/serve/session.h"
#include "fs/upper/upper.h"

/* One operation with all that it needs. */
struct change {
	struct fs_job job; /* first: the job is the change */
	fuse_req_t req;
	/* Does it, and answers when that went well. */
	int (*run)(struct change *c, struct err *err);
	const char *what; /* for messages: "write to" */
	struct fs_inode node;
	struct fs_inode node2;
	bool held; /* fs_ops_hold of node, and of node2 */
	bool held2;
	char name[CAS_NAME_MAX + 1];
	char name2[CAS_NAME_MAX + 1];
	unsigned flags;
	mode_t mode;
	dev_t rdev;
	struct fs_change attr;
	char *data; /* of a write, a link's target; owned in a thread that may wait */
	size_t size;
	off_t off;
	off_t len;
	bool kill; /* set-id bits go as well */
};

static struct fs_unode *unode(const struct fs_inode *node)
{
	return (struct fs_unode *)(uintptr_t)node->entry.tag;
}

static bool is_upper(const struct fs_inode *node)
{
	return node->entry.kind == FS_KIND_UPPER;
}

static struct fs_caller caller(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct fs_caller){ctx->uid, ctx->gid};
}

static void reply_error(struct change *c, int ret, struct err *err)
{
	fs_reply_error(c->req, ret, c->what, &c->node, c->name[0] ? c->name : NULL, err);
}

/* It is over. */
static void end(struct change *c)
{
	if (c->held)
		fs_ops_unhold(&c->node);
	if (c->held2)
		fs_ops_unhold(&c->node2);
	c->held = c->held2 = false;
}

static void end_with(struct change *c, int code)
{
	(void)fuse_reply_err(c->req, code);
	end(c);
}

static void run_later(struct fs_job *job)
{
	struct change *c = (struct change *)job;
	struct err err = {0};
	int ret = c->run(c, &err);

	if (ret < 0)
		reply_error(c, ret == -ENOENT && cas_err_missing(&err, NULL) ? -EIO : ret, &err);
	end(c);
	free(c->data);
	free(c);
}

/* True when a thread that may wait takes it over. */
static bool defer(const struct change *c, int ret, const struct err *err)
{
	struct change *later;

	if (!lock_thread_is_prompt() || (ret != -EAGAIN && !cas_err_missing(err, NULL)))
		return false;
	later = malloc(sizeof(*later));
	if (!later)
		return false;
	*later = *c;
	later->data = c->size > 0 ? malloc(c->size) : NULL;
	if (c->size > 0 && !later->data) {
		free(later);
		return false;
	}
	if (c->size > 0)
		memcpy(later->data, c->data, c->size);
	later->job.run = run_later;
	fs_executor_submit(fs_req_session(c->req)->opts.opener, &later->job);
	return true;
}

static void run(struct change *c)
{
	struct err err = {0};
	int ret = c->run(c, &err);

	if (ret < 0 && defer(c, ret, &err))
		return;
	if (ret < 0)
		reply_error(c, ret, &err);
	end(c);
}

/* A layer may answer for the node, which is a node of the layer then; false: answered. */
static bool hold(struct change *c, struct fs_inode *node, bool *held)
{
	const struct fs_session *session = fs_req_session(c->req);
	struct err err = {0};
	int ret = fs_ops_hold(session, node, fs_ops_layer(session, node), &err);

	*held = ret > 0;
	if (ret >= 0)
		return true;
	reply_error(c, ret, &err);
	end(c);
	return false;
}

/* The node that the operation is about; false: answered. */
static bool begin(struct change *c, fuse_ino_t ino)
{
	if (!fs_req_node(c->req, ino, &c->node) || !hold(c, &c->node, &c->held))
		return false;
	if (!is_upper(&c->node))
		end_with(c, EROFS);
	return is_upper(&c->node);
}

/* Another one, which may be of any kind. */
static bool take_second(struct change *c, fuse_ino_t ino)
{
	if (fs_req_node(c->req, ino, &c->node2))
		return hold(c, &c->node2, &c->held2);
	end(c);
	return false;
}

static bool take_name(struct change *c, const char *name, char out[CAS_NAME_MAX + 1])
{
	if (strlen(name) > CAS_NAME_MAX) {
		end_with(c, ENAMETOOLONG);
		return false;
	}
	(void)strcpy(out, name);
	return true;
}

/* The kernel learns of the node @entry by the answer. */
static int reply_entry(struct change *c, const struct fs_inode *dir, const char *name,
		       struct fs_entry *entry)
{
	const struct fs_session *session = fs_req_session(c->req);
	struct fuse_entry_param e;
	int ret = fs_ops_enter(session, dir, name, 0, entry, &e);

	if (ret < 0)
		return ret;
	if (fuse_reply_entry(c->req, &e) < 0)
		fs_inode_forget(session->table, e.ino, 1);
	return 0;
}

static int run_make(struct change *c, struct err *err)
{
	const struct fs_making making = {.name = c->name,
					 .mode = c->mode,
					 .rdev = c->rdev,
					 .target = c->data,
					 .by = caller(c->req)};
	struct fs_entry entry;
	int ret = fs_upper_make(unode(&c->node), &making, &entry, err);

	return ret < 0 ? ret : reply_entry(c, &c->node, c->name, &entry);
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev,
		 const char *target)
{
	struct change c = {
		.req = req, .run = run_make, .what = "making of", .mode = mode, .rdev = rdev};

	if (!begin(&c, parent) || !take_name(&c, name, c.name))
		return;
	c.data = (char *)(uintptr_t)target;
	c.size = target ? strlen(target) + 1 : 0;
	run(&c);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	make(req, parent, name, mode, rdev, NULL);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	make(req, parent, name, (mode & 07777) | S_IFDIR, 0, NULL);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	make(req, parent, name, S_IFLNK | 0777, 0, target);
}

/* Without opens MKNOD does the same, and no RELEASE follows. */
static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	(void)fuse_reply_err(req, fs_req_session(req)->opts.uppers ? ENOSYS : EROFS);
}

static int run_remove(struct change *c, struct err *err)
{
	int ret = fs_upper_remove(unode(&c->node), c->name, S_ISDIR(c->mode), err);

	if (ret == 0)
		(void)fuse_reply_err(c->req, 0);
	return ret;
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t type)
{
	struct change c = {.req = req, .run = run_remove, .what = "removal of", .mode = type};

	if (begin(&c, parent) && take_name(&c, name, c.name))
		run(&c);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, S_IFREG);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, S_IFDIR);
}

static int run_rename(struct change *c, struct err *err)
{
	int ret = fs_upper_rename(unode(&c->node), c->name, unode(&c->node2), c->name2, c->flags,
				  err);

	if (ret == 0)
		(void)fuse_reply_err(c->req, 0);
	return ret;
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	struct change c = {.req = req, .run = run_rename, .what = "renaming of", .flags = flags};

	if (!begin(&c, parent) || !take_name(&c, name, c.name) ||
	    !take_name(&c, new_name, c.name2) || !take_second(&c, new_parent))
		return;
	if (!is_upper(&c.node2))
		end_with(&c, EROFS);
	else
		run(&c);
}

static int run_link(struct change *c, struct err *err)
{
	struct fs_entry entry;
	int ret = fs_upper_link(unode(&c->node2), unode(&c->node), c->name, &entry, err);

	return ret < 0 ? ret : reply_entry(c, &c->node, c->name, &entry);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	struct change c = {.req = req, .run = run_link, .what = "link to"};

	if (!begin(&c, new_parent) || !take_name(&c, new_name, c.name) || !take_second(&c, ino))
		return;
	/* An input is shared with other sandboxes: as if it were on another filesystem. */
	if (!is_upper(&c.node2))
		end_with(&c, EXDEV);
	else
		run(&c);
}

static int run_setattr(struct change *c, struct err *err)
{
	struct stat st;
	int ret = fs_upper_change(unode(&c->node), &c->attr, err);

	if (ret == 0 && c->kill)
		ret = fs_upper_kill_set_id(unode(&c->node));

	if (ret == 0)
		ret = fs_attr_fill(fs_req_session(c->req), &c->node.entry, &st);
	if (ret == 0)
		(void)fuse_reply_attr(c->req, &st, FS_FOREVER);
	return ret;
}

static struct timespec time_of(const struct timespec *given, int to_set, int set, int now)
{
	if (to_set & now)
		return (struct timespec){0, UTIME_NOW};
	return to_set & set ? *given : (struct timespec){0, UTIME_OMIT};
}

bool fs_ops_setattr_upper(fuse_req_t req, const struct fs_inode *node, const struct stat *st,
			  int to_set)
{
	struct change c = {.req = req, .run = run_setattr, .what = "change of", .node = *node};

	if (!hold(&c, &c.node, &c.held))
		return true;
	if (!is_upper(&c.node))
		return false;
	c.kill = fs_req_session(req)->wire.killpriv && (to_set & FS_WIRE_CHANGE_KILLS);
	c.attr = (struct fs_change){
		.set_mode = to_set & FUSE_SET_ATTR_MODE,
		.set_uid = to_set & FUSE_SET_ATTR_UID,
		.set_gid = to_set & FUSE_SET_ATTR_GID,
		.set_size = to_set & FUSE_SET_ATTR_SIZE,
		.set_atime = to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW),
		.set_mtime = to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW),
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = st->st_size,
		.times = {time_of(&st->st_atim, to_set, FUSE_SET_ATTR_ATIME,
				  FUSE_SET_ATTR_ATIME_NOW),
			  time_of(&st->st_mtim, to_set, FUSE_SET_ATTR_MTIME,
				  FUSE_SET_ATTR_MTIME_NOW)},
	};
	run(&c);
	return true;
}

static int run_write(struct change *c, struct err *err)
{
	int ret = fs_upper_write(unode(&c->node), c->data, c->size, c->off, err);

	if (ret == 0 && c->kill)
		ret = fs_upper_kill_set_id(unode(&c->node));
	if (ret == 0)
		(void)fuse_reply_write(c->req, c->size);
	return ret;
}

bool fs_ops_write_upper(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
			bool kill)
{
	struct change c = {.req = req,
			   .run = run_write,
			   .what = "write to",
			   .data = (char *)(uintptr_t)data,
			   .size = size,
			   .off = off,
			   .kill = kill};

	if (!fs_req_session(req)->opts.uppers)
		return false;
	if (begin(&c, ino))
		run(&c);
	return true;
}

static int run_fallocate(struct change *c, struct err *err)
{
	int ret = fs_upper_fallocate(unode(&c->node), (int)c->mode, c->off, c->len, err);

	if (ret == 0)
		(void)fuse_reply_err(c->req, 0);
	return ret;
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	struct change c = {.req = req,
			   .run = run_fallocate,
			   .what = "allocation in",
			   .mode = (mode_t)mode,
			   .off = off,
			   .len = len};

	if (begin(&c, ino))
		run(&c);
}

bool fs_ops_readlink_upper(fuse_req_t req, const struct fs_inode *node)
{
	auto_free char *target = NULL;
	int ret;

	if (!is_upper(node))
		return false;
	ret = fs_upper_readlink(unode(node), &target);
	if (ret < 0)
		(void)fuse_reply_err(req, -ret);
	else
		(void)fuse_reply_readlink(req, target);
	return true;
}

/* Which attributes exist is settled for the whole connection by one ENOSYS. */
static bool has_xattrs(fuse_req_t req)
{
	const struct fs_session *session = fs_req_session(req);

	if (session->opts.xattr || !session->opts.uppers)
		return true;
	(void)fuse_reply_err(req, ENOSYS);
	return false;
}

static int run_setxattr(struct change *c, struct err *err)
{
	int ret =
		fs_upper_xattr_set(unode(&c->node), c->name, c->data, c->size, (int)c->flags, err);

	if (ret == 0)
		(void)fuse_reply_err(c->req, 0);
	return ret;
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	struct change c = {.req = req,
			   .run = run_setxattr,
			   .what = "attribute",
			   .data = (char *)(uintptr_t)value,
			   .size = size,
			   .flags = (unsigned)flags};

	if (has_xattrs(req) && begin(&c, ino) && take_name(&c, name, c.name))
		run(&c);
}

static int run_removexattr(struct change *c, struct err *err)
{
	int ret = fs_upper_xattr_remove(unode(&c->node), c->name, err);

	if (ret == 0)
		(void)fuse_reply_err(c->req, 0);
	return ret;
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct change c = {.req = req, .run = run_removexattr, .what = "attribute"};

	if (has_xattrs(req) && begin(&c, ino) && take_name(&c, name, c.name))
		run(&c);
}

void fs_ops_upper(struct fuse_lowlevel_ops *ops)
{
	ops->mknod = op_mknod;
	ops->mkdir = op_mkdir;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->symlink = op_symlink;
	ops->rename = op_rename;
	ops->link = op_link;
	ops->create = op_create;
	ops->fallocate = op_fallocate;
	ops->setxattr = op_setxattr;
	ops->removexattr = op_removexattr;
}
