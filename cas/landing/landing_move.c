/* cas/landing/landing_move.c - what has landed goes to its shards */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/landing/landing_i.h"
#include "cas/put/put.h"
#include "cas/store/store_i.h"

/*
 * Any number of threads and processes may move the same file: one of them finds it, the others
 * find its blob. So the lock of a manifest only keeps them from doing everything twice.
 */

#define READ_ONLY_TRIES	   200 /* of 20 ms */
#define READ_ONLY_PAUSE_NS 20000000L

int cas_landing_open(const struct cas_store *store, bool make)
{
	int ret = make ? cas_store_mkdir(store, store->dir_fd, CAS_LANDING_DIR, 0700) : 0;
	int fd;

	if (ret < 0)
		return ret;
	fd = openat(store->dir_fd, CAS_LANDING_DIR,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cas_landing_lock(int landing_fd, bool wait, int *fd)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	auto_close int got =
		openat(landing_fd, CAS_LANDING_MANIFEST, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (got < 0)
		return -errno;
	if (fcntl(got, wait ? F_OFD_SETLKW : F_OFD_SETLK, &fl) < 0)
		return errno == EACCES ? -EAGAIN : -errno;
	/* Who had it may have been done with all. */
	if (fstat(got, &st) < 0 || st.st_nlink == 0)
		return -ENOENT;
	*fd = steal_fd(&got);
	return 0;
}

/* upper/@dir, through no symlink. Negative errno. */
static int open_dir(int landing_fd, const char *dir)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	char path[4096 + sizeof(CAS_LANDING_UPPER) + 1];
	long fd;

	(void)snprintf(path, sizeof(path), "%s/%s", CAS_LANDING_UPPER, dir);
	do
		fd = syscall(SYS_openat2, landing_fd, path, &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR));
	return fd < 0 ? -errno : (int)fd;
}

/* The directory of @path in @place. 0, negative. */
static int go_to(int landing_fd, const char *path, struct cas_landing_place *place)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (len >= sizeof(place->dir))
		return -ENAMETOOLONG;
	if (place->fd >= 0 && strlen(place->dir) == len && strncmp(place->dir, path, len) == 0)
		return 0;
	if (place->fd >= 0)
		(void)close(steal_fd(&place->fd));
	memcpy(place->dir, path, len);
	place->dir[len] = '\0';
	place->fd = open_dir(landing_fd, place->dir);
	return place->fd < 0 ? place->fd : 0;
}

