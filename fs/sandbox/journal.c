/* fs/sandbox/journal.c - files that a capture moved, so that a cut one can be undone */
#include "fs/sandbox/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "cas/checkout/checkout.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "fs/capture/capture.h"

/*
 * A line is "INO MODE UID GID MTIME PATH\0": NUL ends it, since a path may hold a newline. PATH
 * is that of the file in the upper, relative to the sandbox's directory, as the kernel
 * names it: below a renamed directory it is not the path that the action saw.
 */

#define JOURNAL_MAX (1 << 30)

struct fs_journal {
	struct lock lock; /* a line is written whole before the next begins */
	int fd;
	int dir_fd;
	char top[PATH_MAX]; /* path of dir_fd, as the kernel names it */

	/*
	 * The last directory that a file moved from: files come by directory, and nobody
	 * renames what is captured.
	 */
	struct stat last GUARDED_BY(lock);
	char dir[PATH_MAX] GUARDED_BY(lock); /* its path; empty: there is none */
};

static int fd_path(int fd, char out[PATH_MAX])
{
	char proc[64];
	ssize_t len;

	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	len = readlink(proc, out, PATH_MAX - 1);
	if (len < 0)
		return -errno;
	out[len] = '\0';
	return len == PATH_MAX - 1 ? -ENAMETOOLONG : 0;
}

