/* cas/put/put.c - turn bytes into a published blob */
#include "cas/put/put.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/watch.h"
#include "cas/hash.h"
#include "cas/put/copy.h"
#include "cas/put/put_i.h"
#include "cas/store/store_i.h"

/*
 * Bytes stay in memory while they are few: then their hash, and with it their shard and
 * whether they are known, is there before any file is. More than that spills into a file
 * without a name: in cas/ where it can later be linked into its shard at no further
 * cost; else (no O_TMPFILE there) elsewhere in the store, to be copied in the end. Where
 * puts go through the spool it is in the spool, and when the disk of that is full in the
 * blob directory after all.
 */

#define MEMORY_MAX (1u << 20)

/*
 * OPEN: @hash is fed with all that was written; it is in @mem until @spill has a file.
 * @copied: the bytes came by cas_put_copy_fd and @digest is known already.
 * SEALED is only a moment inside publish. @failed: a write failed, nothing more goes.
 */
struct cas_put {
	struct cas_store *store;
	struct cas_hash *hash;
	struct buf mem;
	struct cas_tmp spill;
	uint64_t spilled; /* bytes of it */
	bool past_spool;  /* it is in the blob directory although there is a spool */
	struct cas_digest digest;
	const struct watch *watch; /* may be NULL */
	uint64_t counted;	   /* what it was told that is not published */
	bool copied;
	int failed;
};

int cas_put_new(struct cas_store *store, struct cas_put **out, struct err *err)
{
	struct cas_put *put;
	int ret = cas_put_check_writable(store, err);

	if (ret < 0)
		return ret;
	put = calloc(1, sizeof(*put));
	if (put == NULL)
		return err_set(err, -ENOMEM, "cannot start a put: out of memory");
	put->store = store;
	put->spill = CAS_TMP_NONE;
	ret = cas_hash_new(&put->hash);
	if (ret < 0) {
		cas_put_free(put);
		return err_set(err, ret, "cannot start a hash: %s", strerrordesc_np(-ret));
	}
	*out = put;
	return 0;
}

void cas_put_set_watch(struct cas_put *put, const struct watch *watch)
{
	put->watch = watch;
}

void cas_put_free(struct cas_put *put)
{
	if (put == NULL)
		return;
	watch_take_back(put->watch, put->counted);
	cas_tmp_fini(&put->spill);
	buf_fini(&put->mem);
	cas_hash_free(put->hash);
	free(put);
}

/* A file in run/ that loses its name at once: for filesystems without O_TMPFILE. */
static int open_nameless(struct cas_store *store, struct cas_tmp *out)
{
	char name[40];
	char rnd[17];
	int ret = io_random_hex(rnd, 8);
	int fd;

	if (ret < 0)
		return ret;
	(void)snprintf(name, sizeof(name), "run/" CAS_TMP_PREFIX "%s", rnd);
	fd = openat(store->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)unlinkat(store->dir_fd, name, 0);
	*out = (struct cas_tmp){.fd = fd, .top_fd = store->dir_fd};
	return 0;
}

/* The same in the blob directory, in a shard, where what a crash leaves is cleared away. */
static int open_unlinked(struct cas_store *store, struct cas_tmp *out)
{
	static const uint8_t any[CAS_HASH_SZ] = {0};
	int ret = cas_tmp_open(store, store->cas_fd, any, true, out);

	if (ret < 0)
		return ret;
	(void)unlinkat(store->cas_fd, out->path, 0);
	out->path[0] = '\0';
	out->top_fd = -1;
	return 0;
}

static int open_spill(struct cas_put *put)
{
	struct cas_store *store = put->store;
	bool spooled = store->spool && !put->past_spool;
	/* A spooled put never looks at the blob directory. */
	int ret = cas_tmp_open_anywhere(spooled ? store->spool_fd : store->cas_fd, &put->spill);

	put->spilled = 0;
	if (ret == -EOPNOTSUPP && put->past_spool)
		return open_unlinked(store, &put->spill);
	if (ret == -EOPNOTSUPP)
		ret = cas_tmp_open_anywhere(store->dir_fd, &put->spill);
	if (ret == -EOPNOTSUPP)
		ret = open_nameless(store, &put->spill);
	return ret;
}

