/* fs/serve/ops_data.c - open files: blobs, texts, the control file */

/*
 * Session one has no opens: READ comes with a node and no handle, and finds the blob's
 * descriptor in the backing table. In session two fi->fh is a struct fs_handle.
 *
 * Opening a blob whose stamp is not known hashes it. For a large one that takes long: it
 * is left to threads of the opener, so that those of the session go on answering (and
 * the watchdog does not take hashing for a wedged mount).
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/backing/await.h"
#include "fs/backing/backing.h"
#include "fs/backing/iobuf.h"
#include "fs/backing/open_reply.h"
#include "fs/backing/passthrough.h"
#include "fs/channel/channel.h"
#include "fs/node/handle.h"
#include "fs/node/inode.h"
#include "fs/report/events.h"
#include "fs/serve/executor.h"
#include "fs/serve/ops.h"
#include "fs/serve/session.h"
#include "fs/trace/trace.h"
#include "fs/upper/upper.h"

#define SLOW_OPEN_SZ (4U << 20)

/* A request that waits for an opener. */
struct deferred {
	struct fs_job job; /* first: the job is the request */
	struct fs_again again;
};

/* The kernel orders its answer after our open, of which neither compiler nor checker knows. */
static struct fs_handle *handle_of(const struct fuse_file_info *fi)
{
	struct fs_handle *handle = fi ? (struct fs_handle *)(uintptr_t)fi->fh : NULL;

	if (handle)
		(void)atomic_load_explicit(&handle->ready, memory_order_acquire);
	return handle;
}

static void free_handle(const struct fs_session *session, uint64_t id, struct fs_handle *handle)
{
	if (!handle)
		return;
	switch (handle->kind) {
	case FS_HANDLE_BLOB:
		if (handle->counted)
			fs_passthrough_release(session->passthrough, id);
		fs_backing_unref(session->opts.backing, handle->backing);
		break;
	case FS_HANDLE_TEXT:
		free(handle->text.data);
		break;
	case FS_HANDLE_CONTROL:
		fs_channel_release(handle->channel);
		break;
	case FS_HANDLE_EVENTS:
		fs_follower_free(handle->follower);
		break;
	}
	free(handle);
}

/*
 * A blob that its tree names must be there. One that is a name itself may have been evicted
 * since that was looked up: on ESTALE the kernel looks it up once more.
 */
static int ref_blob(const struct fs_session *session, const struct fs_entry *entry,
		    struct fs_backing **out, struct err *err)
{
	int ret = fs_backing_ref(session->opts.backing, &entry->digest, out, err);

	return ret != -ENOENT ? ret : entry->named_blob ? -ESTALE : -EIO;
}

/*
 * An open blob keeps its descriptor, so that it stays readable whatever happens to the
 * store; but not the last descriptors that we have.
 */
static int open_blob(struct fs_session *session, const struct fs_inode *node,
		     struct fs_handle *handle, struct err *err)
{
	struct fs_backing_table *table = session->opts.backing;
	int ret = ref_blob(session, &node->entry, &handle->backing, err);
	bool scarce;

	if (ret < 0)
		return ret;
	scarce = fs_backing_is_scarce(table, handle->backing);
	ret = fs_passthrough_open(session->passthrough, node->id, handle->backing, !scarce,
				  &handle->io, &handle->backing_id);
	handle->counted = ret == 0;
	if (ret == -EIO)
		ret = err_set(err, -EIO, "its file was replaced while it is open");
	if (ret < 0 || (scarce && handle->io == FS_IO_CACHED)) {
		fs_backing_unref(table, handle->backing);
		handle->backing = NULL;
	}
	return ret;
}

/*
 * The kernel splices (sendfile, and what copies by it) as many bytes as stat tells, which for
 * who opens first and asks then is what is made here.
 */
static int open_text(const struct fs_session *session, const struct fs_inode *node,
		     struct fs_handle *handle)
{
	const struct fs_entry *entry = &node->entry;
	auto_buf struct buf text = {0};
	int ret = entry->view->ops->text(entry->view, entry, &text);

