/* fs/serve/ops_seek.c - where a blob has data, and where holes */

/*
 * Asked so, whoever copies out of the mount (cp, tar -S) keeps holes. As for READ, the
 * blob is found by the handle, or by the node in a session without opens; one that must
 * be hashed first, and is large, is left to a thread of the opener.
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/backing/backing.h"
#include "fs/node/handle.h"
#include "fs/serve/executor.h"
#include "fs/serve/ops.h"
#include "fs/serve/session.h"
#include "fs/upper/upper.h"

#define SLOW_OPEN_SZ (4U << 20)

struct seek {
	struct fs_job job; /* first: the job is the request */
	fuse_req_t req;
	struct fs_inode node;
	off_t off;
	int whence;
};

static void reply(fuse_req_t req, const struct fs_backing *backing, off_t off, int whence)
{
	off_t got = fs_backing_seek(backing, off, whence);

	if (got < 0)
		(void)fuse_reply_err(req, (int)-got);
	else
		(void)fuse_reply_lseek(req, got);
}

static void seek_node(const struct seek *s)
{
	struct fs_backing_table *table = fs_req_session(s->req)->opts.backing;
	struct fs_backing *backing;
	struct err err = {0};
	int ret = fs_backing_ref(table, &s->node.entry.digest, &backing, &err);

	if (ret < 0) {
		fs_reply_error(s->req, ret == -ENOENT ? -EIO : ret, "seek", &s->node, NULL, &err);
		return;
	}
	reply(s->req, backing, s->off, s->whence);
	fs_backing_unref(table, backing);
}

static void run_seek(struct fs_job *job)
{
	struct seek *s = (struct seek *)job;

	seek_node(s);
	free(s);
}

/* True when an opener takes the request over. */
static bool defer(const struct seek *s)
{
	const struct fs_session *session = fs_req_session(s->req);
	const struct cas_digest *digest = &s->node.entry.digest;
	struct seek *later;

	if (digest->size < SLOW_OPEN_SZ || fs_backing_is_open(session->opts.backing, digest))
		return false;
	later = malloc(sizeof(*later));
	if (!later)
		return false;
	*later = *s;
	later->job.run = run_seek;
	fs_executor_submit(session->opts.opener, &later->job);
	return true;
}

/* True: it was answered. False: *node is a file of the tree, whose bytes it shows. */
static bool seek_upper(fuse_req_t req, struct fs_inode *node, off_t off, int whence)
{
	struct fs_unode *unode = (struct fs_unode *)(uintptr_t)node->entry.tag;
	int ret = fs_upper_is_lower(unode, &node->entry);
	off_t got;

	if (ret > 0)
		return false;
	got = ret < 0 ? ret : fs_upper_seek(unode, off, whence);
	if (got < 0)
		(void)fuse_reply_err(req, (int)-got);
	else
		(void)fuse_reply_lseek(req, got);
	return true;
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		     struct fuse_file_info *fi)
{
	const struct fs_handle *handle = fi ? (struct fs_handle *)(uintptr_t)fi->fh : NULL;
	struct seek s = {.req = req, .off = off, .whence = whence};

	if (!fs_req_node(req, ino, &s.node) ||
	    (s.node.entry.kind == FS_KIND_UPPER && seek_upper(req, &s.node, off, whence)))
		return;
	/* Texts and the control file; ENOSYS would speak for every file of the session. */
	if (s.node.entry.kind != FS_KIND_FILE || (whence != SEEK_DATA && whence != SEEK_HOLE))
		(void)fuse_reply_err(req, EINVAL);
	else if (handle && handle->kind == FS_HANDLE_BLOB && handle->backing)
		reply(req, handle->backing, off, whence);
	else if (!defer(&s))
		seek_node(&s);
}

void fs_ops_seek(struct fuse_lowlevel_ops *ops)
{
	ops->lseek = op_lseek;
}
