/* cas/hash.c - streaming SHA-256 over libcrypto */
/*
 * By the functions that OpenSSL 3 calls deprecated, for what they do without: fetching the
 * same function by its name reads a configuration and sets up a provider, 1.3 ms of a
 * process's start, and linked statically takes most of libcrypto along, not 50 KB of it.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "cas/hash.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/base/watch.h"
#include "cas/digest.h"

#define READ_SZ (256u << 10)
#define STEP_SZ (4u << 20) /* between two looks at a watch */

/* Between calls @ctx is always initialized: fed with @fed bytes so far. */
struct cas_hash {
	SHA256_CTX ctx;
	uint64_t fed;
};

int cas_hash_new(struct cas_hash **out)
{
	struct cas_hash *h = calloc(1, sizeof(*h));

	if (h == NULL)
		return -ENOMEM;
	if (SHA256_Init(&h->ctx) != 1) {
		free(h);
		return -EIO;
	}
	*out = h;
	return 0;
}

void cas_hash_free(struct cas_hash *h)
{
	free(h);
}

static void hash_cleanup(struct cas_hash **h)
{
	cas_hash_free(*h);
}

int cas_hash_update(struct cas_hash *h, const void *data, size_t len)
{
	if (SHA256_Update(&h->ctx, data, len) != 1)
		return -EIO;
	h->fed += len;
	return 0;
}

int cas_hash_update_zeros(struct cas_hash *h, uint64_t len)
{
	static const unsigned char zeros[64 << 10];

	while (len > 0) {
		size_t part = len < sizeof(zeros) ? (size_t)len : sizeof(zeros);
		int ret = cas_hash_update(h, zeros, part);

		if (ret < 0)
			return ret;
		len -= part;
	}
	return 0;
}

int cas_hash_update_hole(struct cas_hash *h, uint64_t len, const struct watch *watch)
{
	uint64_t done = 0;
	int ret = 0;

	while (ret == 0 && done < len) {
		uint64_t part = len - done < STEP_SZ ? len - done : STEP_SZ;

		ret = watch_check(watch);
		if (ret == 0)
			ret = cas_hash_update_zeros(h, part);
		if (ret == 0) {
			watch_add(watch, part);
			done += part;
		}
	}
	if (ret < 0)
		watch_take_back(watch, done);
	return ret;
}

int cas_hash_final(struct cas_hash *h, struct cas_digest *out)
{
	struct cas_digest d = {.size = h->fed};
	int ok = SHA256_Final(d.hash, &h->ctx) == 1;

	ok = SHA256_Init(&h->ctx) == 1 && ok;
	h->fed = 0;
	if (!ok)
		return -EIO;
	*out = d;
	return 0;
}

int cas_hash_bytes(const void *data, size_t len, struct cas_digest *out)
{
	auto_call(hash_cleanup) struct cas_hash *h = NULL;
	int ret = cas_hash_new(&h);

	if (ret == 0)
		ret = cas_hash_update(h, data, len);
	return ret < 0 ? ret : cas_hash_final(h, out);
}

/* A file and what it is read into. */
struct source {
	int fd;
	unsigned char *data;
	size_t cap;
	const struct watch *watch;
};

/* Feed [@pos, @end) of the file, or less when it ends before; *@got is what was there. */
static int hash_range(struct cas_hash *h, const struct source *s, off_t pos, off_t end, off_t *got)
{
	off_t start = pos;

	while (pos < end) {
		size_t want = end - pos < (off_t)s->cap ? (size_t)(end - pos) : s->cap;
		ssize_t nr = io_pread_full(s->fd, s->data, want, pos);
		int ret = nr < 0 ? (int)nr : cas_hash_update(h, s->data, (size_t)nr);

		if (ret < 0)
			return ret;
		watch_add(s->watch, (uint64_t)nr);
		ret = watch_check(s->watch);
		if (ret < 0)
			return ret;
		pos += nr;
		if ((size_t)nr < want)
			break;
	}
	*got = pos - start;
	return 0;
}

/* By extents; -ENOTSUP before anything was fed when the file cannot tell them. */
static int hash_sparse(struct cas_hash *h, const struct source *s)
{
	off_t pos = 0;

	for (;;) {
		off_t start = lseek(s->fd, pos, SEEK_DATA);
		off_t end;
		off_t got = 0;
		int ret;

		if (start < 0 && errno != ENXIO)
			return pos == 0 ? -ENOTSUP : -errno;
		if (start < 0) { /* a hole up to the end, or the end */
			end = lseek(s->fd, 0, SEEK_END);
			if (end < 0)
				return -errno;
			return end > pos ? cas_hash_update_hole(h, (uint64_t)(end - pos), s->watch)
					 : 0;
		}
		end = lseek(s->fd, start, SEEK_HOLE);
		if (end < 0)
			return -errno;
		ret = cas_hash_update_hole(h, (uint64_t)(start - pos), s->watch);
		if (ret == 0)
			ret = hash_range(h, s, start, end, &got);
		if (ret < 0 || got < end - start)
			return ret;
		pos = end;
	}
}

int cas_hash_fd(int fd, struct cas_digest *out)
{
	return cas_hash_fd_watched(fd, NULL, out);
}

int cas_hash_fd_watched(int fd, const struct watch *watch, struct cas_digest *out)
{
	auto_call(hash_cleanup) struct cas_hash *h = NULL;
	auto_free unsigned char *data = NULL;
	struct source s = {.fd = fd, .watch = watch};
	struct stat st;
	off_t got;
	int ret;

	if (fstat(fd, &st) < 0)
		return -errno;
	s.cap = st.st_size < (off_t)READ_SZ ? (size_t)st.st_size + 1 : READ_SZ;
	s.data = data = malloc(s.cap);
	if (data == NULL)
		return -ENOMEM;
	ret = cas_hash_new(&h);
	if (ret < 0)
		return ret;
	ret = -ENOTSUP;
	if (st.st_size >= (off_t)READ_SZ && st.st_blocks < st.st_size / 512) {
		off_t was = lseek(fd, 0, SEEK_CUR);

		ret = hash_sparse(h, &s);
		(void)lseek(fd, was, SEEK_SET);
	}
	if (ret == -ENOTSUP)
		ret = hash_range(h, &s, 0, INT64_MAX, &got);
	if (ret < 0)
		watch_take_back(watch, h->fed);
	return ret < 0 ? ret : cas_hash_final(h, out);
}