	if (ret < 0)
		return ret;
	if (entry->slow)
		fs_inode_made(session->table, node->id, text.len);
	handle->text.len = text.len;
	handle->text.data = buf_steal(&text);
	return 0;
}

static int open_control(const struct fs_session *session, struct fs_handle *handle)
{
	if (!session->opts.channels)
		return -ENXIO;
	return fs_channel_new(session->opts.channels, &handle->channel);
}

static int open_handle(fuse_req_t req, const struct fs_inode *node, struct fs_handle *handle,
		       struct err *err)
{
	struct fs_session *session = fs_req_session(req);

	switch ((enum fs_kind)node->entry.kind) {
	case FS_KIND_FILE:
		handle->kind = FS_HANDLE_BLOB;
		return open_blob(session, node, handle, err);
	case FS_KIND_TEXT:
		handle->kind = FS_HANDLE_TEXT;
		return open_text(session, node, handle);
	case FS_KIND_CONTROL:
		handle->kind = FS_HANDLE_CONTROL;
		return open_control(session, handle);
	case FS_KIND_EVENTS:
		handle->kind = FS_HANDLE_EVENTS;
		return session->opts.events
			       ? fs_follower_new(session->opts.events, &handle->follower)
			       : -ENXIO;
	case FS_KIND_DIR:
	case FS_KIND_SYMLINK:
	case FS_KIND_UPPER: /* has no handles */
		break;
	}
	return -EINVAL;
}

static int reply_open(fuse_req_t req, struct fs_handle *handle, struct fuse_file_info *fi)
{
	fi->fh = (uintptr_t)handle;
	atomic_store_explicit(&handle->ready, true, memory_order_release);
	switch (handle->kind) {
	case FS_HANDLE_BLOB:
		if (handle->io == FS_IO_PASSTHROUGH)
			return fs_reply_open_passthrough(req, fi->fh, handle->backing_id);
		fi->keep_cache = 1;
		break;
	case FS_HANDLE_CONTROL:
		return fs_reply_open_stream(req, fi->fh);
	case FS_HANDLE_TEXT:
	case FS_HANDLE_EVENTS:
		fi->direct_io = 1;
		break;
	}
	return fuse_reply_open(req, fi);
}

/* The blob may be missing: then all of it once more when it is there. */
static void do_open(const struct fs_again *again)
{
	fuse_req_t req = again->req;
	const struct fs_inode *node = &again->node;
	struct fuse_file_info fi = again->fi;
	struct fs_handle *handle = calloc(1, sizeof(*handle));
	struct err err = {0};
	int ret = handle ? open_handle(req, node, handle, &err) : -ENOMEM;
	struct fs_session *session = fs_req_session(req);
	uint64_t id = node->id;

	if (ret < 0) {
		free(handle);
		if (!fs_await(session->opts.awaits, again, &err))
			fs_reply_error(req, ret, "open", node, NULL, &err);
	} else if (reply_open(req, handle, &fi) < 0) {
		/* Interrupted: no release will come. */
		free_handle(session, id, handle);
	}
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	free_handle(fs_req_session(req), ino, handle_of(fi));
	(void)fuse_reply_err(req, 0);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_inode node;

	if (fs_req_session(req)->opts.no_opens) {
		(void)fuse_reply_err(req, ENOSYS);
		return;
	}
	if (!fs_req_node(req, ino, &node))
		return;
	/* What changes its list is asked each time. */
	fi->cache_readdir = !(node.entry.fleeting || node.entry.lively);
	fi->keep_cache = fi->cache_readdir;
	(void)fuse_reply_open(req, fi);
}

static void read_blob(fuse_req_t req, const struct fs_inode *node, const struct fs_backing *backing,
		      size_t size, off_t off)
{
	struct fs_iobufs *pool = fs_req_session(req)->iobufs;
	void *data = fs_iobuf_take(pool);
	ssize_t got = -ENOMEM;

	/* Fewer bytes than asked for would be zeros; more than this is never asked for. */
	if (data)
		got = size <= FS_IOBUF_SZ ? fs_backing_read(backing, data, size, off) : -EINVAL;
	if (got < 0)
		fs_reply_error(req, (int)got, "read", node, NULL, NULL);
	else
		(void)fuse_reply_buf(req, data, (size_t)got);
	fs_iobuf_give(pool, data);
}

