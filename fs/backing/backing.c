/* fs/backing/backing.c - digest to open descriptor, counted */

/*
 * A backing is OPENING (fd < 0, its maker is in the store; others wait), OPEN, or FAILED
 * (no longer in the table, kept by those who waited). A STALE one, whose file was changed
 * by somebody else, has left the table and lives until its last user lets go.
 *
 * The table is a plain chained hash; idle ones (no users, OPEN) are on a list in order of
 * last use, and closed from its end when there are too many.
 */
#include "fs/backing/backing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "cas/put/copy.h"
#include "fs/backing/passthrough.h"

#define NR_BUCKETS   16384
#define HOLES_MIN_SZ (1U << 20) /* puts leave no smaller ones */

struct fs_backing {
	struct cas_digest digest;
	int fd;		   /* written once, by the maker, under the lock */
	int error;	   /* FAILED: why */
	bool in_table;	   /* table lock */
	int32_t kernel_id; /* table lock; 0: none */
	size_t nr_users;   /* table lock */
	struct stat seen;  /* when opened; written before fd */
	struct fs_backing *next;
	struct fs_backing *idle_prev; /* table lock; NULL both unless idle */
	struct fs_backing *idle_next;
};

struct fs_backing_table {
	struct cas_store *store;
	size_t max;
	struct lock lock;
	pthread_cond_t opened;
	int dev_fd GUARDED_BY(lock); /* -1: no kernel ids */
	size_t nr_ids GUARDED_BY(lock);
	size_t nr_open GUARDED_BY(lock);
	struct fs_backing idle GUARDED_BY(lock); /* list head: next is the most recent */
	struct fs_backing *buckets[NR_BUCKETS] GUARDED_BY(lock);
};

static size_t bucket_of(const struct cas_digest *digest)
{
	uint32_t v;

	memcpy(&v, digest->hash, sizeof(v));
	return v % NR_BUCKETS;
}

static void idle_remove(struct fs_backing *b)
{
	if (!b->idle_next)
		return;
	b->idle_prev->idle_next = b->idle_next;
	b->idle_next->idle_prev = b->idle_prev;
	b->idle_prev = NULL;
	b->idle_next = NULL;
}

static void idle_add_locked(struct fs_backing_table *table, struct fs_backing *b)
	REQUIRES(table->lock)
{
	b->idle_next = table->idle.idle_next;
	b->idle_prev = &table->idle;
	b->idle_next->idle_prev = b;
	table->idle.idle_next = b;
}

static void leave_table_locked(struct fs_backing_table *table, struct fs_backing *b)
	REQUIRES(table->lock)
{
	struct fs_backing **p = &table->buckets[bucket_of(&b->digest)];

	if (!b->in_table)
		return;
	while (*p != b)
		p = &(*p)->next;
	*p = b->next;
	b->in_table = false;
}

/* Files that are open by it stay so; only the number is given back. */
static void drop_id_locked(struct fs_backing_table *table, struct fs_backing *b)
	REQUIRES(table->lock)
{
	if (b->kernel_id == 0)
		return;
	if (table->dev_fd >= 0)
		fs_kernel_backing_close(table->dev_fd, b->kernel_id);
	b->kernel_id = 0;
	table->nr_ids--;
}

static void destroy_locked(struct fs_backing_table *table, struct fs_backing *b)
	REQUIRES(table->lock)
{
	idle_remove(b);
	leave_table_locked(table, b);
	drop_id_locked(table, b);
	if (b->fd >= 0) {
		(void)close(b->fd);
		table->nr_open--;
	}
	free(b);
}

NO_LOCK_CHECK int fs_backing_table_new(struct cas_store *store, size_t max,
				       struct fs_backing_table **out)
{
	struct fs_backing_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	table->store = store;
	table->max = max;
	table->dev_fd = -1;
	lock_init(&table->lock, LOCK_RANK_BACKING, "backing table");
	lock_cond_init(&table->opened);
	table->idle.idle_next = &table->idle;
	table->idle.idle_prev = &table->idle;
	*out = table;
	return 0;
}

NO_LOCK_CHECK void fs_backing_table_free(struct fs_backing_table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < NR_BUCKETS; i++)
		while (table->buckets[i])
			destroy_locked(table, table->buckets[i]);
	(void)pthread_cond_destroy(&table->opened);
	lock_fini(&table->lock);
	free(table);
}

