/* meta/index/index.c - the LMDB environment: opening, damage, transactions */
/*
 * Everything in the index can be found again from the files, so it is written without
 * syncing (MDB_NOSYNC): a killed process loses nothing that was committed, because the
 * pages are the kernel's. Power loss may leave pages out of order, and LMDB cannot see
 * that. Therefore a small file beside it, meta/index/state, says
 *
 *     casbox-index VERSION BOOT-ID dirty|clean|bad
 *
 * "dirty" is made durable before the first write of a process, "clean" after a sync at
 * close. Dirty under another boot id means that power may have been lost: the index is
 * removed and made anew. An unknown version, "bad" and files that LMDB refuses are set
 * aside as index.bad-N.
 *
 * A data file shorter than its last page would raise SIGBUS on a read. The length is
 * compared at open; so that the comparison never errs, a commit that leaves the last
 * page unwritten (LMDB skips pages freed in the same transaction) extends the file.
 */
#include "meta/index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "meta/index/files.h"
#include "meta/index/index_i.h"

#define INDEX_VERSION	  1
#define INDEX_PATH	  "meta/index"
#define INDEX_MAX_READERS 2046	 /* slots in the lock file, 64 bytes each */
#define INDEX_LOCK_SZ	  131072 /* the lock file: these slots and their head */
#define DEFAULT_READERS	  8
#define INDEX_MAX_DBS	  4
#define BOOT_ID_SZ	  64

enum index_state { STATE_NONE, STATE_USABLE, STATE_DIRTY, STATE_SUSPECT, STATE_UNKNOWN };

static void boot_id(char out[BOOT_ID_SZ])
{
	auto_buf struct buf b = {0};
	size_t len;

	(void)snprintf(out, BOOT_ID_SZ, "unknown");
	if (io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096, &b) < 0)
		return;
	len = strcspn(buf_str(&b), "\n ");
	if (len > 0 && len < BOOT_ID_SZ)
		(void)snprintf(out, BOOT_ID_SZ, "%.*s", (int)len, buf_str(&b));
}

static int state_write(int dir_fd, const char *word)
{
	char boot[BOOT_ID_SZ], line[128];
	int len;

	boot_id(boot);
	len = snprintf(line, sizeof(line), "casbox-index %d %s %s\n", INDEX_VERSION, boot, word);
	len = io_replace_file(dir_fd, "state", line, (size_t)len, 0644, true);
	return len < 0 ? len : meta_give_to_owner(dir_fd, "state");
}

static enum index_state state_read(int dir_fd)
{
	auto_buf struct buf b = {0};
	char boot[BOOT_ID_SZ], then[BOOT_ID_SZ], word[8];
	struct stat st;
	int version;

