/* cas/checkout/checkout_tree.c - the directories of a checkout */
#include "cas/checkout/checkout_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/text_i.h"
#include "cas/reapi/directory.h"

/*
 * The mirror image of ingest's walk: a directory is a job that makes and opens itself
 * below its parent's descriptor, pushes its child directories and all chunks of its
 * entries but the first, and fills in that one itself. When the last user of the descriptor is
 * done, all entries exist and every child directory has its own descriptor; then, and not in a
 * second walk, mode and time from node properties are set: from there on the directory is neither
 * searched nor changed by us.
 *
 * @users counts who needs @fd and @dir (names of children), @refs who needs the struct
 * for its path. Both fall without recursion.
 */

#define CHUNK 128

struct checkout_dir {
	struct cas_job job;
	struct checkout *co;
	struct checkout_dir *parent; /* NULL at the top; holds a ref of it */
	struct cas_digest digest;
	int fd;
	_Atomic unsigned long users;
	_Atomic unsigned long refs;
	struct cas_directory *dir;
	char name[];
};

/* Faults. */

static size_t path_len(const struct checkout_dir *dir)
{
	size_t len = 0;

	for (const struct checkout_dir *d = dir; d->parent; d = d->parent)
		len += strlen(d->name) + 1;
	return len;
}

/* "DEST/a/b/NAME", filled in from its end. */
static void path_append(const struct checkout_dir *dir, const char *name, struct buf *out)
{
	size_t len = path_len(dir);
	size_t pos;

	if (buf_append_str(out, dir->co->dest) < 0 || buf_reserve(out, len) < 0)
		return;
	pos = out->len + len;
	out->len = pos;
	out->data[pos] = '\0';
	for (const struct checkout_dir *d = dir; d->parent; d = d->parent) {
		size_t part = strlen(d->name);

		pos -= part;
		memcpy(out->data + pos, d->name, part);
		out->data[--pos] = '/';
	}
	if (name && buf_append_char(out, '/') == 0)
		(void)buf_append_str(out, name);
}

static void fail(struct checkout_dir *d, const char *name, int code, struct err *err)
{
	struct checkout *co = d->co;
	auto_buf struct buf path = {0};

	path_append(d, name, &path);
	lock_take(&co->lock);
	if (co->code == 0) {
		co->code = code;
		(void)err_set(&co->err, code, "cannot check out '%s': %.480s",
			      CAS_TEXT(buf_str(&path)), err_text(err, code));
	}
	lock_drop(&co->lock);
	atomic_store(&co->stop, true);
}

static void fail_sys(struct checkout_dir *d, int code, const char *what)
{
	struct err err = {0};

	(void)err_set(&err, code, "cannot %s: %s", what, strerrordesc_np(-code));
	fail(d, NULL, code, &err);
}

/* Life. */

static void run_dir(struct cas_job *job);

static struct checkout_dir *dir_new(struct checkout *co, struct checkout_dir *parent,
				    const char *name, const struct cas_digest *digest)
{
	struct checkout_dir *d = calloc(1, sizeof(*d) + strlen(name) + 1);

	if (d == NULL)
		return NULL;
	memcpy(d->name, name, strlen(name) + 1);
	d->job.run = run_dir;
	d->co = co;
	d->parent = parent;
	d->digest = *digest;
	d->fd = -1;
	atomic_init(&d->users, 1);
	atomic_init(&d->refs, 1);
	if (parent) {
		atomic_fetch_add(&parent->users, 1);
		atomic_fetch_add(&parent->refs, 1);
	}
	return d;
}

static void dir_unref(struct checkout_dir *d)
{
	while (d && atomic_fetch_sub(&d->refs, 1) == 1) {
		struct checkout_dir *parent = d->parent;

		free(d);
		d = parent;
	}
}

static void dir_finish(struct checkout_dir *d)
{
	const struct cas_properties *props = &d->dir->props;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
				    {.tv_sec = props->mtime_sec, .tv_nsec = props->mtime_nsec}};

	if (props->has_mode && fchmod(d->fd, props->mode & 0777) < 0)
		fail_sys(d, -errno, "set its mode");
	if (props->has_mtime && futimens(d->fd, times) < 0)
		fail_sys(d, -errno, "set its time");
}

