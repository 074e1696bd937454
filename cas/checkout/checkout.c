/* cas/checkout/checkout.c - a root digest becomes a tree on disk: grow it, or move a kept one */
#include "cas/checkout/checkout.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/base/text_i.h"
#include "cas/checkout/checkout_i.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"

bool checkout_stopped(struct checkout *co)
{
	if (atomic_load_explicit(&co->progress->cancel, memory_order_relaxed) &&
	    !atomic_load_explicit(&co->stop, memory_order_relaxed)) {
		lock_take(&co->lock);
		if (co->code == 0) {
			co->code = -ECANCELED;
			(void)err_set(&co->err, -ECANCELED, "checkout to '%s' stopped on request",
				      CAS_TEXT(co->dest));
		}
		lock_drop(&co->lock);
		atomic_store(&co->stop, true);
	}
	return atomic_load_explicit(&co->stop, memory_order_relaxed);
}

/* The first fault of those who grew the tree, or @ret as it is. */
static int verdict(struct checkout *co, int ret, struct err *err)
{
	lock_take(&co->lock);
	if (co->code < 0) {
		ret = co->code;
		(void)err_set(err, ret, "%s", err_text(&co->err, ret));
	}
	lock_drop(&co->lock);
	return ret;
}

/* Grow the tree and publish it, or leave nothing. */
static int checkout_run(struct checkout *co, const struct cas_digest *root,
			const struct checkout_destination *d, bool may_snapshot, struct err *err)
{
	char temp[CAS_TEMP_NAME_SZ];
	auto_close int fd = -1;
	bool snapped;
	int ret = checkout_temp_make(d->parent_fd, d->name, temp, &fd, err);

	if (ret < 0)
		return err_context(err, ret, "cannot check out to '%s'", CAS_TEXT(co->dest));
	ret = may_snapshot ? checkout_snapshot(co, root, fd, err) : 0;
	snapped = ret == 1;
	if (ret == 0)
		checkout_tree(co, root, fd);
	ret = verdict(co, ret < 0 ? ret : 0, err);
	if (ret == 0 && snapped)
		ret = checkout_publish(co, d, fd, CHECKOUT_SNAPSHOT, err);
	else if (ret == 0)
		ret = checkout_publish(co, d, d->parent_fd, temp, err);
	if (ret < 0)
		checkout_snapshot_remove(fd);
	if (ret < 0 || snapped)
		(void)io_remove_tree(d->parent_fd, temp, NULL);
	return ret;
}

static void checkout_init(struct checkout *co, struct cas_store *store, const char *dest,
			  const struct cas_checkout_options *opts,
			  struct cas_checkout_progress *own)
{
	*co = (struct checkout){.store = store, .dest = dest, .progress = own};
	if (opts) {
		co->mode = opts->mode;
		if (opts->progress)
			co->progress = opts->progress;
	}
	co->files_before = atomic_load(&co->progress->files);
	co->bytes_before = atomic_load(&co->progress->bytes);
	lock_init(&co->lock, LOCK_RANK_LEAF, "checkout.lock");
	cas_pool_init(&co->pool, opts ? opts->nr_threads : 0);
}

static void checkout_fini(struct checkout *co)
{
	cas_pool_fini(&co->pool);
	lock_fini(&co->lock);
}

/* Before anything is created: most wrong digests are wrong here. */
static int checkout_grow(struct checkout *co, const struct cas_digest *root,
			 const struct checkout_destination *d, bool may_snapshot, struct err *err)
{
	const struct cas_catalog *catalog = cas_store_catalog(co->store);
	struct cas_directory *dir = NULL;
	int ret = cas_directory_load(co->store, root, &dir, err);

	cas_directory_free(dir);
	if (ret < 0)
		return ret;
	catalog->ops->tree_touch(catalog->ctx, root, false);
	return checkout_run(co, root, d, may_snapshot, err);
}

int cas_checkout(struct cas_store *store, const struct cas_digest *root, const char *dest,
		 const struct cas_checkout_options *opts, struct err *err)
{
	return cas_checkout_at(store, root, AT_FDCWD, dest, opts, err);
}

int cas_checkout_at(struct cas_store *store, const struct cas_digest *root, int dir_fd,
		    const char *dest, const struct cas_checkout_options *opts, struct err *err)
{
	const struct cas_catalog *catalog = cas_store_catalog(store);
	auto_call(checkout_destination_fini) struct checkout_destination d = {.parent_fd = -1};
	struct cas_checkout_progress own = {0};
	struct checkout co;
	int ret = checkout_destination_open(dir_fd, dest, &d, err);

	if (ret == 0)
		ret = checkout_destination_check(&d, dest, err);
	if (ret < 0)
		return ret;
	checkout_init(&co, store, dest, opts, &own);
	if (opts && opts->snapshot)
		ret = checkout_move(&co, root, &d, err);
	if (ret == 1)
		catalog->ops->tree_touch(catalog->ctx, root, true);
	else if (ret == 0)
		ret = checkout_grow(&co, root, &d, opts && opts->snapshot, err);
	checkout_fini(&co);
	return ret < 0 ? ret : 0;
}

int cas_checkout_file(struct cas_store *store, const struct cas_digest *digest, bool executable,
		      int dir_fd, const char *name, const struct cas_checkout_options *opts,
		      struct err *err)
{
	struct cas_checkout_progress own = {0};
	const struct cas_catalog *catalog = cas_store_catalog(store);
	struct cas_node node = {.kind = CAS_NODE_FILE, .executable = executable, .digest = *digest};
	char temp[CAS_TEMP_NAME_SZ];
	struct checkout co;
	int ret = cas_temp_name_random("file", temp);

	if (ret < 0)
		return ret;
	if (name[0] == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 ||
	    strcmp(name, "..") == 0)
		return err_set(err, -EINVAL, "'%s' is no name of a file", CAS_TEXT(name));
	node.name = temp;
	checkout_init(&co, store, name, opts, &own);
	ret = checkout_file(&co, dir_fd, &node, err);
	checkout_fini(&co);
	catalog->ops->blob_touch(catalog->ctx, digest);
	if (ret < 0)
		return err_context(err, ret, "cannot check out '%s'", CAS_TEXT(name));
	if (renameat(dir_fd, temp, dir_fd, name) == 0) {
		/* Two links to one inode: the rename did nothing, and the old name is right. */
		(void)unlinkat(dir_fd, temp, 0);
		return 0;
	}
	ret = err_set(err, -errno, "cannot replace '%s': %s", CAS_TEXT(name),
		      strerrordesc_np(errno));
	(void)unlinkat(dir_fd, temp, 0);
	return ret;
}
