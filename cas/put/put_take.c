/* cas/put/put_take.c - take a file into the store, moving it when that is safe */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/hash.h"
#include "cas/put/copy.h"
#include "cas/put/put.h"
#include "cas/put/put_i.h"
#include "cas/store/lease.h"
#include "cas/store/store_i.h"

/*
 * A file may become a blob as it is when nobody can write to it afterwards: no writer has
 * it open (a read lease, from before the hash to after the last name is gone), it has no
 * other name (link count 1, before and after), and its owner is the store's. The steps,
 * with what a crash between them leaves:
 *
 *   lease, hash                     the file as it was
 *   owner, mode 0444, time          the file, dressed
 *   one name and the lease?         (no: undress, copy instead)
 *   rename to HH/HASH               the blob
 *   still?                          (no: rename back, undress, copy instead)
 *   a row                           what others go by
 *
 * One that holds whole blocks of zeros is copied all the same: the copy has holes there.
 *
 * A rename carries exactly one name away; its inode is compared afterwards, and somebody
 * else's file that slipped under the name is put back.
 */

#define TRIES	  3
#define SMALL_MAX (256 << 10) /* copied through memory */

/* The file to take: @st is from before anything was changed. */
struct taken {
	struct cas_store *store;
	int dir_fd;
	const char *name;
	int fd;
	struct stat st;
};

static bool may_take(const struct taken *t)
{
	bool owned = t->st.st_uid == t->store->owner || geteuid() == 0;

	/* With a spool the blob directory is the movers' alone. */
	return owned && !t->store->spool && t->st.st_nlink == 1 &&
	       t->st.st_dev == t->store->cas_dev && t->st.st_size > 0;
}

/* Mode and owner of a blob, and the time of its arrival: its age counts from here. */
static int dress(const struct taken *t)
{
	int ret = 0;

	if (t->st.st_uid != t->store->owner && fchown(t->fd, t->store->owner, t->store->group) < 0)
		ret = -errno;
	if (ret == 0 && fchmod(t->fd, CAS_BLOB_MODE) < 0)
		ret = -errno;
	if (ret == 0 && futimens(t->fd, NULL) < 0)
		ret = -errno;
	return ret;
}

static void undress(const struct taken *t)
{
	const struct timespec times[2] = {t->st.st_atim, t->st.st_mtim};

	if (t->st.st_uid != t->store->owner)
		(void)fchown(t->fd, t->st.st_uid, t->st.st_gid);
	(void)fchmod(t->fd, t->st.st_mode & 07777);
	(void)futimens(t->fd, times);
}

/* Lease held, file dressed. 1 moved, 0 it has its name still, negative. */
static int move_leased(const struct taken *t, const struct cas_digest *digest, struct err *err)
{
	struct cas_tmp tmp = {
		.fd = t->fd, .top_fd = t->store->cas_fd, .from_fd = t->dir_fd, .from = t->name};
	int ret = cas_publish_tmp(t->store, digest, &tmp, err);

	if (ret == 0)
		return 1;
	/* Another put was first, or it cannot be moved: the copy finds the blob, or makes it. */
	return ret == -EEXIST || ret == -EXDEV || ret == -EOPNOTSUPP || ret == -EBUSY ? 0 : ret;
}

/* Lease held, bytes hashed. 1 and *moved: in the store, 0 not possible, negative. */
static int settle_leased(struct taken *t, const struct cas_digest *digest, bool *moved,
			 struct err *err)
{
	int ret;

	/* A blob that is there already needs no second file. */
	if (cas_blob_check(t->store, digest, NULL, NULL) == 0) {
		if (!cas_lease_held(t->fd))
			return 0;
		t->store->catalog->ops->blob_touch(t->store->catalog->ctx, digest);
		return 1;
	}
	ret = dress(t);
	ret = ret < 0 ? 0 : move_leased(t, digest, err);
	if (ret != 1)
		undress(t);
	*moved = ret == 1;
	return ret;
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
	struct cas_stamp one;
	struct cas_stamp two;

	cas_stamp_of(a, &one);
	cas_stamp_of(b, &two);
	return cas_stamp_equal(&one, &two);
}

/* Lease held. */
static int probe_leased(const struct taken *t, const struct cas_put_known *known,
			struct cas_digest *out, bool *shrinks)
{
	struct stat now;

	if (known && known->st.st_dev == t->st.st_dev && fstat(t->fd, &now) == 0 &&
	    is_unchanged(&known->st, &now)) {
		*out = known->digest;
		*shrinks = known->shrinks;
		return 0;
	}
	return cas_copy_probe_fd(t->fd, out, shrinks);
}

/* 1 and *out, *moved: in the store, 0 not possible (nothing has changed), negative. */
static int try_move(struct taken *t, const struct cas_put_known *known, struct cas_digest *out,
		    bool *moved, struct err *err)
{
	struct cas_digest digest;
	bool shrinks = false;
	int ret;

	if (!may_take(t) || cas_lease_take(t->fd) < 0)
		return 0;
	ret = probe_leased(t, known, &digest, &shrinks);
	if (ret == 0 && !shrinks)
		ret = settle_leased(t, &digest, moved, err);
	cas_lease_drop(t->fd);
	if (ret == 1)
		*out = digest;
	return ret;
}

/*
 * As many bytes as @before says, through memory: if there are more or fewer by now, the
 * look afterwards tells, so that nobody has to read for the end.
 */
static int copy_small(struct taken *t, const struct stat *before, struct cas_digest *out,
		      struct err *err)
{
	size_t size = (size_t)before->st_size;
	auto_free uint8_t *bytes = malloc(size + 1);
	ssize_t got;