	if (fstatat(dir_fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? STATE_NONE : STATE_UNKNOWN;
	if (io_read_file(dir_fd, "state", 4096, &b) < 0 ||
	    sscanf(buf_str(&b), "casbox-index %d %63s %7s", &version, then, word) != 3 ||
	    version != INDEX_VERSION)
		return STATE_UNKNOWN;
	if (strcmp(word, "clean") == 0)
		return STATE_USABLE;
	if (strcmp(word, "dirty") != 0)
		return STATE_UNKNOWN;
	boot_id(boot);
	return strcmp(boot, then) == 0 && strcmp(boot, "unknown") != 0 ? STATE_DIRTY
								       : STATE_SUSPECT;
}

int meta_index_errno(struct meta_index *ix, int rc)
{
	if (rc == 0)
		return 0;
	if (rc > 0)
		return -rc;
	switch (rc) {
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_MAP_FULL:
	case MDB_DBS_FULL:
	case MDB_TXN_FULL:
	case MDB_CURSOR_FULL:
	case MDB_PAGE_FULL:
		return -ENOSPC;
	case MDB_READERS_FULL:
		return -EAGAIN;
	case MDB_MAP_RESIZED:
		return -EFBIG;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_PANIC:
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
	case MDB_INCOMPATIBLE:
		break;
	default:
		return -EIO;
	}
	if (!atomic_exchange(&ix->broken, true)) {
		log_error("index: %s; it is made anew by the next writer", mdb_strerror(rc));
		if (ix->writer)
			(void)state_write(ix->dir_fd, "bad");
	}
	return -EUCLEAN;
}

/* The file must reach as far as its meta pages say. */
static int length_check(struct meta_index *ix)
{
	MDB_envinfo info;
	MDB_stat stat;
	struct stat st;

	(void)mdb_env_stat(ix->env, &stat);
	(void)mdb_env_info(ix->env, &info);
	ix->page_sz = stat.ms_psize;
	if (fstat(ix->data_fd, &st) < 0)
		return -errno;
	if (ix->page_sz == 0 ||
	    (uint64_t)st.st_size / ix->page_sz < (uint64_t)info.me_last_pgno + 1)
		return -EUCLEAN;
	return 0;
}

static int length_extend(struct meta_index *ix)
{
	MDB_envinfo info;
	struct stat st;
	off_t want;

	(void)mdb_env_info(ix->env, &info);
	want = (off_t)((uint64_t)(info.me_last_pgno + 1) * ix->page_sz);
	if (fstat(ix->data_fd, &st) < 0)
		return -errno;
	if (st.st_size < want && ftruncate(ix->data_fd, want) < 0)
		return -errno;
	return 0;
}

/* LMDB looks at both meta pages before it checks the length. */
static int head_check(int dir_fd)
{
	long page = sysconf(_SC_PAGESIZE);
	struct stat st;

	if (fstatat(dir_fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode))
		return -EUCLEAN;
	return st.st_size == 0 || st.st_size >= 2 * (off_t)page ? 0 : -EUCLEAN;
}

/*
 * LMDB makes the lock file by truncation and writes its slots through a mapping: on a full
 * disk the first touch of a page raises SIGBUS. So the file gets its blocks before it is
 * opened; not later, because closing a descriptor of it drops LMDB's locks. A filesystem
 * that cannot allocate beforehand keeps that risk. Who takes few slots finds them in the
 * first page, which is there once the file was opened: a gc must be able to make room.
 */
static int lock_file_allocate(struct meta_index *ix)
{
	int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | (ix->writer ? O_CREAT : 0);
	auto_close int fd = openat(ix->dir_fd, "lock.mdb", flags, 0644);
	struct stat st;

	if (fd < 0)
		return ix->writer ? -errno : 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EUCLEAN;
	if (st.st_blocks >= INDEX_LOCK_SZ / 512 || fallocate(fd, 0, 0, INDEX_LOCK_SZ) == 0)
		return 0;
	if (errno != ENOSPC && errno != EDQUOT)
		return 0;
	return st.st_blocks > 0 && ix->nr_readers <= DEFAULT_READERS ? 0 : -errno;
}

/* Open the environment with the largest map that the address space allows. */
static int env_open(struct meta_index *ix, const char *path, unsigned flags)
{
	static const unsigned map_bits[] = {40, 36, 32, 30, 28};
	int rc = ENOMEM;

	for (size_t i = 0; i < sizeof(map_bits) / sizeof(map_bits[0]); i++) {
		if (sizeof(size_t) < 8 && map_bits[i] > 30)
			continue;
		rc = mdb_env_create(&ix->env);
		if (rc != 0)
			break;
		(void)mdb_env_set_mapsize(ix->env, (size_t)1 << map_bits[i]);
		(void)mdb_env_set_maxdbs(ix->env, INDEX_MAX_DBS);
		(void)mdb_env_set_maxreaders(ix->env, INDEX_MAX_READERS);
		rc = mdb_env_open(ix->env, path, flags, 0644);
		if (rc == 0)
			break;
		mdb_env_close(ix->env);
		ix->env = NULL;
		/* valgrind says EINVAL to a map beyond what it can track. */
		if (rc != ENOMEM && rc != EINVAL)
			break;
	}
	if (rc == 0)
		return 0;
	return rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH ? -EUCLEAN : rc > 0 ? -rc : -EIO;
}

static int tables_open_in(struct meta_index *ix, MDB_txn *txn, unsigned flags)
{
	int rc = mdb_dbi_open(txn, "blob", flags, &ix->blob);

	if (rc == 0)
		rc = mdb_dbi_open(txn, "dir", flags, &ix->dir);
	if (rc == 0)
		rc = mdb_dbi_open(txn, "file", flags, &ix->file);
	return rc;
}

static int tables_open(struct meta_index *ix, bool create)
{
	MDB_txn *txn;
	int rc = mdb_txn_begin(ix->env, NULL, create ? 0 : MDB_RDONLY, &txn);

	if (rc != 0)
		return rc;
	rc = tables_open_in(ix, txn, create ? MDB_CREATE : 0);
	if (rc != 0) {
		mdb_txn_abort(txn);
		return rc;
	}
	return mdb_txn_commit(txn);
}

static int pool_fill(struct meta_index *ix) NO_LOCK_CHECK
{
	ix->idle = calloc((size_t)ix->nr_readers, sizeof(MDB_txn *));
	if (!ix->idle)
		return ENOMEM;
	for (int i = 0; i < ix->nr_readers; i++) {
		MDB_txn *txn;
		int rc = mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &txn);

		if (rc != 0) {
			ix->nr_readers = i;
			return i > 0 && rc == MDB_READERS_FULL ? 0 : rc;
		}
		mdb_txn_reset(txn);
		ix->idle[ix->nr_idle++] = txn;
	}
	return 0;
}

MDB_txn *meta_index_read_begin(struct meta_index *ix)
{
	MDB_txn *txn;
	int rc;

	if (!ix || atomic_load_explicit(&ix->broken, memory_order_relaxed))
		return NULL;
	lock_take(&ix->pool_lock);
	while (ix->nr_idle == 0)
		(void)lock_wait(&ix->pool_lock, &ix->pool_cond, 0);
	txn = ix->idle[--ix->nr_idle];
	lock_drop(&ix->pool_lock);
	rc = mdb_txn_renew(txn);
	if (rc == 0)
		return txn;
	(void)meta_index_errno(ix, rc);
	meta_index_read_end(ix, txn);
	return NULL;
}

int meta_index_row_get(struct meta_index *ix, MDB_dbi dbi, MDB_val *key, void *row, size_t size)
{
	MDB_txn *txn = meta_index_read_begin(ix);
	MDB_val val;
	int rc;

	if (!txn)
		return 0;
	rc = mdb_get(txn, dbi, key, &val);
	if (rc == 0 && val.mv_size == size)
		memcpy(row, val.mv_data, size);
	else if (rc == 0)
		rc = MDB_NOTFOUND;
	meta_index_read_end(ix, txn);
	if (rc != 0)
		(void)meta_index_errno(ix, rc);
	return rc == 0;
}

void meta_index_read_end(struct meta_index *ix, MDB_txn *txn)
{
	mdb_txn_reset(txn);
	lock_take(&ix->pool_lock);
	ix->idle[ix->nr_idle++] = txn;
	(void)pthread_cond_signal(&ix->pool_cond);
	lock_drop(&ix->pool_lock);
}

static void index_free(struct meta_index *ix) NO_LOCK_CHECK
{
	if (!ix)
		return;
	for (int i = 0; i < ix->nr_idle; i++)
		mdb_txn_abort(ix->idle[i]);
	free(ix->idle);
	if (ix->env)
		mdb_env_close(ix->env);
	if (ix->dir_fd >= 0)
		(void)close(ix->dir_fd);
	(void)pthread_cond_destroy(&ix->pool_cond);
	lock_fini(&ix->pool_lock);
	free(ix);
}

static struct meta_index *index_new(const struct meta_index_options *opts)
{
	struct meta_index *ix = calloc(1, sizeof(*ix));