/* Does @ret say that the disk of the spool is full, while the blob directory may have room? */
static bool is_spool_full(const struct cas_put *put, int ret)
{
	return (ret == -ENOSPC || ret == -EDQUOT) && put->store->spool && !put->past_spool;
}

/* Go on in the blob directory with what the spool's disk had room for. */
static int leave_spool(struct cas_put *put)
{
	auto_tmp struct cas_tmp old = put->spill;
	uint64_t had = put->spilled;
	int ret;

	put->spill = CAS_TMP_NONE;
	put->past_spool = true;
	ret = open_spill(put);
	if (ret == 0 && had > 0)
		ret = cas_copy_fd(old.fd, put->spill.fd, had, CAS_COPY_ANY, NULL);
	put->spilled = had;
	return ret;
}

static int spill_bytes(struct cas_put *put, const void *data, size_t len)
{
	int ret = io_pwrite_full(put->spill.fd, data, len, (off_t)put->spilled);

	if (is_spool_full(put, ret)) {
		ret = leave_spool(put);
		if (ret == 0)
			ret = io_pwrite_full(put->spill.fd, data, len, (off_t)put->spilled);
	}
	if (ret == 0)
		put->spilled += len;
	return ret;
}

/* From memory to a file, from here on. */
static int start_spill(struct cas_put *put)
{
	int ret = open_spill(put);

	if (is_spool_full(put, ret))
		ret = leave_spool(put);
	if (ret == 0)
		ret = spill_bytes(put, buf_str(&put->mem), put->mem.len);
	if (ret == 0)
		buf_fini(&put->mem);
	return ret;
}

static int keep_bytes(struct cas_put *put, const void *data, size_t len)
{
	int ret = 0;

	if (put->spill.fd < 0 && put->mem.len + len <= MEMORY_MAX)
		return buf_append(&put->mem, data, len);
	if (put->spill.fd < 0)
		ret = start_spill(put);
	return ret < 0 ? ret : spill_bytes(put, data, len);
}

/* Remember that this put cannot succeed any more, and give back its space now. */
static int fail(struct cas_put *put, int code)
{
	put->failed = code;
	cas_tmp_fini(&put->spill);
	buf_fini(&put->mem);
	return code;
}

int cas_put_write(struct cas_put *put, const void *data, size_t len, struct err *err)
{
	int ret = put->failed;

	if (ret == 0 && put->copied)
		ret = -EINVAL;
	if (ret == 0 && len > 0)
		ret = keep_bytes(put, data, len);
	if (ret == 0)
		ret = cas_hash_update(put->hash, data, len);
	if (ret < 0)
		return err_set(err, fail(put, ret), "cannot write into store %s: %s",
			       put->store->path, strerrordesc_np(-ret));
	return 0;
}

static int copy_small(struct cas_put *put, int fd, size_t size, struct err *err)
{
	ssize_t got;
	int ret = buf_reserve(&put->mem, size + 1);

	if (ret < 0)
		return err_set(err, ret, "cannot put %zu bytes: out of memory", size);
	/* One byte more than expected tells whether the file has grown. */
	got = io_pread_full(fd, put->mem.data, size + 1, 0);
	if (got < 0)
		return err_set(err, (int)got, "cannot read: %s", strerrordesc_np((int)-got));
	if ((size_t)got > size)
		return 1;
	put->mem.len = (size_t)got;
	put->mem.data[got] = '\0';
	return cas_hash_bytes(put->mem.data, (size_t)got, &put->digest);
}

static int copy_once(struct cas_put *put, int fd, struct err *err)
{
	int ret = open_spill(put);

	if (ret < 0)
		return err_set(err, ret, "cannot make a file in store %s: %s", put->store->path,
			       strerrordesc_np(-ret));
	return cas_copy_hash_fd(fd, put->spill.fd, put->watch, &put->digest, err);
}