static void dir_unuse(struct checkout_dir *d)
{
	if (atomic_fetch_sub(&d->users, 1) != 1)
		return;
	if (d->dir && d->fd >= 0 && !checkout_stopped(d->co))
		dir_finish(d);
	if (d->fd >= 0)
		(void)close(steal_fd(&d->fd));
	cas_directory_free(steal_ptr(&d->dir));
}

/* Work. */

static int dir_make(struct checkout_dir *d)
{
	int parent_fd = d->parent->fd;
	struct stat st;

	if (mkdirat(parent_fd, d->name, 0755) < 0)
		return -errno;
	d->fd = openat(parent_fd, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d->fd < 0 || fstat(d->fd, &st) < 0)
		return -errno;
	/* The umask or a default ACL had its say. */
	if ((st.st_mode & 0777) != 0755 && fchmod(d->fd, 0755) < 0)
		return -errno;
	return 0;
}

static void entries_make(struct checkout_dir *d, size_t from, size_t to)
{
	for (size_t i = from; i < to && !checkout_stopped(d->co); i++) {
		const struct cas_node *node = &d->dir->nodes[i];
		struct err err = {0};
		int ret = 0;

		if (node->kind == CAS_NODE_FILE)
			ret = checkout_file(d->co, d->fd, node, &err);
		else if (node->kind == CAS_NODE_SYMLINK)
			ret = checkout_symlink(d->fd, node, &err);
		/* Ended in the middle of a copy: told as a wish, not as a fault of the file. */
		if (ret == -ECANCELED && checkout_stopped(d->co))
			break;
		if (ret < 0)
			fail(d, node->name, ret, &err);
	}
}

static void run_chunk(void *ctx, size_t from, size_t to)
{
	struct checkout_dir *d = ctx;

	entries_make(d, from, to);
	dir_unuse(d);
	dir_unref(d);
}

static int push_chunk(struct checkout_dir *d, size_t from)
{
	size_t to = from + CHUNK < d->dir->nr_nodes ? from + CHUNK : d->dir->nr_nodes;
	int ret;

	atomic_fetch_add(&d->users, 1);
	atomic_fetch_add(&d->refs, 1);
	ret = cas_pool_push_part(&d->co->pool, run_chunk, d, from, to);
	if (ret < 0) {
		atomic_fetch_sub(&d->users, 1);
		atomic_fetch_sub(&d->refs, 1);
	}
	return ret;
}

static int push_subdir(struct checkout_dir *d, const struct cas_node *node)
{
	struct checkout_dir *child = dir_new(d->co, d, node->name, &node->digest);

	if (child == NULL)
		return -ENOMEM;
	cas_pool_push(&d->co->pool, &child->job);
	return 0;
}

/* @d itself still counts, so neither count can reach 0 in between. */
static void dir_spread(struct checkout_dir *d)
{
	size_t nr = d->dir->nr_nodes;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < nr; i++) {
		if (d->dir->nodes[i].kind == CAS_NODE_DIRECTORY)
			ret = push_subdir(d, &d->dir->nodes[i]);
	}
	for (size_t i = CHUNK; ret == 0 && i < nr; i += CHUNK)
		ret = push_chunk(d, i);
	if (ret < 0)
		fail_sys(d, ret, "walk it");
	entries_make(d, 0, nr < CHUNK ? nr : CHUNK);
}

static void run_dir(struct cas_job *job)
{
	struct checkout_dir *d = (struct checkout_dir *)job;
	struct err err = {0};
	int ret = checkout_stopped(d->co) ? -ECANCELED : 0;

	if (ret == 0) {
		ret = cas_directory_load(d->co->store, &d->digest, &d->dir, &err);
		if (ret < 0)
			fail(d, NULL, ret, &err);
	}
	if (ret == 0 && d->parent) {
		ret = dir_make(d);
		if (ret < 0)
			fail_sys(d, ret, "create the directory");
	}
	if (d->parent)
		dir_unuse(d->parent);
	if (ret == 0)
		dir_spread(d);
	dir_unuse(d);
	dir_unref(d);
}

void checkout_tree(struct checkout *co, const struct cas_digest *root, int fd)
{
	struct checkout_dir *d = dir_new(co, NULL, "", root);

	if (d)
		d->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (d == NULL || d->fd < 0) {
		lock_take(&co->lock);
		co->code = d ? -errno : -ENOMEM;
		lock_drop(&co->lock);
		free(d);
		return;
	}
	cas_pool_push(&co->pool, &d->job);
	cas_pool_run(&co->pool);
}
