/* cas/ingest/ingest_file.c - one regular file: known by identity, or read */
#include "cas/ingest/ingest_i.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/base/watch.h"
#include "cas/put/put.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"

/*
 * A file is known when the catalog holds its identity and the store its blob: then a
 * stat is all it costs. An identity may be recorded only when every change after the
 * reading began is bound to show in it. Times are stamped from a clock that ticks, so a
 * change within the same tick as the recorded ctime would not show: files younger than
 * the margin, seen from the moment reading began, are not recorded and read again next
 * time. (A store through a mapping that was dirty before stamps no time until the page
 * was written back; no stat-based tool sees that.)
 */

#define TRIES	  3
#define SMALL_MAX (1u << 20) /* up to here a file is read whole, and a known one never written */
#define SECOND_NS INT64_C(1000000000)

static bool time_ns(const struct timespec *ts, int64_t *out)
{
	return !__builtin_mul_overflow(ts->tv_sec, SECOND_NS, out) &&
	       !__builtin_add_overflow(*out, ts->tv_nsec, out);
}

/* False when the identity cannot be used: unstable numbers, or times beyond 2262. */
static bool file_id(const struct ingest_file *file, struct cas_file_id *id)
{
	id->dev = file->st.st_dev;
	id->ino = file->st.st_ino;
	id->size = (uint64_t)file->st.st_size;
	return file->traits->stable_ids && time_ns(&file->st.st_mtim, &id->mtime_ns) &&
	       time_ns(&file->st.st_ctim, &id->ctime_ns);
}

static bool is_settled(const struct ingest_file *file, const struct cas_file_id *id,
		       int64_t began_ns)
{
	int64_t youngest = id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns;
	int64_t margin = file->traits->margin_ns;

	/* Whole seconds: most likely the filesystem has no finer times (ext4, small inodes). */
	if (id->ctime_ns % SECOND_NS == 0 && margin < 2 * SECOND_NS)
		margin = 2 * SECOND_NS;
	return youngest < began_ns - margin;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Did the file stay as file->st says while it was read? 0 or -EAGAIN. */
static int unchanged(int fd, const struct ingest_file *file)
{
	struct stat now;

	if (fstat(fd, &now) < 0)
		return -errno;
	return same_file(&now, &file->st) ? 0 : -EAGAIN;
}

static int read_small(struct ingest *in, int fd, struct ingest_file *file, struct err *err)
{
	size_t size = (size_t)file->st.st_size;
	ssize_t got;
	int ret;

	buf_reset(file->scratch);
	ret = buf_reserve(file->scratch, size + 1);
	if (ret < 0)
		return ret;
	/* One byte more, to meet a file that has grown. */
	got = io_pread_full(fd, file->scratch->data, size + 1, 0);
	if (got < 0)
		return err_set(err, (int)got, "cannot read: %s", strerrordesc_np((int)-got));
	ret = (size_t)got == size ? unchanged(fd, file) : -EAGAIN;
	return ret < 0 ? ret
		       : cas_put_bytes(in->store, file->scratch->data, size, &file->digest, err);
}

static int read_large(struct ingest *in, int fd, struct ingest_file *file, struct err *err)
{
	const struct watch watch = {
		.bytes = &in->progress->bytes, .cancel = &in->progress->cancel, .stop = &in->stop};
	struct cas_put *put = NULL;
	struct cas_digest got;
	int ret = cas_put_new(in->store, &put, err);

	if (ret < 0)
		return ret;
	cas_put_set_watch(put, &watch);
	ret = cas_put_copy_fd(put, fd, err);
	if (ret == 0)
		ret = unchanged(fd, file);
	if (ret == 0)
		ret = cas_put_publish(put, NULL, &got, err);
	cas_put_free(put);
	if (ret < 0)
		return ret;
	if (got.size != (uint64_t)file->st.st_size) {
		watch_take_back(&watch, got.size);
		return -EAGAIN;
	}
	file->digest = got;
	file->counted = true;
	return 0;
}

/* Fill in file->st and file->digest by reading; -EAGAIN: it changed meanwhile. */
static int read_file(struct ingest *in, struct ingest_file *file, struct err *err)
{
	int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (file->follow ? 0 : O_NOFOLLOW);
	auto_close int fd = openat(file->dir_fd, file->name, flags);
	struct cas_file_id id;
	struct timespec now;
	int64_t began_ns = 0;
	int ret;

	if (fd < 0)
		ret = -errno;
	else
		ret = 0;
	if (ret == -ENOENT || ret == -ELOOP || ret == -ENXIO)
		return -EAGAIN;
	if (ret < 0)
		return err_set(err, ret, "cannot open: %s", strerrordesc_np(-ret));
	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (fstat(fd, &file->st) < 0)
		return -errno;
	if (!S_ISREG(file->st.st_mode))
		return -EAGAIN;
	atomic_fetch_add_explicit(&in->progress->hashed, 1, memory_order_relaxed);
	if ((uint64_t)file->st.st_size <= SMALL_MAX)
		ret = read_small(in, fd, file, err);
	else
		ret = read_large(in, fd, file, err);
	if (ret < 0)
		return ret;
	if (in->catalog && time_ns(&now, &began_ns) && file_id(file, &id) &&
	    is_settled(file, &id, began_ns))
		in->catalog->ops->file_add(in->catalog->ctx, &id, &file->digest);
	return 0;
}

static bool is_known(struct ingest *in, struct ingest_file *file)
{
	struct cas_file_id id;
	struct cas_digest digest;

	if (in->catalog == NULL || !file_id(file, &id) ||
	    in->catalog->ops->file_find(in->catalog->ctx, &id, &digest) != 1)
		return false;
	if (digest.size != id.size || cas_store_has(in->store, &digest) != 1)
		return false;
	file->digest = digest;
	return true;
}

int ingest_file(struct ingest *in, struct ingest_file *file, struct err *err)
{
	int ret = 0;

	if (fstatat(file->dir_fd, file->name, &file->st, file->follow ? 0 : AT_SYMLINK_NOFOLLOW) <
	    0)
		ret = -errno;
	if (ret == -ENOENT || (ret == 0 && !S_ISREG(file->st.st_mode)))
		return err_set(err, -EAGAIN, "changed or vanished while its directory was read");
	if (ret < 0)
		return err_set(err, ret, "cannot stat: %s", strerrordesc_np(-ret));
	if (file->st.st_size == 0)
		file->digest = cas_digest_empty;
	else if (!is_known(in, file)) {
		ret = -EAGAIN;
		for (int i = 0; ret == -EAGAIN && i < TRIES && !ingest_stopped(in); i++)
			ret = read_file(in, file, err);
	}
	if (ret == -EAGAIN)
		return err_set(err, ret, "changed while it was read, %d times", TRIES);
	if (ret < 0)
		return ret;
	atomic_fetch_add_explicit(&in->progress->files, 1, memory_order_relaxed);
	if (!file->counted)
		atomic_fetch_add_explicit(&in->progress->bytes, file->digest.size,
					  memory_order_relaxed);
	return 0;
}

void ingest_props(const struct stat *st, struct cas_properties *props)
{
	props->has_mtime = true;
	props->mtime_sec = st->st_mtim.tv_sec;
	props->mtime_nsec = (int32_t)st->st_mtim.tv_nsec;
	/* A link's own mode means nothing. */
	props->has_mode = !S_ISLNK(st->st_mode);
	props->mode = props->has_mode ? st->st_mode & 0777 : 0;
}