	if (bytes == NULL)
		return err_set(err, -ENOMEM, "no memory for %zu bytes", size);
	got = io_pread_full(t->fd, bytes, size, 0);
	if (got < 0)
		return err_set(err, (int)got, "cannot read: %s", strerrordesc_np((int)-got));
	return cas_put_bytes(t->store, bytes, (size_t)got, out, err);
}

static int copy(struct taken *t, struct cas_digest *out, struct err *err)
{
	struct stat before = t->st;

	for (int i = 0; i < TRIES; i++) {
		struct stat after;
		struct cas_digest digest;
		int ret = before.st_size <= SMALL_MAX ? copy_small(t, &before, &digest, err)
						      : cas_put_fd(t->store, t->fd, &digest, err);

		if (ret < 0)
			return err_context(err, ret, "cannot put %s", t->name);
		if (fstat(t->fd, &after) < 0)
			return err_set(err, -errno, "cannot stat %s: %m", t->name);
		if (is_unchanged(&before, &after)) {
			*out = digest;
			return 0;
		}
		before = after;
	}
	return err_set(err, -EAGAIN, "%s changed while it was read, %d times over", t->name, TRIES);
}

/*
 * May it be a blob? To look for a file that is not there takes as long as all else about a small
 * one; what has no row and is one all the same is found when the file is to be moved.
 */
static bool is_recorded(struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_stamp stamp;

	return store->catalog->ops->blob_find(store->catalog->ctx, digest, &stamp) == 1 ||
	       cas_pending_find(store, digest, &stamp) == 1;
}

/* Lease held: it is as it will be. */
static enum cas_put_outlook look_leased(struct taken *t, const struct cas_put_known *known,
					struct cas_put_known *out)
{
	bool same;

	if (fstat(t->fd, &t->st) < 0 || !S_ISREG(t->st.st_mode) || !may_take(t))
		return CAS_PUT_NOT_MOVABLE;
	same = known && known->st.st_dev == t->st.st_dev && is_unchanged(&known->st, &t->st);
	if (same)
		*out = *known;
	else if (cas_copy_probe_fd(t->fd, &out->digest, &out->shrinks) < 0)
		return CAS_PUT_NOT_MOVABLE;
	if (out->shrinks)
		return CAS_PUT_NOT_MOVABLE;
	out->st = t->st;
	return is_recorded(t->store, &out->digest) &&
			       cas_blob_check(t->store, &out->digest, NULL, NULL) == 0
		       ? CAS_PUT_IS_BLOB
		       : CAS_PUT_MOVABLE;
}

int cas_put_look(struct cas_store *store, int dir_fd, const char *name,
		 const struct cas_put_known *known, struct cas_put_known *out,
		 enum cas_put_outlook *outlook, struct err *err)
{
	struct taken t = {.store = store, .dir_fd = dir_fd, .name = name};
	auto_close int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, -errno, "cannot open %s: %m", name);
	t.fd = fd;
	*outlook = CAS_PUT_NOT_MOVABLE;
	if (cas_lease_take(fd) < 0)
		return 0;
	*outlook = look_leased(&t, known, out);
	if (!cas_lease_held(fd))
		*outlook = CAS_PUT_NOT_MOVABLE;
	cas_lease_drop(fd);
	if (*outlook == CAS_PUT_IS_BLOB)
		store->catalog->ops->blob_touch(store->catalog->ctx, &out->digest);
	return 0;
}

int cas_put_take_known(struct cas_store *store, int dir_fd, const char *name, bool may_move,
		       const struct cas_put_known *known, struct cas_digest *out, bool *moved,
		       struct err *err)
{
	struct taken t = {.store = store, .dir_fd = dir_fd, .name = name};
	auto_close int fd = -1;
	bool left = false;
	int ret = cas_put_check_writable(store, err);

	if (ret < 0)
		return ret;
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, -errno, "cannot open %s: %m", name);
	t.fd = fd;
	if (fstat(fd, &t.st) < 0)
		return err_set(err, -errno, "cannot stat %s: %m", name);
	if (!S_ISREG(t.st.st_mode))
		return err_set(err, -EINVAL, "%s is no regular file", name);
	ret = may_move ? try_move(&t, known, out, &left, err) : 0;
	/* It may have been dressed, and undressed again. */
	if (may_move && ret == 0 && fstat(fd, &t.st) < 0)
		return err_set(err, -errno, "cannot stat %s: %m", name);
	if (ret == 0)
		ret = copy(&t, out, err);
	if (ret < 0)
		return ret;
	*moved = left;
	return 0;
}

int cas_put_take(struct cas_store *store, int dir_fd, const char *name, bool may_move,
		 struct cas_digest *out, bool *moved, struct err *err)
{
	return cas_put_take_known(store, dir_fd, name, may_move, NULL, out, moved, err);
}

struct untake {
	ino_t ino;
	int dir_fd;
	const char *name;
	struct err *err;
};

static int untake_item(void *ctx, const struct cas_walk_item *item)
{
	const struct untake *u = ctx;

	if (item->kind != CAS_WALK_TMP || !S_ISREG(item->st.st_mode) || item->st.st_ino != u->ino)
		return 0;
	if (renameat2(item->shard_fd, item->name, u->dir_fd, u->name, RENAME_NOREPLACE) < 0)
		return err_set(u->err, -errno, "cannot give %s back from %s: %m", u->name,
			       item->path);
	return 1;
}

int cas_put_untake(struct cas_store *store, uint64_t ino, int dir_fd, const char *name,
		   struct err *err)
{
	struct untake u = {.ino = ino, .dir_fd = dir_fd, .name = name, .err = err};
	int ret = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0; i++)
		ret = cas_walk_shard(store->cas_fd, "cas", i, untake_item, &u, err);
	return ret;
}