int fs_journal_open(int dir_fd, struct fs_journal **out, struct err *err)
{
	struct fs_journal *j = calloc(1, sizeof(*j));
	int ret = 0;

	if (j == NULL)
		return err_set(err, -ENOMEM, "no memory for a journal");
	lock_init(&j->lock, LOCK_RANK_LEAF, "fs_journal.lock");
	j->dir_fd = dir_fd;
	j->fd = openat(dir_fd, FS_JOURNAL_NAME,
		       O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	ret = j->fd < 0 ? -errno : fd_path(dir_fd, j->top);
	/* Only fs_journal_blobs goes by it, and does more than it has to where there are no locks.
	 */
	if (ret == 0)
		(void)flock(j->fd, LOCK_EX);
	if (ret < 0) {
		fs_journal_close(j);
		return err_set(err, ret, "cannot open the journal of a capture: %s",
			       strerrordesc_np(-ret));
	}
	*out = j;
	return 0;
}

void fs_journal_close(struct fs_journal *j)
{
	if (j == NULL)
		return;
	if (j->fd >= 0)
		(void)close(j->fd);
	lock_fini(&j->lock);
	free(j);
}

/* The path of @fd in j->dir. */
static int find_dir_locked(struct fs_journal *j, int fd) REQUIRES(j->lock)
{
	struct stat st;
	int ret;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (j->dir[0] && st.st_dev == j->last.st_dev && st.st_ino == j->last.st_ino)
		return 0;
	ret = fd_path(fd, j->dir);
	if (ret < 0)
		j->dir[0] = '\0';
	j->last = st;
	return ret;
}

static int add_line(struct buf *lines, const char *dir, const struct fs_moving *file)
{
	const struct stat *st = file->st;
	int ret = buf_printf(
		lines, "%" PRIu64 " %o %u %u %" PRId64 " %s/%s", (uint64_t)st->st_ino,
		(unsigned)(st->st_mode & 07777), (unsigned)st->st_uid, (unsigned)st->st_gid,
		(int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec, dir, file->name);

	return ret < 0 ? ret : buf_append(lines, "", 1);
}

/* 1: they cannot be named. */
static int note_locked(struct fs_journal *j, int dir_fd, const struct fs_moving *files, size_t nr)
	REQUIRES(j->lock)
{
	auto_buf struct buf lines = {0};
	size_t top = strlen(j->top);
	int ret = find_dir_locked(j, dir_fd);

	/* Too deep for the kernel to name. */
	if (ret == -ENAMETOOLONG ||
	    (ret == 0 && (strncmp(j->dir, j->top, top) != 0 || j->dir[top] != '/')))
		return 1;
	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = add_line(&lines, j->dir + top + 1, &files[i]);
	return ret < 0 ? ret : io_write_full(j->fd, lines.data, lines.len);
}

int fs_journal_moving(void *ctx, int files_dir_fd, const struct fs_moving *files, size_t nr,
		      struct err *err)
{
	struct fs_journal *j = ctx;
	int ret;

	lock_take(&j->lock);
	ret = note_locked(j, files_dir_fd, files, nr);
	lock_drop(&j->lock);
	if (ret < 0)
		return err_set(err, ret, "cannot note that %s moves to the store: %s",
			       files[0].name, strerrordesc_np(-ret));
	return ret;
}

struct moved_file {
	uint64_t ino;
	unsigned mode;
	unsigned uid;
	unsigned gid;
	int64_t mtime_ns;
	const char *path;
	bool missing;
	bool dressed; /* still under its name, but may have a blob's mode and time */
	bool found;
	struct cas_digest digest;
};

static int line_parse(const char *line, struct moved_file *out)
{
	int at = 0;

	if (sscanf(line, "%" SCNu64 " %o %u %u %" SCNd64 " %n", &out->ino, &out->mode, &out->uid,
		   &out->gid, &out->mtime_ns, &at) != 5 ||
	    at == 0 || line[at] == '\0' || line[at] == '/' || strncmp(line + at, "../", 3) == 0 ||
	    strstr(line + at, "/../"))
		return -EUCLEAN;
	out->path = line + at;
	return 0;
}

struct undo {
	struct moved_file *files; /* sorted by inode while blobs are looked for */
	size_t nr;
};

static int by_ino(const void *a, const void *b)
{
	const struct moved_file *x = a;
	const struct moved_file *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int match_blob(void *ctx, const struct cas_store_blob *blob)
{
	struct undo *u = ctx;
	struct moved_file key = {.ino = blob->stamp.ino};
	struct moved_file *f = bsearch(&key, u->files, u->nr, sizeof(key), by_ino);

	if (f && f->missing && blob->stamp.mtime_ns >= 0) {
		f->found = true;
		f->digest = blob->digest;
	}
	return 0;
}

static int parse_all(const struct buf *text, int dir_fd, struct undo *u, bool *any)
{
	const char *end = text->data + text->len;
	size_t cap = 0;

	for (const char *p = text->data; p < end; p += strlen(p) + 1) {
		struct stat st;

		/* The last line may be cut: its file had not moved yet. */
		if (p + strlen(p) >= end)
			break;
		if (u->nr == cap) {
			struct moved_file *grown;

			cap = cap ? cap * 2 : 64;
			grown = realloc(u->files, cap * sizeof(*grown));
			if (grown == NULL)
				return -ENOMEM;
			u->files = grown;
		}
		memset(&u->files[u->nr], 0, sizeof(*u->files));
		if (line_parse(p, &u->files[u->nr]) < 0)
			return -EUCLEAN;
		u->files[u->nr].missing =
			fstatat(dir_fd, u->files[u->nr].path, &st, AT_SYMLINK_NOFOLLOW) < 0;
		u->files[u->nr].dressed = !u->files[u->nr].missing && S_ISREG(st.st_mode) &&
					  st.st_ino == u->files[u->nr].ino;
		*any |= u->files[u->nr].missing;
		u->nr++;
	}
	return 0;
}

/* The directory of @path, a name in it, beneath @dir_fd and through no symlink. */
static int open_parent(int dir_fd, const char *path, const char **name, struct err *err)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	long fd;

	(void)snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1,
		       slash ? path : ".");
	*name = slash ? slash + 1 : path;
	do
		fd = syscall(SYS_openat2, dir_fd, parent, &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR));
	return fd < 0 ? err_set(err, -errno, "cannot give %s back: %m", path) : (int)fd;
}

