/* cas/ingest/ingest_walk.c - directories of an ingest: scan, spread the work, store from the leaves
 * up */
#include "cas/ingest/ingest_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/log.h"
#include "cas/put/put.h"
#include "cas/put/temp_name.h"
#include "cas/reapi/directory.h"
#include "cas/store/store_i.h"

/*
 * A directory is a job: open it below its parent's descriptor, read its names, push a
 * job for each child directory and for each further CHUNK of its other entries, do the
 * first chunk itself. Nothing recurses and nothing waits: whoever completes the last
 * piece of a directory stores it, hands the digest to the parent and goes on there when
 * that was the parent's last piece. So depth costs memory, not stack, and one directory
 * of a million files keeps all threads busy.
 *
 * Children write to their own slot of parent->dir->nodes only; the array is complete
 * before the first of them is pushed, and sorted after the last one is done.
 */

#define CHUNK 256

static void run_dir(struct cas_job *job);

static void dir_unuse(struct ingest_dir *d)
{
	if (atomic_fetch_sub(&d->uses, 1) != 1)
		return;
	if (d->fd >= 0)
		(void)close(steal_fd(&d->fd));
}

/* As cas_directory_put, without counting a use: the tree's use is told in the end. */
static int directory_put(struct cas_store *store, struct cas_directory *dir, struct cas_digest *out,
			 struct err *err)
{
	auto_buf struct buf raw = {0};
	int ret = cas_directory_encode(dir, &raw, out, err);

	if (ret < 0 || raw.len == 0)
		return ret;
	if (store->spool == NULL && cas_blob_check(store, out, NULL, NULL) == 0)
		return 0;
	return cas_put_bytes(store, raw.data, raw.len, out, err);
}

static void dir_store(struct ingest_dir *d)
{
	struct ingest *in = d->in;
	struct err err = {0};
	struct cas_digest digest;
	int ret;

	if (ingest_stopped(in) || d->dir == NULL)
		return;
	ret = directory_put(in->store, d->dir, &digest, &err);
	if (ret < 0) {
		ingest_fail_err(in, d, NULL, ret, &err);
		return;
	}
	atomic_fetch_add_explicit(&in->progress->directories, 1, memory_order_relaxed);
	if (d->parent)
		d->parent->dir->nodes[d->index].digest = digest;
	else
		in->root = digest;
}

/* One piece of @d is complete. */
static void dir_done(struct ingest_dir *d)
{
	while (d && atomic_fetch_sub(&d->pending, 1) == 1) {
		struct ingest_dir *parent = d->parent;

		dir_store(d);
		cas_directory_free(d->dir);
		free(d);
		d = parent;
	}
}

static struct ingest_dir *dir_new(struct ingest *in, struct ingest_dir *parent, size_t index)
{
	struct ingest_dir *d = calloc(1, sizeof(*d));

	if (d == NULL || cas_directory_new(&d->dir) < 0) {
		free(d);
		return NULL;
	}
	d->job.run = run_dir;
	d->in = in;
	d->parent = parent;
	d->index = index;
	d->fd = -1;
	atomic_init(&d->uses, 1);
	atomic_init(&d->pending, 1);
	return d;
}

/* Opening. */

/*
 * A mount border is seen before the directory is opened, from attributes that the kernel
 * has: asking a casbox mount of this very process for anything could wait for ourselves.
 */
static int dir_check_border(struct ingest_dir *d, const char *name)
{
	struct statx stx;
	auto_buf struct buf where = {0};
	struct err err = {0};
	dev_t dev;

	if (statx(d->parent->fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
		  STATX_INO, &stx) < 0)
		return -errno;
	dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	d->dev = dev;
	if (dev == d->parent->dev || !ingest_guard_casbox(dev, &where) ||
	    ingest_guard_casbox(d->parent->dev, &where))
		return 0;
	(void)err_set(&err, -ELOOP, "a casbox mount (%s) lies inside the tree", buf_str(&where));
	return ingest_fail_err(d->in, d, NULL, -ELOOP, &err);
}

static int dir_check_guard(struct ingest_dir *d, const struct stat *st)
{
	struct err err = {0};

	if (!ingest_guard_hits(&d->in->guard, st->st_dev, st->st_ino))
		return 0;
	(void)err_set(&err, -ELOOP, "the store %s lies inside the tree",
		      cas_store_path(d->in->store));
	return ingest_fail_err(d->in, d, NULL, -ELOOP, &err);
}

