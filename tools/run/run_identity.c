/* tools/run/run_identity.c - has anything changed in a tree of the host? */
#include "tools/run/run_identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"

/*
 * The memory of a tree is a header, then for each name to watch its stamp and its path. A
 * link cannot be changed in place, so its directory's stamp stands for it. When one stamp
 * differs the whole tree is looked through again.
 *
 * A name changed while we look, or just before, could change once more without another
 * stamp: then nothing is kept, and the next look is a whole one.
 */

#define SMALL_TREE 20000
#define RACY_NS	   2000000000LL
#define MEMORY_MAX (256 << 20)
#define MAGIC	   "casbox-identity-1"

struct header {
	char magic[24];
	struct cas_digest digest;
	uint64_t nr;
	uint64_t bytes; /* of all that follows */
};

struct stamp {
	uint64_t ino;
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint32_t mode;
	uint32_t uid;
};

struct scan {
	struct cas_hash *hash;
	struct buf all;	  /* records of all names but links */
	struct buf large; /* of those that are watched in a large tree */
	uint64_t nr_all;
	uint64_t nr_large;
	int64_t newest_ns;
	size_t nr_names;
};

static int64_t to_ns(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static struct stamp stamp_of(const struct stat *st)
{
	struct stamp s;

	memset(&s, 0, sizeof(s));
	s.ino = st->st_ino;
	s.size = (uint64_t)st->st_size;
	s.mtime_ns = to_ns(&st->st_mtim);
	s.ctime_ns = to_ns(&st->st_ctim);
	s.mode = st->st_mode;
	s.uid = st->st_uid;
	return s;
}

static int add_record(struct buf *to, uint64_t *nr, const struct stamp *stamp, const char *path)
{
	int ret = buf_append(to, stamp, sizeof(*stamp));

	if (ret == 0)
		ret = buf_append(to, path, strlen(path) + 1);
	*nr += ret == 0;
	return ret;
}

static bool is_program(const struct stat *st, const char *path)
{
	const char *name = strrchr(path, '/');

	return S_ISREG(st->st_mode) && (st->st_mode & 0111 || strstr(name ? name : path, ".so"));
}

static int note(struct scan *s, const char *path, const struct stat *st)
{
	struct stamp stamp = stamp_of(st);
	int ret = cas_hash_update(s->hash, path, strlen(path) + 1);

	if (ret == 0)
		ret = cas_hash_update(s->hash, &stamp, sizeof(stamp));
	if (stamp.ctime_ns > s->newest_ns)
		s->newest_ns = stamp.ctime_ns;
	s->nr_names++;
	if (ret || S_ISLNK(st->st_mode))
		return ret;
	ret = add_record(&s->all, &s->nr_all, &stamp, path);
	if (ret == 0 && (S_ISDIR(st->st_mode) || is_program(st, path)))
		ret = add_record(&s->large, &s->nr_large, &stamp, path);
	return ret;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *de)
{
	return strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
}

static int scan_below(struct scan *s, int fd, const char *path);

/* @name in the directory @fd, which is @path. */
static int scan_name(struct scan *s, int fd, const char *name, const char *path)
{
	auto_close int child = -1;
	struct stat st;
	int ret;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	ret = note(s, path, &st);
	if (ret || !S_ISDIR(st.st_mode))
		return ret;
	child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* What we may not read, the command may not read either. */
	if (child < 0)
		return errno == EACCES || errno == ENOENT ? 0 : -errno;
	return scan_below(s, child, path);
}

static int scan_below(struct scan *s, int fd, const char *path)
{
	struct dirent **list = NULL;
	int nr = scandirat(fd, ".", &list, no_dots, by_name);
	int ret = nr < 0 ? -errno : 0;

	for (int i = 0; i < nr; i++) {
		auto_free char *below = NULL;

		if (ret == 0 && asprintf(&below, "%s/%s", path, list[i]->d_name) < 0) {
			below = NULL;
			ret = -ENOMEM;
		}
		if (ret == 0)
			ret = scan_name(s, fd, list[i]->d_name, below);
		free(list[i]);
	}
	free(list);
	return ret;
}

static void scan_fini(struct scan *s)
{
	cas_hash_free(s->hash);
	buf_fini(&s->all);
	buf_fini(&s->large);
}

static void memory_name(const char *path, char out[CAS_HASH_HEX_SZ + 1])
{
	struct cas_digest digest = {0};

	(void)cas_hash_bytes(path, strlen(path), &digest);
	cas_hash_format(digest.hash, out);
}

static void keep(const struct scan *s, int memory_fd, const char *path, int64_t began_ns,
		 const struct cas_digest *digest)
{
	bool small = s->nr_names <= SMALL_TREE;
	const struct buf *records = small ? &s->all : &s->large;
	struct header h = {.magic = MAGIC,
			   .digest = *digest,
			   .nr = small ? s->nr_all : s->nr_large,
			   .bytes = records->len};
	char name[CAS_HASH_HEX_SZ + 1];
	auto_buf struct buf b = {0};

	if (memory_fd < 0 || records->len == 0 || s->newest_ns > began_ns - RACY_NS)
		return;
	memory_name(path, name);
	/* It is a memory: whatever goes wrong, the next look is a whole one. */
	if (buf_append(&b, &h, sizeof(h)) == 0 && buf_append(&b, records->data, records->len) == 0)
		(void)io_replace_file(memory_fd, name, b.data, b.len, 0600, false);
}

static int scan_all(int memory_fd, const char *path, struct cas_digest *out)
{
	struct scan s = {0};
	struct timespec now;
	int ret = cas_hash_new(&s.hash);

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (ret == 0)
		ret = scan_name(&s, AT_FDCWD, path, path);
	if (ret == 0)
		ret = cas_hash_final(s.hash, out);
	if (ret == 0)
		keep(&s, memory_fd, path, to_ns(&now), out);
	scan_fini(&s);
	return ret;
}

/* Names that one thread looks at: paths[i] follows its stamp. */
struct slice {
	char **paths;
	size_t nr;
	_Atomic bool *changed;
};

static void *look(void *arg)
{
	struct slice *s = arg;

	for (size_t i = 0; i < s->nr && !atomic_load_explicit(s->changed, memory_order_relaxed);
	     i++) {
		struct stamp is;
		struct stat st;

		if (lstat(s->paths[i], &st) == 0) {
			is = stamp_of(&st);
			if (memcmp(s->paths[i] - sizeof(is), &is, sizeof(is)) == 0)
				continue;
		}
		atomic_store_explicit(s->changed, true, memory_order_relaxed);
	}
	return NULL;
}

/* Every path of the memory; the buffer ends with a NUL of its own. -EUCLEAN: damaged. */
static int list_paths(const struct buf *b, uint64_t nr, char **paths)
{
	char *p = b->data + sizeof(struct header);
	const char *end = b->data + b->len;

	for (uint64_t i = 0; i < nr; i++) {
		if ((size_t)(end - p) <= sizeof(struct stamp))
			return -EUCLEAN;
		paths[i] = p + sizeof(struct stamp);
		p = paths[i] + strlen(paths[i]) + 1;
	}
	return p == end ? 0 : -EUCLEAN;
}

/* Is every name as it was? */
static bool is_unchanged(const struct buf *b, const struct header *h)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	size_t nr_threads = h->nr < 1000 || processors < 2 ? 1 : processors < 4 ? 2 : 4;
	auto_free char **paths = NULL;
	_Atomic bool changed = false;
	struct slice slices[4];
	pthread_t threads[4];
	size_t started = 0;

	if (h->nr > h->bytes / sizeof(struct stamp))
		return false;
	paths = calloc(h->nr, sizeof(*paths));
	if (!paths || list_paths(b, h->nr, paths))
		return false;
	for (size_t i = 0; i < nr_threads; i++) {
		size_t from = h->nr * i / nr_threads, to = h->nr * (i + 1) / nr_threads;

		slices[i] = (struct slice){paths + from, to - from, &changed};
	}
	while (started + 1 < nr_threads &&
	       pthread_create(&threads[started], NULL, look, &slices[started]) == 0)
		started++;
	for (size_t i = started; i < nr_threads; i++)
		(void)look(&slices[i]);
	for (size_t i = 0; i < started; i++)
		(void)pthread_join(threads[i], NULL);
	return !changed;
}