static void read_node(const struct fs_again *again)
{
	fuse_req_t req = again->req;
	const struct fs_inode *node = &again->node;
	const struct fs_session *session = fs_req_session(req);
	struct fs_backing *backing;
	struct err err = {0};
	int ret;

	if (node->entry.kind != FS_KIND_FILE) {
		(void)fuse_reply_err(req, EINVAL);
		return;
	}
	ret = ref_blob(session, &node->entry, &backing, &err);
	if (ret < 0) {
		if (!fs_await(session->opts.awaits, again, &err))
			fs_reply_error(req, ret, "read", node, NULL, &err);
		return;
	}
	if (session->opts.read && again->off == 0)
		session->opts.read(session->opts.ctx, node, again->rounds > 0);
	read_blob(req, node, backing, again->size, again->off);
	fs_backing_unref(session->opts.backing, backing);
}

static void run_deferred(struct fs_job *job)
{
	struct deferred *d = (struct deferred *)job;

	cas_fetch_never_here(true);
	d->again.run(&d->again);
	free(d);
}

/* True when an opener takes the request over. */
static bool defer(const struct fs_again *again)
{
	const struct fs_session *session = fs_req_session(again->req);
	const struct cas_digest *digest = &again->node.entry.digest;
	struct deferred *d;

	if (!again->node.entry.slow &&
	    (again->node.entry.kind != FS_KIND_FILE || digest->size < SLOW_OPEN_SZ ||
	     fs_backing_is_open(session->opts.backing, digest)))
		return false;
	d = malloc(sizeof(*d));
	if (!d)
		return false;
	d->again = *again;
	d->job.run = run_deferred;
	fs_executor_submit(session->opts.opener, &d->job);
	return true;
}

static bool is_writable(const struct fs_entry *entry)
{
	return entry->kind == FS_KIND_CONTROL ||
	       (entry->kind == FS_KIND_TEXT && (entry->mode & 0200) != 0);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_again again = {.run = do_open, .req = req, .what = "open", .fi = *fi};
	bool changes;

	if (fs_req_session(req)->opts.no_opens) {
		(void)fuse_reply_err(req, ENOSYS);
		return;
	}
	if (!fs_req_node(req, ino, &again.node))
		return;
	if (again.node.entry.kind == FS_KIND_UPPER) {
		fi->keep_cache = 1;
		(void)fuse_reply_open(req, fi);
		return;
	}
	again.may_be_absent = !again.node.entry.view->ops->negative_forever;
	changes = (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC);
	if (changes && !is_writable(&again.node.entry)) {
		(void)fuse_reply_err(req, EROFS);
		return;
	}
	/* Modes keep others out but root, which may become anybody: not through us. */
	if ((changes || again.node.entry.kind == FS_KIND_CONTROL) &&
	    fuse_req_ctx(req)->uid != fs_req_session(req)->opts.uid) {
		(void)fuse_reply_err(req, EACCES);
		return;
	}
	fs_tap_read(fs_req_session(req)->opts.tap, ino, fuse_req_ctx(req)->pid);
	if (!defer(&again))
		do_open(&again);
}

static void read_text(fuse_req_t req, const struct fs_handle *handle, size_t size, off_t off)
{
	size_t len = handle->text.len;
	size_t start = (uint64_t)off < len ? (size_t)off : len;

	if (size > len - start)
		size = len - start;
	(void)fuse_reply_buf(req, size ? handle->text.data + start : NULL, size);
}

static void read_events(fuse_req_t req, struct fs_follower *follower, size_t size, off_t off)
{
	auto_buf struct buf bytes = {0};
	int ret = fs_follower_read(follower, (uint64_t)off, size, &bytes);

	if (ret < 0)
		(void)fuse_reply_err(req, -ret);
	else
		(void)fuse_reply_buf(req, bytes.data, bytes.len);
}