static struct timespec to_timespec(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* The file is not there. Somebody else has moved it, as a rule. */
static int settle_missing(struct cas_store *store, const struct cas_landing_row *row)
{
	if (cas_blob_check(store, &row->digest, NULL, NULL) < 0)
		log_error("blob %s: its file %s had landed and is neither there nor in the store",
			  CAS_DIGEST_TEXT(&row->digest), row->path);
	return 0;
}

int cas_landing_move(struct cas_store *store, int landing_fd, const struct cas_landing_row *row,
		     bool same_boot, struct cas_landing_place *place, struct err *err)
{
	const char *slash = strrchr(row->path, '/');
	struct cas_put_known known = {
		.digest = row->digest,
		.st = {.st_dev = row->dev,
		       .st_ino = row->ino,
		       .st_size = (off_t)row->digest.size,
		       .st_mtim = to_timespec(row->mtime_ns),
		       .st_ctim = to_timespec(row->ctime_ns)},
	};
	struct cas_digest digest;
	bool moved;
	int ret = go_to(landing_fd, row->path, place);

	if (ret < 0)
		(void)err_set(err, ret, "cannot open its directory: %s", strerrordesc_np(-ret));
	/* Where it may not leave its place (chattr +i) it is copied. */
	for (int may_move = 1; ret >= 0 && may_move >= 0; may_move--) {
		ret = cas_put_take_known(store, place->fd, slash ? slash + 1 : row->path, may_move,
					 same_boot ? &known : NULL, &digest, &moved, err);
		if (ret != -EPERM && ret != -EACCES)
			break;
		ret = may_move ? 0 : ret;
	}
	if (ret == -ENOENT || ret == -ENOTDIR || ret == -ELOOP)
		return settle_missing(store, row);
	if (ret < 0)
		return err_context(err, ret, "cannot move %s to blob %s", row->path,
				   CAS_DIGEST_TEXT(&row->digest));
	if (!cas_digest_equal(&digest, &row->digest))
		log_error("blob %s: its file %s had landed and holds %s by now",
			  CAS_DIGEST_TEXT(&row->digest), row->path, CAS_DIGEST_TEXT(&digest));
	return 0;
}

int cas_landing_remove(struct cas_store *store, int landing_fd, const char *name, struct err *err)
{
	auto_close int top_fd = cas_landing_open(store, false);
	int ret;

	if (top_fd < 0)
		return top_fd == -ENOENT ? 0 : top_fd;
	/* What has no manifest is only to be removed. */
	if (unlinkat(landing_fd, CAS_LANDING_MANIFEST, 0) < 0 && errno != ENOENT)
		return err_set(err, -errno, "cannot remove %s/landing/%s/manifest: %m", store->path,
			       name);
	ret = io_remove_tree(top_fd, name, err);
	/* While it is not there nobody has to look into it. */
	(void)unlinkat(store->dir_fd, CAS_LANDING_DIR, AT_REMOVEDIR);
	return ret;
}

/* Lock held. All of one, in order. */
static int move_all(struct cas_store *store, int landing_fd, int lock_fd, const char *name,
		    struct err *err)
{
	struct cas_landing_place place = {.fd = -1};
	struct cas_manifest manifest;
	int ret = cas_manifest_read(lock_fd, &manifest);

	/* It was whole when it landed. Its files may be somebody's only copy. */
	if (ret < 0)
		return err_set(err, ret, "cannot read %s/landing/%s/manifest: %s", store->path,
			       name, strerrordesc_np(-ret));
	for (size_t i = 0; ret == 0 && i < manifest.nr; i++)
		ret = cas_landing_move(store, landing_fd, &manifest.rows[i], manifest.same_boot,
				       &place, err);
	if (place.fd >= 0)
		(void)close(place.fd);
	cas_manifest_fini(&manifest);
	return ret < 0 ? ret : cas_landing_remove(store, landing_fd, name, err);
}

static int settle_one(struct cas_store *store, int top_fd, const char *name, struct err *err)
{
	auto_close int fd = openat(top_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_close int lock_fd = -1;
	int ret = fd < 0 ? -errno : cas_landing_lock(fd, true, &lock_fd);

	if (ret == 0)
		return move_all(store, fd, lock_fd, name, err);
	/* Its removal was cut short, or is under way. */
	if (ret == -ENOENT)
		return fd < 0 ? 0 : cas_landing_remove(store, fd, name, err);
	return err_set(err, ret, "cannot open %s/landing/%s: %s", store->path, name,
		       strerrordesc_np(-ret));
}

/* Who may write will be at it; without him nothing can be done. */
static int wait_for_others(struct cas_store *store, struct err *err)
{
	const struct timespec pause = {.tv_nsec = READ_ONLY_PAUSE_NS};

	for (int i = 0; i < READ_ONLY_TRIES; i++) {
		if (faccessat(store->dir_fd, CAS_LANDING_DIR, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		(void)nanosleep(&pause, NULL);
	}
	return err_set(err, -EROFS,
		       "store %s is read-only, and has outputs in landing/ that only a process "
		       "that may write can bring to cas/",
		       store->path);
}

int cas_landing_settle_all(struct cas_store *store, struct err *err)
{
	auto_close int top_fd = cas_landing_open(store, false);
	auto_close int fd =
		top_fd < 0 ? -1 : openat(top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	int ret = 0;

	if (top_fd == -ENOENT)
		return 0;
	if (store->read_only)
		return wait_for_others(store, err);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (dir == NULL)
		return err_set(err, -errno, "cannot list %s/landing: %m", store->path);
	(void)steal_fd(&fd);
	while ((de = readdir(dir)) != NULL) {
		struct err why = {0};
		int code = 0;

		if (de->d_name[0] != '.')
			code = settle_one(store, top_fd, de->d_name, &why);
		if (code < 0 && ret == 0)
			ret = err_set(err, code, "%s", err_text(&why, code));
	}
	(void)unlinkat(store->dir_fd, CAS_LANDING_DIR, AT_REMOVEDIR);
	return ret;
}