static void trim_locked(struct fs_backing_table *table) REQUIRES(table->lock)
{
	while (table->nr_open > table->max && table->idle.idle_prev != &table->idle)
		destroy_locked(table, table->idle.idle_prev);
}

static void unref_locked(struct fs_backing_table *table, struct fs_backing *b) REQUIRES(table->lock)
{
	if (--b->nr_users > 0)
		return;
	if (!b->in_table) {
		destroy_locked(table, b);
		return;
	}
	idle_add_locked(table, b);
	trim_locked(table);
}

static struct fs_backing *find_locked(struct fs_backing_table *table,
				      const struct cas_digest *digest) REQUIRES(table->lock)
{
	struct fs_backing *b = table->buckets[bucket_of(digest)];

	while (b && !cas_digest_equal(&b->digest, digest))
		b = b->next;
	return b;
}

static struct fs_backing *add_locked(struct fs_backing_table *table,
				     const struct cas_digest *digest) REQUIRES(table->lock)
{
	struct fs_backing **head = &table->buckets[bucket_of(digest)];
	struct fs_backing *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->digest = *digest;
	b->fd = -1;
	b->in_table = true;
	b->next = *head;
	*head = b;
	return b;
}

/* Open what add_locked put there, and wake who waits for it. */
static int open_backing(struct fs_backing_table *table, struct fs_backing *b, struct err *err)
{
	int fd = -1;
	int ret = cas_store_open_blob(table->store, &b->digest, &fd, err);

	if (ret == 0 && fstat(fd, &b->seen) < 0) {
		ret = err_set(err, -errno, "cannot stat blob %s: %s", CAS_DIGEST_TEXT(&b->digest),
			      strerror(errno));
		(void)close(fd);
	}
	lock_take(&table->lock);
	if (ret == 0) {
		b->fd = fd;
		table->nr_open++;
		trim_locked(table);
	} else {
		b->error = ret;
		leave_table_locked(table, b);
	}
	(void)pthread_cond_broadcast(&table->opened);
	lock_drop(&table->lock);
	return ret;
}

static bool is_unchanged(const struct fs_backing *b)
{
	struct stat now;

	return fstat(b->fd, &now) == 0 && now.st_size == b->seen.st_size &&
	       now.st_mtim.tv_sec == b->seen.st_mtim.tv_sec &&
	       now.st_mtim.tv_nsec == b->seen.st_mtim.tv_nsec &&
	       (now.st_nlink == 0 || (now.st_ctim.tv_sec == b->seen.st_ctim.tv_sec &&
				      now.st_ctim.tv_nsec == b->seen.st_ctim.tv_nsec));
}

/* Count the one in the table (waiting for it), or make one; *made tells which. */
static struct fs_backing *find_or_add(struct fs_backing_table *table,
				      const struct cas_digest *digest, bool *made)
{
	struct fs_backing *b;

	lock_take(&table->lock);
	b = find_locked(table, digest);
	*made = !b;
	if (!b)
		b = add_locked(table, digest);
	if (b) {
		idle_remove(b);
		b->nr_users++;
	}
	while (b && !*made && b->fd < 0 && b->error == 0)
		(void)lock_wait(&table->lock, &table->opened, 0);
	lock_drop(&table->lock);
	return b;
}

int fs_backing_ref(struct fs_backing_table *table, const struct cas_digest *digest,
		   struct fs_backing **out, struct err *err)
{
	for (;;) {
		bool made;
		struct fs_backing *b = find_or_add(table, digest, &made);
		int ret;

		if (!b)
			return -ENOMEM;
		ret = made ? open_backing(table, b, err) : b->error;
		if (ret == 0 && (made || is_unchanged(b))) {
			*out = b;
			return 0;
		}
		lock_take(&table->lock);
		leave_table_locked(table, b);
		unref_locked(table, b);
		lock_drop(&table->lock);
		if (ret < 0 && !made) {
			(void)err_set(err, ret, "blob %s could not be opened",
				      CAS_DIGEST_TEXT(digest));
			cas_err_set_missing(err, digest);
		}
		if (ret < 0)
			return ret;
	}
}

bool fs_backing_is_open(struct fs_backing_table *table, const struct cas_digest *digest)
{
	const struct fs_backing *b;
	bool is_open;

	lock_take(&table->lock);
	b = find_locked(table, digest);
	is_open = b && b->fd >= 0;
	lock_drop(&table->lock);
	return is_open;
}

