/* cas/put/copy.c - file content from one descriptor to another: reflink, kernel copy, loop */
#include "cas/put/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/watch.h"
#include "cas/digest.h"
#include "cas/hash.h"

/*
 * Every way works by extents: data is moved, holes are stepped over and come out of the
 * final length. A position that one way reached is where the next one goes on, so that
 * copy_file_range may give up at any point (it returns 0, or one of a dozen errors, on
 * some pair of filesystems at some kernel version).
 *
 * A source that shows one extent and no hole may have none, or may not know SEEK_HOLE
 * (FUSE filesystems mostly do not), or may hold zeros on its disk. The loop looks at the
 * bytes, and costs a dense file no more than the kernel's copy does (0.9 to 1.0 times on
 * ext4); so it takes all those that have a whole block.
 */

#define BLOCK_SZ     (1u << 20)
#define HOLE_MIN     4096u /* zeros below this are written: no filesystem saves anything */
#define TO_THE_END   INT64_MAX
#define SHRINK_MIN   (BLOCK_SZ / 2)
#define COPY_MAX_ONE (32u << 20) /* between two looks at the watch */

/*
 * @hash and @watch may be NULL. @sparse: ask the source for its holes. @data has @cap
 * bytes. @dst -1: only look. @counted is what the watch was told, @kept what was written,
 * or would have been.
 */
struct pump {
	int src;
	int dst;
	bool sparse;
	bool may_loop;
	struct cas_hash *hash;
	unsigned char *data;
	size_t cap;
	const struct watch *watch;
	uint64_t counted;
	uint64_t kept;
};

static void hash_cleanup(struct cas_hash **h)
{
	cas_hash_free(*h);
}

static void count(struct pump *p, off_t nr)
{
	watch_add(p->watch, (uint64_t)nr);
	p->counted += (uint64_t)nr;
}

static bool reflink(int src_fd, int dst_fd)
{
	return ioctl(dst_fd, FICLONE, src_fd) == 0;
}

/*
 * The first data at or after @pos and below @limit: 1 and [*start, *end); 0 when there
 * is none, *end then is the end of the file or @limit, whichever is first.
 */
static int next_extent(const struct pump *p, off_t pos, off_t limit, off_t *start, off_t *end)
{
	off_t at;

	*start = pos;
	*end = limit;
	if (!p->sparse)
		return pos < limit;
	at = lseek(p->src, pos, SEEK_DATA);
	if (at < 0 && errno != ENXIO)
		return pos < limit;
	if (at < 0) {
		at = lseek(p->src, 0, SEEK_END);
		if (at < 0)
			return -errno;
		*end = at < pos ? pos : (at < limit ? at : limit);
		return 0;
	}
	if (at >= limit)
		return 0;
	*start = at;
	at = lseek(p->src, at, SEEK_HOLE);
	if (at >= 0 && at < limit)
		*end = at;
	return 1;
}

static bool is_zero(const unsigned char *data, size_t len)
{
	return data[0] == 0 && memcmp(data, data + 1, len - 1) == 0;
}

/* Worth leaving out. */
static bool is_hole(const unsigned char *data, size_t len)
{
	return len >= HOLE_MIN && is_zero(data, len);
}

/* Move data of [@pos, @end) through memory; *@reached < @end when the file ended. */
static int pump_range(struct pump *p, off_t pos, off_t end, off_t *reached)
{
	while (pos < end) {
		size_t want = p->cap - (size_t)pos % p->cap;
		ssize_t got;
		int ret = 0;

		if ((off_t)want > end - pos)
			want = (size_t)(end - pos);
		got = io_pread_full(p->src, p->data, want, pos);
		if (got < 0)
			return (int)got;
		if (got > 0 && p->hash)
			ret = cas_hash_update(p->hash, p->data, (size_t)got);
		if (ret == 0 && got > 0 && !is_hole(p->data, (size_t)got)) {
			p->kept += (uint64_t)got;
			if (p->dst >= 0)
				ret = io_pwrite_full(p->dst, p->data, (size_t)got, pos);
		}
		if (ret == 0)
			ret = watch_check(p->watch);
		if (ret < 0)
			return ret;
		count(p, got);
		pos += got;
		if ((size_t)got < want)
			break;
	}
	*reached = pos;
	return 0;
}

