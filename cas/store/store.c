/* cas/store/store.c - open and close a store */
#include "cas/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/landing/landing.h"
#include "cas/put/tmp_pool.h"
#include "cas/spool/spool.h"
#include "cas/store/store_i.h"

/*
 * The path is resolved once; from then on everything is reached from descriptors, so
 * that neither chdir nor a changed symlink moves the store under our feet. VERSION is
 * the first thing a new store gets: a creation that is killed leaves either an empty
 * directory or a store whose missing parts the next open makes.
 */

/* The parts of STORE, with their modes; cas and ac may live elsewhere. */
static const struct part {
	const char *name;
	mode_t mode;
} store_parts[] =
	{
		{"links", 0755}, {"links/0444", 0755}, {"links/0555", 0755}, {"pins", 0700},
		{"run", 0700},	 {"spool", 0700},      {"sandboxes", 0700},  {"meta", 0700},
},
  blob_parts[] = {
	  {"cas", 0755},
	  {"ac", 0755},
};

int cas_store_mkdir(const struct cas_store *store, int dir_fd, const char *name, mode_t mode)
{
	auto_close int fd = -1;
	struct stat st;

	if (mkdirat(dir_fd, name, mode) < 0) {
		int code = errno;

		if (code != EEXIST)
			return -code;
		if (fstatat(dir_fd, name, &st, 0) < 0)
			return -errno;
		return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	}
	/* The umask may keep us, but not root, from opening it. */
	if (geteuid() != 0 || store->owner == 0)
		return fchmodat(dir_fd, name, mode, 0) < 0 ? -errno : 0;
	/* Somebody else's store, and he may put a symlink here to lead root astray. */
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : cas_store_dress(store, fd, mode);
}

int cas_store_dress(const struct cas_store *store, int fd, mode_t mode)
{
	struct stat st;

	/* A new file is nearly always right as it is: the look costs an eighth of a change. */
	if (fstat(fd, &st) < 0)
		return -errno;
	if (geteuid() == 0 && (st.st_uid != store->owner || st.st_gid != store->group) &&
	    store->owner != 0 && fchown(fd, store->owner, store->group) < 0)
		return -errno;
	if ((st.st_mode & 07777) == mode)
		return 0;
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

/* 1 when nothing of anybody's is in the directory: "lost+found" and our leftovers may be. */
static int is_vacant(int dir_fd)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (dir == NULL) {
		(void)close(fd);
		return -ENOMEM;
	}
	while ((de = readdir(dir)) != NULL) {
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
		    strcmp(de->d_name, "lost+found") != 0 &&
		    strncmp(de->d_name, CAS_TMP_PREFIX, strlen(CAS_TMP_PREFIX)) != 0)
			return 0;
	}
	return 1;
}

/* Make sure that there is a VERSION that we know. */
static int settle_version(struct cas_store *store, bool create, struct err *err)
{
	int ret = cas_store_check_version(store, err);
	int vacant;

	if (ret != -ENOENT)
		return ret;
	vacant = is_vacant(store->dir_fd);
	if (vacant < 0)
		return err_set(err, vacant, "cannot list %s: %s", store->path,
			       strerrordesc_np(-vacant));
	if (!vacant) {
		/* Somebody may have been creating it just now. */
		ret = cas_store_check_version(store, err);
		if (ret != -ENOENT)
			return ret;
		return err_set(err, -ENOTEMPTY,
			       "%s is no store: it holds other files and no VERSION", store->path);
	}
	if (!create)
		return err_set(err, -ENOENT, "there is no store in %s", store->path);
	ret = io_replace_file(store->dir_fd, "VERSION", CAS_LAYOUT_VERSION_LINE,
			      strlen(CAS_LAYOUT_VERSION_LINE), 0444, true);
	if (ret < 0)
		return err_set(err, ret, "cannot create %s/VERSION: %s", store->path,
			       strerrordesc_np(-ret));
	return 0;
}

static bool is_readonly_error(int ret)
{
	return ret == -EROFS || ret == -EACCES || ret == -EPERM;
}