struct fs_backing *fs_backing_hold(struct fs_backing_table *table, struct fs_backing *backing)
{
	lock_take(&table->lock);
	backing->nr_users++;
	lock_drop(&table->lock);
	return backing;
}

bool fs_backing_is_same_file(const struct fs_backing *a, const struct fs_backing *b)
{
	return a == b || (a->seen.st_dev == b->seen.st_dev && a->seen.st_ino == b->seen.st_ino);
}

void fs_backing_unref(struct fs_backing_table *table, struct fs_backing *backing)
{
	if (!backing)
		return;
	lock_take(&table->lock);
	unref_locked(table, backing);
	lock_drop(&table->lock);
}

ssize_t fs_backing_read(const struct fs_backing *backing, void *data, size_t len, off_t off)
{
	uint64_t size = backing->digest.size;
	ssize_t got;

	if (off < 0 || (uint64_t)off >= size)
		return 0;
	if (len > size - (uint64_t)off)
		len = (size_t)(size - (uint64_t)off);
	got = io_pread_full(backing->fd, data, len, off);
	if (got >= 0 && (size_t)got < len)
		return -EIO;
	return got;
}

int fs_backing_copy(const struct fs_backing *b, int to, struct err *err)
{
	/* Of one whose bytes are known without a file, as the empty blob's, there is none. */
	if (b->digest.size == 0)
		return 0;
	return cas_copy_fd(b->fd, to, b->digest.size, CAS_COPY_ANY, err);
}

off_t fs_backing_seek(const struct fs_backing *backing, off_t off, int whence)
{
	off_t size = (off_t)backing->digest.size;
	off_t got;

	if (off < 0 || off >= size)
		return -ENXIO;
	/* Everybody reads by pread: the position of the shared descriptor means nothing. */
	got = lseek(backing->fd, off, whence);
	if (got < 0)
		return -errno;
	if (got >= size)
		return whence == SEEK_DATA ? -ENXIO : size;
	return got;
}

uint64_t fs_backing_blocks(const struct fs_backing_table *table, const struct cas_digest *digest)
{
	uint64_t full = (digest->size + 511) / 512;
	uint64_t real;

	if (digest->size < HOLES_MIN_SZ || cas_store_blocks(table->store, digest, &real) != 1)
		return full;
	/* Never 0: there are programs to which that says that nothing need be read. */
	return real == 0 ? 1 : real < full ? real : full;
}

void fs_backing_set_device(struct fs_backing_table *table, int dev_fd)
{
	lock_take(&table->lock);
	table->dev_fd = -1;
	for (size_t i = 0; i < NR_BUCKETS; i++)
		for (struct fs_backing *b = table->buckets[i]; b; b = b->next)
			drop_id_locked(table, b);
	table->dev_fd = dev_fd;
	lock_drop(&table->lock);
}

/* The call is short and waits for nobody, so it may be made under the lock. */
int32_t fs_backing_kernel_id(struct fs_backing_table *table, struct fs_backing *backing)
{
	int32_t id = -ENODEV;

	lock_take(&table->lock);
	if (backing->kernel_id > 0) {
		id = backing->kernel_id;
	} else if (table->dev_fd >= 0 && backing->fd >= 0) {
		id = fs_kernel_backing_open(table->dev_fd, backing->fd);
		if (id > 0) {
			backing->kernel_id = id;
			table->nr_ids++;
		}
	}
	lock_drop(&table->lock);
	return id;
}

bool fs_backing_is_scarce(struct fs_backing_table *table, const struct fs_backing *backing)
{
	bool scarce;

	lock_take(&table->lock);
	scarce = table->nr_open > table->max && backing->nr_users == 1;
	lock_drop(&table->lock);
	return scarce;
}

size_t fs_backing_count_ids(struct fs_backing_table *table)
{
	size_t nr;

	lock_take(&table->lock);
	nr = table->nr_ids;
	lock_drop(&table->lock);
	return nr;
}

size_t fs_backing_count(struct fs_backing_table *table)
{
	size_t nr;

	lock_take(&table->lock);
	nr = table->nr_open;
	lock_drop(&table->lock);
	return nr;
}

size_t fs_backing_raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 256;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
		(void)getrlimit(RLIMIT_NOFILE, &limit);
	}
	return limit.rlim_cur / 2 < 32768 ? (size_t)limit.rlim_cur / 2 : 32768;
}
