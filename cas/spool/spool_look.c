/* cas/spool/spool_look.c - reads of what has not been moved yet */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * The spool is looked at before the blob directory: a blob is there before it leaves the
 * spool, so who finds it in neither has looked at no gap. Stamps of spool files live in
 * the table of the process that made or hashed them; others hash at each open.
 */

static int stat_spool(const struct cas_store *store, const uint8_t hash[CAS_HASH_SZ],
		      struct stat *st)
{
	char path[CAS_LAYOUT_PATH_SZ];

	if (store->spool_fd < 0)
		return -ENOENT;
	cas_layout_path(hash, path);
	if (fstatat(store->spool_fd, path, st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISREG(st->st_mode) ? 0 : -ENOENT;
}

int cas_spool_size(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ], uint64_t *size)
{
	struct stat st;
	int ret = stat_spool(store, hash, &st);

	if (ret < 0 || st.st_size == 0)
		return 0;
	*size = (uint64_t)st.st_size;
	return 1;
}

int cas_spool_has(struct cas_store *store, const struct cas_digest *digest)
{
	uint64_t size;

	return cas_spool_size(store, digest->hash, &size) == 1 && size == digest->size;
}

/* Is it as it was when its bytes were right? */
static bool stamp_known(struct cas_spool *s, const struct cas_digest *digest, const struct stat *st)
{
	struct cas_spool_entry *e;
	struct cas_stamp now;
	bool known;

	if (s == NULL)
		return false;
	cas_stamp_of(st, &now);
	lock_take(&s->lock);
	e = cas_spool_find_locked(s, digest->hash);
	known = e && e->known && cas_stamp_equal(&e->stamp, &now);
	lock_drop(&s->lock);
	return known;
}

static void remember(struct cas_spool *s, const struct cas_digest *digest, const struct stat *st)
{
	struct cas_spool_entry *e;

	if (s == NULL)
		return;
	lock_take(&s->lock);
	e = cas_spool_find_locked(s, digest->hash);
	if (e) {
		cas_stamp_of(st, &e->stamp);
		e->known = true;
	}
	lock_drop(&s->lock);
}

static int check_bytes(struct cas_store *store, const struct cas_digest *digest, int fd,
		       const struct stat *st, struct err *err)
{
	struct cas_digest real;
	int ret;

	if (stamp_known(store->spool, digest, st))
		return 0;
	ret = cas_hash_fd(fd, &real);
	if (ret < 0)
		return err_set(err, ret, "cannot read blob %s in the spool: %s",
			       CAS_DIGEST_TEXT(digest), strerrordesc_np(-ret));
	if (memcmp(real.hash, digest->hash, CAS_HASH_SZ) != 0) {
		(void)cas_quarantine(store, store->spool_fd, digest->hash, st->st_ino);
		return err_set(err, -EBADMSG, "blob %s: its spool file has other bytes",
			       CAS_DIGEST_TEXT(digest));
	}
	remember(store->spool, digest, st);
	return real.size == digest->size ? 0 : -ENOENT;
}

int cas_spool_check(struct cas_store *store, const struct cas_digest *digest, int *fd,
		    struct err *err)
{
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int got = -1;
	struct stat st;
	int ret = stat_spool(store, digest->hash, &st);

	if (ret < 0)
		return ret;
	if (fd == NULL && (uint64_t)st.st_size == digest->size &&
	    stamp_known(store->spool, digest, &st))
		return 0;
	cas_layout_path(digest->hash, path);
	got = openat(store->spool_fd, path,
		     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (got < 0 || fstat(got, &st) < 0)
		return -errno;
	ret = check_bytes(store, digest, got, &st, err);
	if (ret == 0 && fd)
		*fd = steal_fd(&got);
	return ret;
}