/* A hole of the source. */
static int step_over(struct pump *p, off_t len)
{
	int ret = 0;

	if (p->hash) {
		ret = cas_hash_update_hole(p->hash, (uint64_t)len, p->watch);
		p->counted += ret == 0 ? (uint64_t)len : 0;
	} else {
		count(p, len);
	}
	return ret;
}

/* From @pos to @limit or the end of the file; *@reached tells how far it went. */
static int pump_all(struct pump *p, off_t pos, off_t limit, off_t *reached)
{
	for (;;) {
		off_t start;
		off_t end;
		off_t got = 0;
		int more = next_extent(p, pos, limit, &start, &end);
		int ret = more;

		if (ret >= 0)
			ret = step_over(p, (more ? start : end) - pos);
		if (ret < 0)
			return ret;
		if (!more) {
			*reached = end;
			return 0;
		}
		ret = pump_range(p, start, end, &got);
		if (ret < 0)
			return ret;
		pos = got;
		if (got < end) {
			*reached = got;
			return 0;
		}
	}
}

/*
 * Let the kernel copy from *@pos on. 0: done up to @size. 1: it will not go further
 * than *@pos, whatever the reason. Negative: the destination is full, or -ECANCELED.
 */
static int kernel_copy(struct pump *p, off_t *pos, off_t size)
{
	for (;;) {
		off_t start;
		off_t end;
		int more = next_extent(p, *pos, size, &start, &end);

		if (more < 0)
			return 1;
		count(p, (more ? start : end) - *pos);
		if (!more) {
			*pos = end;
			return end < size;
		}
		if (p->may_loop && start == 0 && end == size && size >= BLOCK_SZ)
			return 1;
		while (start < end) {
			off_t to = start;
			size_t want = end - start < (off_t)COPY_MAX_ONE ? (size_t)(end - start)
									: COPY_MAX_ONE;
			ssize_t got = copy_file_range(p->src, &start, p->dst, &to, want, 0);
			int code = errno;

			count(p, start - *pos);
			*pos = start;
			if (watch_check(p->watch) < 0)
				return -ECANCELED;
			if (got < 0 && code == EINTR)
				continue;
			if (got < 0 && (code == ENOSPC || code == EDQUOT || code == EFBIG))
				return -code;
			if (got <= 0)
				return 1;
		}
	}
}

static int pump_init(struct pump *p, int src_fd, int dst_fd, const struct watch *watch,
		     uint64_t *size)
{
	struct stat st;

	if (fstat(src_fd, &st) < 0)
		return -errno;
	*p = (struct pump){.src = src_fd, .dst = dst_fd, .watch = watch};
	p->sparse = st.st_blocks < st.st_size / 512;
	*size = (uint64_t)st.st_size;
	return 0;
}

static int pump_alloc(struct pump *p, uint64_t size)
{
	p->cap = size < BLOCK_SZ ? (size_t)size + 1 : BLOCK_SZ;
	p->data = malloc(p->cap);
	return p->data ? 0 : -ENOMEM;
}

static int copy_by_loop(struct pump *p, off_t pos, off_t size)
{
	off_t reached = 0;
	int ret = pump_alloc(p, (uint64_t)size);

	if (ret < 0)
		return ret;
	ret = pump_all(p, pos, size, &reached);
	free(steal_ptr(&p->data));
	if (ret == 0 && reached < size)
		ret = -EAGAIN;
	return ret;
}

/* Give the destination its length: what was stepped over at the end becomes a hole. */
static int set_length(int fd, off_t size)
{
	int ret;

	do
		ret = ftruncate(fd, size);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : 0;
}

/* 0 done, 1 not possible, negative. */
static int copy_by_reflink(int src_fd, int dst_fd, off_t size)
{
	struct stat st;

	if (!reflink(src_fd, dst_fd))
		return 1;
	if (fstat(dst_fd, &st) < 0)
		return -errno;
	if (st.st_size < size)
		return -EAGAIN;
	return st.st_size > size ? set_length(dst_fd, size) : 0;
}