static int copy_large(struct cas_put *put, int fd, struct err *err)
{
	struct err why = {0};
	int ret = copy_once(put, fd, &why);

	if (is_spool_full(put, ret)) {
		cas_tmp_fini(&put->spill);
		put->past_spool = true;
		return copy_once(put, fd, err);
	}
	return ret < 0 ? err_set(err, ret, "%s", err_text(&why, ret)) : ret;
}

int cas_put_copy_fd(struct cas_put *put, int fd, struct err *err)
{
	struct stat st;
	int ret = 1;

	if (put->failed)
		return err_set(err, put->failed, "this put has failed before");
	if (put->copied || put->mem.len > 0 || put->spill.fd >= 0)
		return err_set(err, -EINVAL, "a put holds one file or what is written, not both");
	if (fstat(fd, &st) < 0)
		return err_set(err, fail(put, -errno), "cannot stat the file to put: %m");
	if (!S_ISREG(st.st_mode))
		return err_set(err, fail(put, -EINVAL), "only a regular file can be put");
	if (st.st_size <= (off_t)MEMORY_MAX)
		ret = copy_small(put, fd, (size_t)st.st_size, err);
	if (ret == 1) {
		buf_reset(&put->mem);
		ret = copy_large(put, fd, err);
	} else if (ret == 0) {
		watch_add(put->watch, put->digest.size);
	}
	if (ret < 0)
		return fail(put, ret);
	put->counted = put->digest.size;
	put->copied = true;
	return 0;
}

int cas_put_publish(struct cas_put *put, const struct cas_digest *expect, struct cas_digest *out,
		    struct err *err)
{
	struct watch quiet = {.cancel = put->watch ? put->watch->cancel : NULL,
			      .stop = put->watch ? put->watch->stop : NULL};
	struct cas_put_bytes_at from = {
		.data = buf_str(&put->mem), .tmp = &put->spill, .watch = &quiet};
	int ret = put->failed;

	if (ret < 0)
		return err_set(err, ret, "cannot publish what could not be written");
	if (!put->copied)
		ret = cas_hash_final(put->hash, &put->digest);
	if (ret < 0)
		return err_set(err, ret, "cannot finish a hash: %s", strerrordesc_np(-ret));
	put->copied = true;
	if (expect && !cas_digest_equal(expect, &put->digest))
		return err_set(err, -EBADMSG, "bytes hash to %s, not to %s",
			       CAS_DIGEST_TEXT(&put->digest), CAS_DIGEST_TEXT(expect));
	ret = cas_publish(put->store, &put->digest, &from, err);
	if (ret < 0)
		return fail(put, ret);
	cas_tmp_fini(&put->spill);
	put->counted = 0;
	if (out)
		*out = put->digest;
	return 0;
}

int cas_put_bytes(struct cas_store *store, const void *data, size_t len, struct cas_digest *out,
		  struct err *err)
{
	struct cas_put_bytes_at from = {.data = data};
	struct cas_digest digest;
	int ret = cas_put_check_writable(store, err);

	if (ret < 0)
		return ret;
	ret = cas_hash_bytes(data, len, &digest);
	if (ret < 0)
		return err_set(err, ret, "cannot hash %zu bytes: %s", len, strerrordesc_np(-ret));
	ret = cas_publish(store, &digest, &from, err);
	if (ret == 0 && out)
		*out = digest;
	return ret;
}

int cas_put_fd(struct cas_store *store, int fd, struct cas_digest *out, struct err *err)
{
	struct cas_put *put = NULL;
	int ret = cas_put_new(store, &put, err);

	if (ret == 0)
		ret = cas_put_copy_fd(put, fd, err);
	if (ret == 0)
		ret = cas_put_publish(put, NULL, out, err);
	cas_put_free(put);
	return ret;
}
