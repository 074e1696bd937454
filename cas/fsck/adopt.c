/* cas/fsck/adopt.c - living in a disk cache that others use and clean up, Bazel's in particular */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/fsck/adopt_i.h"
#include "cas/store/store_i.h"

/*
 * Bazel keeps cas/HH/HASH and ac/HH/HASH as we do, takes the time of a file for its last
 * use, and moves it forward on each hit. Its collector holds DIR/gc/lock, a POSIX record
 * lock over the whole file, asked for once and not waited for; builds take none. Nothing
 * is ever written in place: files are replaced by renaming, and then have another stamp.
 *
 * So a hit of ours moves the time, too, when it is more than a while ago: what its
 * collector and our own eviction of that place go by are hours. The stamp is taken again
 * at once, or the next open would have to hash.
 */

#define TOUCH_AGE_SEC 60
#define LOCK_WAIT_NS  5000000000ULL
#define POLL_NS	      20000000L

static bool is_recent(const struct stat *st)
{
	time_t now = time(NULL);

	return st->st_mtim.tv_sec <= now && now - st->st_mtim.tv_sec < TOUCH_AGE_SEC;
}

/* Shard lock held: nobody of ours names or unlinks it meanwhile. */
static void touch_blob(struct cas_store *store, const struct cas_digest *digest, const char *path)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
	struct cas_stamp stamp;
	struct stat before, after;

	if (fstatat(store->cas_fd, path, &before, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(before.st_mode) || is_recent(&before) ||
	    !cas_stamp_known(store, digest, &before))
		return;
	/* Another user's file: what he does about it is his business. */
	if (utimensat(store->cas_fd, path, times, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fstatat(store->cas_fd, path, &after, AT_SYMLINK_NOFOLLOW) < 0 ||
	    after.st_ino != before.st_ino || after.st_size != before.st_size)
		return;
	cas_stamp_of(&after, &stamp);
	store->catalog->ops->blob_add(store->catalog->ctx, digest, &stamp);
}

void cas_adopt_hit(struct cas_store *store, const struct cas_digest *digest)
{
	unsigned shard = cas_layout_shard(digest->hash);
	char path[CAS_LAYOUT_PATH_SZ];

	if (!cas_store_is_adopted(store) || store->read_only)
		return;
	cas_layout_path(digest->hash, path);
	if (cas_store_shard_lock(store, shard, false, false) < 0)
		return;
	touch_blob(store, digest, path);
	cas_store_shard_unlock(store, shard, false);
}

void cas_adopt_hit_action(struct cas_store *store, int fd, const struct stat *st)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};

	if (cas_store_is_adopted(store) && !store->read_only && !is_recent(st))
		(void)futimens(fd, times);
}

bool cas_adopt_is_others(const struct cas_store *store, const struct stat *st)
{
	return cas_store_is_adopted(store) && st->st_uid != geteuid();
}

static int open_lock(const struct cas_store *store)
{
	auto_close int dir_fd = open(store->blobs_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (dir_fd < 0)
		return -errno;
	if (mkdirat(dir_fd, "gc", 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir_fd, "gc/lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	return fd < 0 ? -errno : fd;
}

/* Of the open file, so that no stray close in this process drops it; they meet all others. */
static int take_lock(int fd)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct timespec nap = {.tv_nsec = POLL_NS};
	unsigned long long end = lock_now_ns() + LOCK_WAIT_NS;

	while (fcntl(fd, F_OFD_SETLK, &fl) < 0) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -errno;
		if (lock_now_ns() >= end)
			return -EBUSY;
		(void)nanosleep(&nap, NULL);
	}
	return 0;
}

int cas_adopt_lock(struct cas_store *store, int *lock_fd, struct err *err)
{
	auto_close int fd = -1;
	int ret = 0;

	*lock_fd = -1;
	if (!cas_store_is_adopted(store))
		return 0;
	fd = open_lock(store);
	ret = fd < 0 ? fd : take_lock(fd);
	if (ret == -EBUSY)
		return err_set(err, ret,
			       "another collector is at work in %s (it holds gc/lock); nothing was "
			       "removed",
			       store->blobs_path);
	if (ret < 0)
		return err_set(err, ret, "cannot lock %s/gc/lock: %s", store->blobs_path,
			       strerrordesc_np(-ret));
	*lock_fd = steal_fd(&fd);
	return 0;
}
