/* cas/evict/evict_action.c - an ActionResult goes before the blobs that it names */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/evict/evict_i.h"
#include "cas/reapi.pb-c.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * Needed by a result: output files, both streams, each Tree, the files that the Tree
 * names, and the closure of a root Directory. What is missing already (a remote tier may
 * have it) is no reason to forget the result; only what is about to go is.
 */

#define MESSAGE_MAX (256u << 20)

struct sweep {
	struct cas_store *store;
	const struct cas_marks *doomed;
	bool dry_run;
	struct err *err;
};

static bool to_digest(const Reapi__Digest *d, struct cas_digest *out)
{
	if (d == NULL || d->hash == NULL || d->size_bytes < 0 ||
	    cas_hash_parse(d->hash, strlen(d->hash), out->hash) < 0)
		return false;
	out->size = (uint64_t)d->size_bytes;
	return true;
}

static bool is_doomed(const struct sweep *s, const Reapi__Digest *d)
{
	struct cas_digest digest;

	return to_digest(d, &digest) && cas_marks_has(s->doomed, digest.hash);
}

static bool files_doomed(const struct sweep *s, const Reapi__Directory *dir)
{
	for (size_t i = 0; dir && i < dir->n_files; i++) {
		if (is_doomed(s, dir->files[i]->digest))
			return true;
	}
	return false;
}

/* Does the Tree message @d, or a file in it, go? */
static bool tree_doomed(const struct sweep *s, const Reapi__Digest *d)
{
	auto_buf struct buf b = {0};
	struct cas_digest digest;
	Reapi__Tree *tree;
	bool doomed;

	if (is_doomed(s, d))
		return true;
	if (!to_digest(d, &digest) || cas_blob_peek(s->store, &digest, MESSAGE_MAX, &b, NULL) < 0)
		return false;
	tree = reapi__tree__unpack(NULL, b.len, (const uint8_t *)buf_str(&b));
	if (tree == NULL)
		return false;
	doomed = files_doomed(s, tree->root);
	for (size_t i = 0; i < tree->n_children && !doomed; i++)
		doomed = files_doomed(s, tree->children[i]);
	reapi__tree__free_unpacked(tree, NULL);
	return doomed;
}

/* Does a Directory blob of the closure of @d, or a file in it, go? */
static int closure_doomed(const struct sweep *s, const Reapi__Digest *d)
{
	struct cas_marks needs = {0};
	struct cas_digest digest;
	int ret = 0;

	if (!to_digest(d, &digest))
		return 0;
	ret = cas_marks_add_tree(&needs, s->store, &digest, true, s->err);
	if (ret == 0)
		ret = cas_marks_meet(&needs, s->doomed);
	cas_marks_fini(&needs);
	return ret;
}

/* 1, 0 or negative. */
static int result_doomed(const struct sweep *s, const Reapi__ActionResult *r)
{
	int ret = is_doomed(s, r->stdout_digest) || is_doomed(s, r->stderr_digest);

	for (size_t i = 0; i < r->n_output_files && ret == 0; i++)
		ret = is_doomed(s, r->output_files[i]->digest);
	for (size_t i = 0; i < r->n_output_directories && ret == 0; i++) {
		ret = tree_doomed(s, r->output_directories[i]->tree_digest);
		if (ret == 0)
			ret = closure_doomed(s, r->output_directories[i]->root_directory_digest);
	}
	return ret;
}

/* 1: the result as @stamp describes its file has to go. 0: not, or gone, or for fsck to name. */
static int judge(const struct sweep *s, const struct cas_walk_item *item, struct cas_stamp *stamp)
{
	auto_close int fd = openat(item->shard_fd, item->name,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	auto_buf struct buf b = {0};
	Reapi__ActionResult *r;
	struct stat st;
	int ret;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > MESSAGE_MAX)
		return 0;
	if (buf_reserve(&b, (size_t)st.st_size) < 0)
		return err_set(s->err, -ENOMEM, "cannot read %s: out of memory", item->path);
	if (io_pread_full(fd, b.data, (size_t)st.st_size, 0) != st.st_size)
		return 0;
	r = reapi__action_result__unpack(NULL, (size_t)st.st_size, (const uint8_t *)b.data);
	if (r == NULL)
		return 0;
	ret = result_doomed(s, r);
	reapi__action_result__free_unpacked(r, NULL);
	cas_stamp_of(&st, stamp);
	return ret;
}

/* Shard lock held. 1: it is another file by now. */
static int unlink_result(const struct cas_walk_item *item, const struct cas_stamp *stamp)
{
	struct cas_stamp now;
	struct stat st;

	if (fstatat(item->shard_fd, item->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	cas_stamp_of(&st, &now);
	if (!cas_stamp_equal(&now, stamp))
		return 1;
	return unlinkat(item->shard_fd, item->name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int remove_result(const struct sweep *s, const struct cas_walk_item *item,
			 const struct cas_stamp *stamp)
{
	unsigned shard = cas_layout_shard(item->hash);
	/* Not having it, beside a process that does not go on, leaves a moment's race. */
	bool locked = cas_store_shard_lock(s->store, shard, true, true) == 0;
	int ret = unlink_result(item, stamp);

	if (locked)
		cas_store_shard_unlock(s->store, shard, true);
	return ret;
}

/* A result that is replaced between being read and being removed is read again. */
static int sweep_item(void *ctx, const struct cas_walk_item *item)
{
	struct sweep *s = ctx;
	struct cas_stamp stamp;
	int ret = 1;

	if (item->kind != CAS_WALK_ENTRY)
		return 0;
	while (ret == 1) {
		ret = judge(s, item, &stamp);
		if (ret <= 0 || s->dry_run)
			return ret < 0 ? ret : 0;
		log_debug("%s goes: a blob that it names is evicted", item->path);
		ret = remove_result(s, item, &stamp);
	}
	return ret < 0 ? err_set(s->err, ret, "cannot remove %s: %s", item->path,
				 strerrordesc_np(-ret))
		       : 0;
}

int cas_evict_actions(struct cas_store *store, const struct cas_marks *doomed, bool dry_run,
		      struct err *err)
{
	struct sweep s = {.store = store, .doomed = doomed, .dry_run = dry_run, .err = err};
	auto_close int waiting_fd =
		store->spool_fd < 0 ? -1 : cas_spool_results_open(store->spool_fd);
	int ret = 0;

	/* What moves in between is seen there. */
	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0 && waiting_fd >= 0; i++)
		ret = cas_walk_shard(waiting_fd, "spool/results", i, sweep_item, &s, err);
	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0 && store->ac_fd >= 0; i++)
		ret = cas_walk_shard(store->ac_fd, "ac", i, sweep_item, &s, err);
	return ret;
}