	if (!ix)
		return NULL;
	ix->dir_fd = -1;
	ix->data_fd = -1;
	ix->writer = opts->writer;
	ix->nr_readers = opts->nr_readers > 0 ? opts->nr_readers : DEFAULT_READERS;
	lock_init(&ix->pool_lock, LOCK_RANK_LEAF, "meta_index.pool_lock");
	lock_cond_init(&ix->pool_cond);
	return ix;
}

/*
 * A reader that cannot write the lock file is unseen by a writer, which may then reuse
 * the pages that it reads. So it reads only what is clean: a writer at work is not.
 */
static int reader_flags(struct meta_index *ix, enum index_state state, unsigned *flags)
{
	*flags = MDB_NOTLS | MDB_RDONLY;
	if (faccessat(ix->dir_fd, "lock.mdb", W_OK, AT_EACCESS) == 0)
		return 0;
	if (errno != EACCES && errno != EROFS && errno != ENOENT)
		return -errno;
	*flags |= MDB_NOLOCK;
	return state == STATE_USABLE ? 0 : -EBUSY;
}

static int give_to_owner(struct meta_index *ix)
{
	int ret = meta_give_to_owner(ix->dir_fd, "data.mdb");

	return ret < 0 ? ret : meta_give_to_owner(ix->dir_fd, "lock.mdb");
}

/* Open the environment and see whether it can be used. */
static int index_load_env(struct meta_index *ix, const char *path, enum index_state state)
{
	unsigned flags = MDB_NOTLS | MDB_NOSYNC;
	int ret = head_check(ix->dir_fd);

	if (ret == 0 && !ix->writer)
		ret = reader_flags(ix, state, &flags);
	if (ret == 0 && !(flags & MDB_NOLOCK))
		ret = lock_file_allocate(ix);
	if (ret == 0)
		ret = env_open(ix, path, flags);
	if (ret < 0)
		return ret;
	/* The data file's descriptor is the one that LMDB leaves inheritable. */
	(void)mdb_env_get_fd(ix->env, &ix->data_fd);
	if (fcntl(ix->data_fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	return length_check(ix);
}

/* A process that was killed may have left no tables, never half a table. */
static int index_load(struct meta_index *ix, const char *path, enum index_state state)
{
	int ret = index_load_env(ix, path, state), rc;

	if (ret == 0 && state == STATE_NONE)
		ret = give_to_owner(ix);
	if (ret < 0)
		return ret;
	if (ix->writer)
		(void)meta_index_clear_stale_readers(ix);
	rc = tables_open(ix, false);
	if (rc == MDB_NOTFOUND && ix->writer)
		rc = tables_open(ix, true);
	if (rc == 0)
		rc = pool_fill(ix);
	return rc > 0 ? -rc : rc == MDB_NOTFOUND ? -ENOENT : rc < 0 ? -EUCLEAN : 0;
}

static int open_dir(int store_fd)
{
	int fd = openat(store_fd, INDEX_PATH, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int make_dir(int store_fd)
{
	if (mkdirat(store_fd, "meta", 0700) == 0) {
		int ret = meta_give_to_owner(store_fd, "meta");

		if (ret < 0)
			return ret;
	} else if (errno != EEXIST) {
		return -errno;
	}
	if (mkdirat(store_fd, INDEX_PATH, 0755) == 0)
		return meta_give_to_owner(store_fd, INDEX_PATH);
	return errno == EEXIST ? 0 : -errno;
}

/* Make room for a new index when the one there cannot be trusted. */
static int clear_way(int store_fd, enum index_state state, struct err *err)
{
	if (state == STATE_SUSPECT) {
		log_warn("index: not closed before the last boot; making it anew");
		return io_remove_tree(store_fd, INDEX_PATH, err);
	}
	return meta_set_aside(store_fd, INDEX_PATH, NULL, err);
}

static int writer_try(const struct meta_index_options *opts, const char *path,
		      struct meta_index **out, enum index_state *state, bool *fresh)
{
	struct meta_index *ix = index_new(opts);
	int ret;

	if (!ix)
		return -ENOMEM;
	ret = make_dir(opts->store_fd);
	if (ret == 0)
		ret = open_dir(opts->store_fd);
	if (ret < 0)
		goto out;
	ix->dir_fd = ret;
	*state = state_read(ix->dir_fd);
	*fresh |= *state == STATE_NONE;
	ix->dirty = *state == STATE_DIRTY;
	ret = *state == STATE_SUSPECT || *state == STATE_UNKNOWN ? -EUCLEAN : 0;
	if (ret == 0 && *state == STATE_NONE) {
		ret = state_write(ix->dir_fd, "dirty");
		ix->dirty = true;
	}
	if (ret == 0)
		ret = index_load(ix, path, *state);
	if (ret == 0)
		*out = steal_ptr(&ix);
out:
	index_free(ix);
	return ret;
}

static int open_writer(const struct meta_index_options *opts, const char *path,
		       struct meta_index **out, bool *fresh, struct err *err)
{
	enum index_state state = STATE_NONE;
	bool made = false;
	int ret = writer_try(opts, path, out, &state, &made);

	if (ret == -EUCLEAN || ret == -ENOTDIR || ret == -ELOOP) {
		ret = clear_way(opts->store_fd, state, err);
		if (ret < 0)
			return ret;
		ret = writer_try(opts, path, out, &state, &made);
	}
	if (ret < 0)
		return err_set(err, ret, "cannot open the index %s: %s", path, strerror(-ret));
	*fresh = made;
	return 0;
}

static int open_reader(const struct meta_index_options *opts, const char *path,
		       struct meta_index **out)
{
	struct meta_index *ix = index_new(opts);
	enum index_state state;
	int ret;

	if (!ix)
		return -ENOMEM;
	*out = NULL;
	ret = open_dir(opts->store_fd);
	if (ret < 0)
		goto out;
	ix->dir_fd = ret;
	state = state_read(ix->dir_fd);
	ret = state == STATE_USABLE || state == STATE_DIRTY ? index_load(ix, path, state) : -ENOENT;
	if (ret == 0)
		*out = steal_ptr(&ix);
out:
	if (ret < 0)
		log_at(ret == -ENOENT ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN,
		       "index: going without %s: %s", path, strerror(-ret));
	index_free(ix);
	return 0;
}

int meta_index_open(const struct meta_index_options *opts, struct meta_index **out, bool *fresh,
		    struct err *err)
{
	auto_free char *path = NULL;

	if (asprintf(&path, "%s/%s", opts->store_path, INDEX_PATH) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	*fresh = false;
	return opts->writer ? open_writer(opts, path, out, fresh, err)
			    : open_reader(opts, path, out);
}

int meta_index_close(struct meta_index *ix, struct err *err)
{
	int ret = 0;

	if (!ix)
		return 0;
	if (ix->writer && ix->dirty && !atomic_load(&ix->broken)) {
		ret = -mdb_env_sync(ix->env, 1);
		if (ret == 0)
			ret = state_write(ix->dir_fd, "clean");
		if (ret < 0)
			(void)err_set(err, ret, "cannot make the index durable: %s",
				      strerror(-ret));
	}
	index_free(ix);
	return ret;
}

int meta_index_clear_stale_readers(struct meta_index *ix)
{
	int dead = 0;
	int rc = ix ? mdb_reader_check(ix->env, &dead) : 0;

	if (dead > 0)
		log_info("index: cleared %d dead readers", dead);
	return rc > 0 ? -rc : rc < 0 ? -EIO : 0;
}

int meta_index_begin(struct meta_index *ix, struct err *err)
{
	int ret;

	if (atomic_load(&ix->broken))
		return err_set(err, -EUCLEAN, "the index is damaged");
	if (!ix->dirty) {
		ret = state_write(ix->dir_fd, "dirty");
		if (ret < 0)
			return err_set(err, ret, "cannot write meta/index/state: %s",
				       strerror(-ret));
		ix->dirty = true;
	}
	ret = mdb_txn_begin(ix->env, NULL, 0, &ix->wtxn);
	if (ret != 0) {
		ix->wtxn = NULL;
		return err_set(err, meta_index_errno(ix, ret), "cannot write the index: %s",
			       mdb_strerror(ret));
	}
	return 0;
}

int meta_index_commit(struct meta_index *ix, struct err *err)
{
	int rc = mdb_txn_commit(ix->wtxn), ret;

	ix->wtxn = NULL;
	if (rc != 0)
		return err_set(err, meta_index_errno(ix, rc), "cannot write the index: %s",
			       mdb_strerror(rc));
	ret = length_extend(ix);
	if (ret < 0)
		return err_set(err, ret, "cannot extend the index: %s", strerror(-ret));
	return 0;
}

void meta_index_abort(struct meta_index *ix)
{
	if (ix->wtxn)
		mdb_txn_abort(ix->wtxn);
	ix->wtxn = NULL;
}

int meta_index_sweep(struct meta_index *ix, MDB_dbi dbi, unsigned shard,
		     int (*keep)(void *ctx, const MDB_val *key, const MDB_val *val), void *ctx,
		     uint64_t *dropped)
{
	uint8_t first = (uint8_t)shard;
	MDB_cursor *cursor;
	MDB_val key = {.mv_size = 1, .mv_data = &first}, val;
	int rc = mdb_cursor_open(ix->wtxn, dbi, &cursor), ret = 0;

	if (rc != 0)
		return meta_index_errno(ix, rc);
	/* After a deletion NEXT is the one that followed. */
	for (rc = mdb_cursor_get(cursor, &key, &val, MDB_SET_RANGE); rc == 0;
	     rc = mdb_cursor_get(cursor, &key, &val, MDB_NEXT)) {
		if (key.mv_size > 0 && *(const uint8_t *)key.mv_data != first)
			break;
		ret = keep(ctx, &key, &val);
		if (ret < 0)
			break;
		if (ret > 0)
			continue;
		rc = mdb_cursor_del(cursor, 0);
		if (rc != 0)
			break;
		(*dropped)++;
	}
	mdb_cursor_close(cursor);
	if (ret < 0)
		return ret;
	return rc == MDB_NOTFOUND ? 0 : meta_index_errno(ix, rc);
}

int meta_index_shrink(struct meta_index *ix, struct err *err)
{
	int ret = meta_index_begin(ix, err), rc;

	if (ret < 0)
		return ret;
	rc = mdb_drop(ix->wtxn, ix->dir, 0);
	if (rc == 0)
		rc = mdb_drop(ix->wtxn, ix->file, 0);
	if (rc != 0) {
		meta_index_abort(ix);
		return err_set(err, meta_index_errno(ix, rc), "cannot empty the index: %s",
			       mdb_strerror(rc));
	}
	return meta_index_commit(ix, err);
}