/* True: it was answered. False: *node is a file of the tree, whose bytes it shows. */
static bool read_upper(fuse_req_t req, struct fs_inode *node, size_t size, off_t off)
{
	struct fs_unode *unode = (struct fs_unode *)(uintptr_t)node->entry.tag;
	struct fs_iobufs *pool = fs_req_session(req)->iobufs;
	int ret = fs_upper_is_lower(unode, &node->entry);
	ssize_t got = -ENOMEM;
	void *data;

	if (ret > 0)
		return false;
	data = ret == 0 ? fs_iobuf_take(pool) : NULL;
	if (data)
		got = size <= FS_IOBUF_SZ ? fs_upper_read(unode, data, size, off) : -EINVAL;
	if (ret < 0 || got < 0)
		(void)fuse_reply_err(req, (int)-(ret < 0 ? ret : got));
	else
		(void)fuse_reply_buf(req, data, (size_t)got);
	fs_iobuf_give(pool, data);
	return true;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct fs_again again = {
		.run = read_node, .req = req, .what = "read", .size = size, .off = off};
	const struct fs_handle *handle = handle_of(fi);

	if (!fs_req_node(req, ino, &again.node))
		return;
	if (again.node.entry.kind == FS_KIND_UPPER && read_upper(req, &again.node, size, off))
		return;
	if (!handle) {
		fs_tap_read(fs_req_session(req)->opts.tap, ino, fuse_req_ctx(req)->pid);
		if (!defer(&again))
			read_node(&again);
		return;
	}
	switch (handle->kind) {
	case FS_HANDLE_BLOB:
		if (handle->backing)
			read_blob(req, &again.node, handle->backing, size, off);
		else
			read_node(&again);
		break;
	case FS_HANDLE_TEXT:
		read_text(req, handle, size, off);
		break;
	case FS_HANDLE_CONTROL:
		fs_channel_read(handle->channel, req, size, (fi->flags & O_NONBLOCK) != 0);
		break;
	case FS_HANDLE_EVENTS:
		read_events(req, handle->follower, size, off);
		break;
	}
}

/* One write says it all: nobody writes a word in two. */
static void change_text(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size)
{
	struct fs_inode node;
	int ret;

	if (!fs_req_node(req, ino, &node))
		return;
	ret = is_writable(&node.entry) && node.entry.view->ops->change
		      ? node.entry.view->ops->change(node.entry.view, &node.entry, data, size)
		      : -EROFS;
	if (ret < 0)
		(void)fuse_reply_err(req, -ret);
	else
		(void)fuse_reply_write(req, size);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct fs_session *session = fs_req_session(req);
	const struct fs_handle *handle = handle_of(fi);
	bool kill = session->wire.killpriv && (fi->flags & FS_WIRE_WRITE_KILLS);
	struct fs_job *job = NULL;
	int ret;

	if (!handle && fs_ops_write_upper(req, ino, data, size, off, kill))
		return;
	if (handle && handle->kind == FS_HANDLE_TEXT) {
		change_text(req, ino, data, size);
		return;
	}
	if (!handle || handle->kind != FS_HANDLE_CONTROL) {
		(void)fuse_reply_err(req, EROFS);
		return;
	}
	ret = fs_channel_write(handle->channel, data, size, &job);
	if (ret < 0)
		(void)fuse_reply_err(req, -ret);
	else
		(void)fuse_reply_write(req, size);
	if (job)
		fs_session_run(session, job);
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		    struct fuse_pollhandle *ph)
{
	const struct fs_handle *handle = handle_of(fi);
	unsigned events = POLLIN | POLLOUT;

	if (handle && handle->kind == FS_HANDLE_CONTROL)
		events = fs_channel_poll(handle->channel, ph);
	else if (handle && handle->kind == FS_HANDLE_EVENTS)
		events = fs_follower_poll(handle->follower, ph);
	else if (ph)
		fuse_pollhandle_destroy(ph);
	(void)fuse_reply_poll(req, events);
}

void fs_ops_data(struct fuse_lowlevel_ops *ops)
{
	ops->open = op_open;
	ops->release = op_release;
	ops->opendir = op_opendir;
	ops->read = op_read;
	ops->write = op_write;
	ops->poll = op_poll;
}