/* From where the crash left it: on its way, or the blob that it has become. */
static int fetch(struct cas_store *store, int fd, const char *name, const struct moved_file *f,
		 struct err *err)
{
	int ret;

	if (f->found)
		return cas_checkout_file(store, &f->digest, f->mode & S_IXUSR, fd, name, NULL, err);
	ret = cas_put_untake(store, f->ino, fd, name, err);
	if (ret == 0)
		return err_set(err, -EUCLEAN,
			       "output %s is neither in the sandbox nor in the store", f->path);
	return ret < 0 ? ret : 0;
}

static int give_back(struct cas_store *store, int dir_fd, const struct moved_file *f,
		     struct err *err)
{
	const struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT},
		{.tv_sec = f->mtime_ns / 1000000000, .tv_nsec = f->mtime_ns % 1000000000},
	};
	auto_close int fd = -1;
	const char *name;
	int ret;

	if (!f->missing && !f->dressed)
		return 0;
	fd = open_parent(dir_fd, f->path, &name, err);
	if (fd < 0)
		return fd;
	ret = f->missing ? fetch(store, fd, name, f, err) : 0;
	if (ret < 0)
		return ret;
	/* Owner before mode, which it would take setuid from. */
	if (fchownat(fd, name, f->uid, f->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fchmodat(fd, name, f->mode, 0) < 0 ||
	    utimensat(fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(err, -errno, "cannot restore owner, mode and time of %s: %m",
			       f->path);
	return 0;
}

/* The files of the journal, and what has become of each. @text holds their paths. */
static int load(struct cas_store *store, int dir_fd, struct buf *text, struct undo *u,
		struct err *err)
{
	bool any = false;
	int ret = io_read_file(dir_fd, FS_JOURNAL_NAME, JOURNAL_MAX, text);

	if (ret == 0 && text->len > 0)
		ret = parse_all(text, dir_fd, u, &any);
	if (ret < 0 && ret != -ENOENT)
		return err_set(err, ret, "cannot read the journal of a capture: %s",
			       strerrordesc_np(-ret));
	if (u->nr > 1)
		qsort(u->files, u->nr, sizeof(*u->files), by_ino);
	return any ? cas_store_walk(store, match_blob, NULL, u, err) : 0;
}

int fs_journal_undo(struct cas_store *store, int dir_fd, struct err *err)
{
	auto_buf struct buf text = {0};
	struct undo u = {0};
	int ret = load(store, dir_fd, &text, &u, err);

	for (size_t i = 0; ret == 0 && i < u.nr; i++)
		ret = give_back(store, dir_fd, &u.files[i], err);
	free(u.files);
	return ret < 0 ? ret : fs_journal_drop(dir_fd, err);
}

/* 1: nobody writes to it. */
static int is_left(int dir_fd)
{
	auto_close int fd = openat(dir_fd, FS_JOURNAL_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK ? 0 : 1;
}

int fs_journal_blobs(struct cas_store *store, int dir_fd,
		     int (*each)(void *ctx, const struct cas_digest *digest), void *ctx,
		     struct err *err)
{
	auto_buf struct buf text = {0};
	struct undo u = {0};
	int ret = is_left(dir_fd);

	if (ret < 0)
		return err_set(err, ret, "cannot open the journal of a capture: %s",
			       strerrordesc_np(-ret));
	if (ret == 1)
		ret = load(store, dir_fd, &text, &u, err);
	for (size_t i = 0; ret == 0 && i < u.nr; i++) {
		if (u.files[i].found)
			ret = each(ctx, &u.files[i].digest);
	}
	free(u.files);
	return ret;
}

int fs_journal_drop(int dir_fd, struct err *err)
{
	if (unlinkat(dir_fd, FS_JOURNAL_NAME, 0) < 0 && errno != ENOENT)
		return err_set(err, -errno, "cannot remove the journal of a capture: %m");
	return 0;
}