static int dir_open(struct ingest_dir *d)
{
	const char *name = d->parent->dir->nodes[d->index].name;
	struct stat st;
	int ret = dir_check_border(d, name);

	if (ret == 0) {
		d->fd = openat(d->parent->fd, name,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (d->fd < 0)
			ret = -errno;
	}
	if (ret == 0 && fstat(d->fd, &st) < 0)
		ret = -errno;
	if (ret == -ENOENT || ret == -ENOTDIR)
		return ingest_fail_why(d->in, d, NULL, -EAGAIN,
				       "changed or vanished while its parent was read");
	if (ret < 0)
		return ingest_fail(d->in, d, NULL, ret, "open");
	d->traits = d->parent->traits;
	d->dev = st.st_dev;
	if (d->dev != d->parent->dev)
		ingest_traits_get(d->fd, &d->traits);
	if (d->in->opts->preserve)
		ingest_props(&st, &d->dir->props);
	return dir_check_guard(d, &st);
}

/* Scanning. */

static int entry_kind(struct ingest_dir *d, const struct dirent *de, enum cas_node_kind *kind)
{
	unsigned char type = de->d_type;
	struct stat st;

	if (type == DT_UNKNOWN) {
		if (fstatat(d->fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return ingest_fail(d->in, d, de->d_name, -errno, "stat");
		type = IFTODT(st.st_mode);
	}
	if (type == DT_REG)
		*kind = CAS_NODE_FILE;
	else if (type == DT_DIR)
		*kind = CAS_NODE_DIRECTORY;
	else if (type == DT_LNK)
		*kind = CAS_NODE_SYMLINK;
	else
		return ingest_fail_why(d->in, d, de->d_name, -EINVAL,
				       "is a socket, FIFO or device, which no Directory can hold");
	return 0;
}

static int link_read(struct ingest_dir *d, const char *name, char target[PATH_MAX + 1],
		     struct cas_node *node)
{
	ssize_t got = readlinkat(d->fd, name, target, PATH_MAX);
	struct stat st;

	if (got < 0)
		return ingest_fail(d->in, d, name, -errno, "read the link");
	target[got] = '\0';
	node->target = target;
	if (d->in->opts->preserve) {
		if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return ingest_fail(d->in, d, name, -errno, "stat");
		ingest_props(&st, &node->props);
	}
	atomic_fetch_add_explicit(&d->in->progress->symlinks, 1, memory_order_relaxed);
	return 0;
}

/* 1 when the caller of ingest wants the entry left out, or it is no part of the tree. */
static int is_skipped(struct ingest_dir *d, const char *name, bool is_dir)
{
	const struct cas_ingest_options *opts = d->in->opts;
	auto_buf struct buf path = {0};
	int ret;

	if (cas_temp_name_is(name)) {
		log_info("'%s' is left out of a tree: it is what another command of casbox makes, "
			 "or left when it was killed",
			 name);
		return 1;
	}
	if (opts->skip == NULL)
		return 0;
	ret = ingest_rel_path(d, name, &path);
	if (ret < 0)
		return ingest_fail(d->in, d, name, ret, "build the path of");
	return opts->skip(opts->skip_ctx, buf_str(&path), is_dir);
}

static int scan_entry(struct ingest_dir *d, const struct dirent *de)
{
	struct cas_node node = {.name = de->d_name};
	char target[PATH_MAX + 1];
	int ret = entry_kind(d, de, &node.kind);

	if (ret == 0)
		ret = is_skipped(d, de->d_name, node.kind == CAS_NODE_DIRECTORY);
	if (ret != 0)
		return ret < 0 ? ret : 0;
	if (cas_name_check(de->d_name, strlen(de->d_name)) < 0)
		return ingest_fail_why(d->in, d, de->d_name, -EINVAL,
				       "has a name that is not UTF-8, which no Directory can hold");
	if (node.kind == CAS_NODE_SYMLINK)
		ret = link_read(d, de->d_name, target, &node);
	if (ret == 0) {
		ret = cas_directory_add(d->dir, &node);
		if (ret < 0)
			return ingest_fail(d->in, d, de->d_name, ret, "remember");
	}
	return ret;
}

static int dir_scan(struct ingest_dir *d)
{
	/* A descriptor of its own: closedir closes it, and d->fd is needed longer. */
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	int ret = 0;

	if (stream == NULL) {
		ret = -errno;
		if (fd >= 0)
			(void)close(fd);
		return ingest_fail(d->in, d, NULL, ret, "read the directory");
	}
	while (ret == 0 && !ingest_stopped(d->in)) {
		errno = 0;
		de = readdir(stream);
		if (de == NULL) {
			if (errno)
				ret = ingest_fail(d->in, d, NULL, -errno, "read the directory");
			break;
		}
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			ret = scan_entry(d, de);
	}
	return ret;
}

/* Entries. */

static int node_fill(struct ingest_dir *d, struct cas_node *node, struct buf *scratch)
{
	struct ingest_file file = {
		.dir_fd = d->fd, .name = node->name, .traits = &d->traits, .scratch = scratch};
	struct err err = {0};
	int ret = ingest_file(d->in, &file, &err);

	/* Ended in the middle of a copy: told as a wish, not as a fault of the file. */
	if (ret == -ECANCELED && ingest_stopped(d->in))
		return ret;
	if (ret < 0)
		return ingest_fail_err(d->in, d, node->name, ret, &err);
	node->digest = file.digest;
	/* REAPI leaves open which x bit counts; the other uploaders take the owner's. */
	node->executable = (file.st.st_mode & S_IXUSR) != 0;
	if (d->in->opts->preserve)
		ingest_props(&file.st, &node->props);
	return 0;
}

static void chunk_fill(struct ingest_dir *d, size_t from, size_t to)
{
	auto_buf struct buf scratch = {0};

	for (size_t i = from; i < to && !ingest_stopped(d->in); i++) {
		struct cas_node *node = &d->dir->nodes[i];

		if (node->kind == CAS_NODE_FILE && node_fill(d, node, &scratch) < 0)
			break;
	}
}

static void run_chunk(void *ctx, size_t from, size_t to)
{
	struct ingest_dir *d = ctx;

	chunk_fill(d, from, to);
	dir_unuse(d);
	dir_done(d);
}

static int push_chunk(struct ingest_dir *d, size_t from)
{
	size_t to = from + CHUNK < d->dir->nr_nodes ? from + CHUNK : d->dir->nr_nodes;
	int ret;

	atomic_fetch_add(&d->uses, 1);
	atomic_fetch_add(&d->pending, 1);
	ret = cas_pool_push_part(&d->in->pool, run_chunk, d, from, to);
	if (ret < 0) {
		atomic_fetch_sub(&d->uses, 1);
		atomic_fetch_sub(&d->pending, 1);
	}
	return ret;
}

static int push_subdir(struct ingest_dir *d, size_t index)
{
	struct ingest_dir *child = dir_new(d->in, d, index);

	if (child == NULL)
		return -ENOMEM;
	atomic_fetch_add(&d->uses, 1);
	atomic_fetch_add(&d->pending, 1);
	cas_pool_push(&d->in->pool, &child->job);
	return 0;
}

/* @d itself still counts in uses and pending, so neither can reach 0 in between. */
static int dir_spread(struct ingest_dir *d)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < d->dir->nr_nodes; i++) {
		if (d->dir->nodes[i].kind == CAS_NODE_DIRECTORY)
			ret = push_subdir(d, i);
	}
	for (size_t i = CHUNK; ret == 0 && i < d->dir->nr_nodes; i += CHUNK)
		ret = push_chunk(d, i);
	if (ret < 0)
		return ingest_fail(d->in, d, NULL, ret, "walk");
	chunk_fill(d, 0, d->dir->nr_nodes < CHUNK ? d->dir->nr_nodes : CHUNK);
	return 0;
}

static void run_dir(struct cas_job *job)
{
	struct ingest_dir *d = (struct ingest_dir *)job;
	int ret = ingest_stopped(d->in) ? -ECANCELED : 0;

	if (d->parent) {
		if (ret == 0)
			ret = dir_open(d);
		dir_unuse(d->parent);
	}
	if (ret == 0)
		ret = dir_scan(d);
	if (ret == 0)
		(void)dir_spread(d);
	dir_unuse(d);
	dir_done(d);
}

int ingest_tree(struct ingest *in, int fd, const struct stat *st)
{
	struct ingest_dir *d = dir_new(in, NULL, 0);

	if (d == NULL) {
		(void)close(fd);
		return ingest_fail(in, NULL, NULL, -ENOMEM, "walk");
	}
	d->fd = fd;
	d->dev = st->st_dev;
	ingest_traits_get(fd, &d->traits);
	if (in->opts->preserve)
		ingest_props(st, &d->dir->props);
	if (dir_check_guard(d, st) < 0) {
		dir_unuse(d);
		dir_done(d);
		return -ELOOP;
	}
	cas_pool_push(&in->pool, &d->job);
	cas_pool_run(&in->pool);
	return 0;
}