static bool recall(int memory_fd, const char *path, struct cas_digest *out)
{
	char name[CAS_HASH_HEX_SZ + 1];
	auto_buf struct buf b = {0};
	struct header h;

	memory_name(path, name);
	if (memory_fd < 0 || io_read_file(memory_fd, name, MEMORY_MAX, &b) || b.len < sizeof(h))
		return false;
	memcpy(&h, b.data, sizeof(h));
	if (memcmp(h.magic, MAGIC, sizeof(MAGIC)) != 0 || h.bytes != b.len - sizeof(h) ||
	    h.nr == 0 || !is_unchanged(&b, &h))
		return false;
	*out = h.digest;
	return true;
}

int run_identity(int memory_fd, const char *path, struct cas_digest *out, struct err *err)
{
	int ret;

	if (recall(memory_fd, path, out))
		return 0;
	ret = scan_all(memory_fd, path, out);
	return ret ? err_set(err, ret, "cannot look through %s: %s", path, strerror(-ret)) : 0;
}

int run_identity_shallow(const char *path, struct cas_digest *out, struct err *err)
{
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent **list = NULL;
	struct scan s = {0};
	int nr = fd < 0 ? 0 : scandirat(fd, ".", &list, no_dots, by_name);
	int ret = cas_hash_new(&s.hash);

	for (int i = 0; i < nr; i++) {
		struct stat st;

		if (ret == 0 && fstatat(fd, list[i]->d_name, &st, 0) == 0)
			ret = note(&s, list[i]->d_name, &st);
		free(list[i]);
	}
	free(list);
	if (ret == 0)
		ret = cas_hash_final(s.hash, out);
	scan_fini(&s);
	return ret ? err_set(err, ret, "cannot look through %s: %s", path, strerror(-ret)) : 0;
}