static int open_lock(struct cas_store *store, struct err *err)
{
	int flags = store->read_only ? O_RDONLY : O_RDWR | O_CREAT;
	struct stat st;

	store->lock_fd = openat(store->dir_fd, "lock", flags | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (store->lock_fd < 0 && !store->read_only && is_readonly_error(-errno)) {
		store->read_only = true;
		return open_lock(store, err);
	}
	if (store->lock_fd < 0 && !store->read_only)
		return err_set(err, -errno, "cannot open %s/lock: %m", store->path);
	if (!store->read_only && fstat(store->lock_fd, &st) == 0 &&
	    ((st.st_mode & 07777) != 0644 || st.st_uid != store->owner))
		(void)cas_store_dress(store, store->lock_fd, 0644);
	return 0;
}

static bool is_dir(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static int make_parts(struct cas_store *store, int dir_fd, const struct part *parts, size_t nr,
		      struct err *err)
{
	for (size_t i = 0; i < nr && !store->read_only; i++) {
		int ret = 0;

		/* A look costs less than a mkdir in vain, of a slow directory a round trip. */
		if (!is_dir(dir_fd, parts[i].name))
			ret = cas_store_mkdir(store, dir_fd, parts[i].name, parts[i].mode);
		if (is_readonly_error(ret))
			store->read_only = true;
		else if (ret < 0)
			return err_set(err, ret, "cannot make directory %s of store %s: %s",
				       parts[i].name, store->path, strerrordesc_np(-ret));
	}
	return 0;
}

/* A directory of the store; a read-only store may do without @optional ones. */
static int open_part(const struct cas_store *store, int dir_fd, const char *name, bool optional,
		     int *fd, struct err *err)
{
	*fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0 && !(optional && store->read_only))
		return err_set(err, -errno, "cannot open directory %s of store %s: %m", name,
			       store->path);
	return 0;
}

static int open_parts(struct cas_store *store, int blobs_fd, struct err *err)
{
	int ret = make_parts(store, store->dir_fd, store_parts,
			     sizeof(store_parts) / sizeof(store_parts[0]), err);
	struct stat st;

	if (ret == 0)
		ret = make_parts(store, blobs_fd, blob_parts,
				 sizeof(blob_parts) / sizeof(blob_parts[0]), err);
	if (ret == 0)
		ret = open_part(store, blobs_fd, "cas", false, &store->cas_fd, err);
	if (ret == 0)
		ret = open_part(store, blobs_fd, "ac", true, &store->ac_fd, err);
	if (ret == 0)
		ret = open_part(store, store->dir_fd, "links/0444", true, &store->link_fd[0], err);
	if (ret == 0)
		ret = open_part(store, store->dir_fd, "links/0555", true, &store->link_fd[1], err);
	if (ret < 0)
		return ret;
	if (fstat(store->cas_fd, &st) < 0)
		return err_set(err, -errno, "cannot stat %s/cas: %m", store->path);
	store->cas_dev = st.st_dev;
	if (faccessat(store->cas_fd, ".", W_OK, AT_EACCESS) < 0)
		store->read_only = true;
	return 0;
}

static int store_open(struct cas_store *store, const struct cas_store_options *opts,
		      struct err *err)
{
	auto_free char *blobs = NULL;
	auto_close int blobs_fd = -1;
	int ret = cas_store_locks_init(store);

	if (ret == 0)
		ret = cas_store_open_dir(opts->path, opts->create, &store->path, &store->dir_fd,
					 err);
	if (ret == 0)
		ret = cas_store_check_owner(store, err);
	if (ret == 0)
		ret = settle_version(store, opts->create, err);
	if (ret == 0)
		ret = open_lock(store, err);
	if (ret == 0 && opts->blobs)
		ret = cas_store_open_dir(opts->blobs, opts->create, &blobs, &blobs_fd, err);
	if (ret == 0 && opts->blobs) {
		store->blobs_path = steal_ptr(&blobs);
		/* Before there is a cas/, so that whoever finds one finds its owner, too. */
		ret = cas_store_settle_owner(store, blobs_fd, err);
	}
	if (ret == 0)
		ret = open_parts(store, opts->blobs ? blobs_fd : store->dir_fd, err);
	if (ret == 0 && opts->blobs)
		ret = open_part(store, store->dir_fd, "spool", true, &store->spool_fd, err);
	return ret;
}

int cas_store_open(const struct cas_store_options *opts, struct cas_store **out, struct err *err)
{
	struct cas_store *store = calloc(1, sizeof(*store));
	int ret;

	if (store == NULL)
		return -ENOMEM;
	store->dir_fd = store->cas_fd = store->ac_fd = store->lock_fd = store->spool_fd = -1;
	store->may_unlink = true;
	store->link_fd[0] = store->link_fd[1] = -1;
	store->durability = opts->durability;
	store->catalog = &cas_catalog_null;
	ret = store_open(store, opts, err);
	if (ret < 0) {
		cas_store_close(store);
		return ret;
	}
	*out = store;
	return 0;
}

static void close_if(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

void cas_store_close(struct cas_store *store)
{
	struct err err = {0};

	if (store == NULL)
		return;
	if (store->cas_fd >= 0 && cas_store_sync(store, &err) < 0)
		log_error("closing store %s: %s", store->path, err.msg);
	cas_landing_stop(store);
	cas_spool_stop(store);
	cas_tmp_pool_free(store);
	close_if(store->lock_fd);
	close_if(store->spool_fd);
	close_if(store->link_fd[0]);
	close_if(store->link_fd[1]);
	close_if(store->ac_fd);
	close_if(store->cas_fd);
	close_if(store->dir_fd);
	cas_store_locks_fini(store);
	free(store->blobs_path);
	free(store->path);
	free(store);
}

void cas_store_set_catalog(struct cas_store *store, const struct cas_catalog *catalog)
{
	store->catalog = catalog ? catalog : &cas_catalog_null;
}

const struct cas_catalog *cas_store_catalog(const struct cas_store *store)
{
	return store->catalog;
}

bool cas_store_is_adopted(const struct cas_store *store)
{
	return store->blobs_path != NULL && !store->owned;
}

enum cas_durability cas_store_durability(const struct cas_store *store)
{
	return store->durability;
}

void cas_store_count_put(struct cas_store *store, const struct cas_digest *digest, bool known)
{
	if (known) {
		(void)atomic_fetch_add_explicit(&store->nr_put_known, 1, memory_order_relaxed);
		return;
	}
	(void)atomic_fetch_add_explicit(&store->nr_puts, 1, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&store->put_bytes, digest->size, memory_order_relaxed);
}

void cas_store_counts(struct cas_store *store, struct cas_store_counts *out)
{
	*out = (struct cas_store_counts){
		atomic_load_explicit(&store->nr_puts, memory_order_relaxed),
		atomic_load_explicit(&store->put_bytes, memory_order_relaxed),
		atomic_load_explicit(&store->nr_put_known, memory_order_relaxed),
	};
}