static int copy_any(int src_fd, int dst_fd, off_t size, unsigned allow, const struct watch *watch)
{
	struct pump p;
	uint64_t now = 0;
	off_t pos = 0;
	int ret = 1;

	if (allow & CAS_COPY_REFLINK)
		ret = copy_by_reflink(src_fd, dst_fd, size);
	if (ret == 0)
		watch_add(watch, (uint64_t)size);
	if (ret != 1)
		return ret;
	ret = pump_init(&p, src_fd, dst_fd, watch, &now);
	if (ret < 0)
		return ret;
	p.may_loop = allow & CAS_COPY_LOOP;
	ret = 1;
	if (allow & CAS_COPY_KERNEL)
		ret = kernel_copy(&p, &pos, size);
	if (ret == 1)
		ret = allow & CAS_COPY_LOOP ? copy_by_loop(&p, pos, size) : -EOPNOTSUPP;
	if (ret == 0)
		ret = set_length(dst_fd, size);
	if (ret < 0)
		watch_take_back(watch, p.counted);
	return ret;
}

int cas_copy_fd_watched(int src_fd, int dst_fd, uint64_t size, unsigned allow,
			const struct watch *watch, struct err *err)
{
	int ret = size > INT64_MAX ? -EFBIG : 0;

	if (ret == 0 && size > 0)
		ret = copy_any(src_fd, dst_fd, (off_t)size, allow, watch);
	if (ret < 0) {
		(void)set_length(dst_fd, 0);
		return err_set(err, ret, "cannot copy %llu bytes: %s", (unsigned long long)size,
			       ret == -EAGAIN ? "the source ended early" : strerrordesc_np(-ret));
	}
	return 0;
}

int cas_copy_fd(int src_fd, int dst_fd, uint64_t size, unsigned allow, struct err *err)
{
	return cas_copy_fd_watched(src_fd, dst_fd, size, allow, NULL, err);
}

int cas_copy_bytes(int fd, const void *data, size_t len)
{
	return len > 0 && is_hole(data, len) ? set_length(fd, (off_t)len)
					     : io_write_full(fd, data, len);
}

/* All of the source through @p, which expects @size bytes; *reached is how many there were. */
static int pump_hash(struct pump *p, uint64_t size, off_t *reached, struct cas_digest *out)
{
	auto_call(hash_cleanup) struct cas_hash *h = NULL;
	int ret = cas_hash_new(&h);

	if (ret == 0)
		ret = pump_alloc(p, size);
	if (ret < 0)
		return ret;
	p->hash = h;
	ret = pump_all(p, 0, TO_THE_END, reached);
	free(steal_ptr(&p->data));
	p->hash = NULL;
	return ret == 0 ? cas_hash_final(h, out) : ret;
}

static int copy_hash(int src_fd, int dst_fd, const struct watch *watch, struct cas_digest *out)
{
	struct pump p;
	uint64_t size = 0;
	off_t reached = 0;
	int ret;

	ret = pump_init(&p, src_fd, dst_fd, watch, &size);
	if (ret < 0)
		return ret;
	if (size > 0 && reflink(src_fd, dst_fd))
		return cas_hash_fd_watched(dst_fd, watch, out);
	ret = pump_hash(&p, size, &reached, out);
	if (ret == 0)
		ret = set_length(dst_fd, reached);
	if (ret < 0)
		watch_take_back(watch, p.counted);
	return ret;
}

int cas_copy_hash_fd(int src_fd, int dst_fd, const struct watch *watch, struct cas_digest *out,
		     struct err *err)
{
	int ret = copy_hash(src_fd, dst_fd, watch, out);

	if (ret < 0) {
		(void)set_length(dst_fd, 0);
		return err_set(err, ret, "cannot copy: %s", strerrordesc_np(-ret));
	}
	return 0;
}

int cas_copy_probe_fd(int fd, struct cas_digest *out, bool *shrinks)
{
	struct pump p;
	struct stat st;
	uint64_t size = 0;
	off_t reached = 0;
	int ret = pump_init(&p, fd, -1, NULL, &size);

	if (ret == 0)
		ret = pump_hash(&p, size, &reached, out);
	if (ret == 0 && fstat(fd, &st) < 0)
		ret = -errno;
	if (ret == 0)
		*shrinks = (uint64_t)st.st_blocks * 512 > p.kept + SHRINK_MIN;
	return ret;
}
