/* tests/lib/latfs.c - a passthrough filesystem as slow as an NFS server, which counts */
#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/*
 * Each creation, link, removal, rename and mkdir takes the mutation's time, one at a time
 * in a directory: a client's kernel holds the directory's lock for the server's round
 * trip. Looking a name up takes the lookup's time, any number at once. Unnamed files are
 * not supported, as on NFS; nor, with --no-flags, is a rename that refuses to replace.
 *
 * MNT/.counts has a line "COUNT DIR" for each directory that was changed, since the mount
 * or the last truncation of that file. There are as many threads as requests wait.
 */

#define COUNTS	    "/.counts"
#define MAX_DIRS    2048
#define MAX_THREADS 512

struct dir {
	char *path;
	unsigned long count; /* table_lock */
	pthread_mutex_t lock;
};

static struct {
	int fd; /* the directory shown */
	long mutation_us;
	long lookup_us;
	bool no_flags;
	pthread_mutex_t table_lock;
	struct dir dirs[MAX_DIRS];
	int nr_dirs;
} lat = {.table_lock = PTHREAD_MUTEX_INITIALIZER};

static void nap(long us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

	if (us > 0)
		(void)nanosleep(&t, NULL);
}

static const char *below(const char *path)
{
	return path[1] == '\0' ? "." : path + 1;
}

/* What was unlinked while it was open has no path. */
static bool is_counts(const char *path)
{
	return path && strcmp(path, COUNTS) == 0;
}

/* The entry of @path's parent; the last one for all when there are too many. */
static struct dir *dir_of(const char *path)
{
	size_t len = (size_t)(strrchr(path, '/') - path);
	struct dir *d = NULL;

	(void)pthread_mutex_lock(&lat.table_lock);
	for (int i = 0; i < lat.nr_dirs && d == NULL; i++) {
		if (strlen(lat.dirs[i].path) == len && memcmp(lat.dirs[i].path, path, len) == 0)
			d = &lat.dirs[i];
	}
	if (d == NULL && lat.nr_dirs < MAX_DIRS) {
		d = &lat.dirs[lat.nr_dirs];
		d->path = strndup(path, len);
		if (d->path == NULL)
			abort();
		(void)pthread_mutex_init(&d->lock, NULL);
		lat.nr_dirs++;
	}
	if (d == NULL)
		d = &lat.dirs[MAX_DIRS - 1];
	(void)pthread_mutex_unlock(&lat.table_lock);
	return d;
}

/* Before a change below @path's parent: wait for those at work there, then as long again. */
static struct dir *enter(const char *path)
{
	struct dir *d = dir_of(path);

	(void)pthread_mutex_lock(&d->lock);
	nap(lat.mutation_us);
	return d;
}

static int leave(struct dir *d, int ret)
{
	int code = ret < 0 ? -errno : 0;

	(void)pthread_mutex_lock(&lat.table_lock);
	d->count++;
	(void)pthread_mutex_unlock(&lat.table_lock);
	(void)pthread_mutex_unlock(&d->lock);
	return code;
}

static int result(long ret)
{
	return ret < 0 ? -errno : (int)ret;
}

static int lat_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	if (is_counts(path)) {
		memset(st, 0, sizeof(*st));
		st->st_mode = S_IFREG | 0644;
		st->st_nlink = 1;
		return 0;
	}
	if (fi)
		return result(fstat((int)fi->fh, st));
	if (path == NULL)
		return -ENOENT;
	nap(lat.lookup_us);
	return result(fstatat(lat.fd, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int lat_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
		       struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	int fd = openat(lat.fd, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	(void)off;
	(void)fi;
	(void)flags;
	if (dir == NULL)
		return -errno;
	while ((de = readdir(dir)) != NULL)
		(void)fill(buf, de->d_name, NULL, 0, 0);
	(void)closedir(dir);
	return 0;
}

static void forget_counts(void)
{
	(void)pthread_mutex_lock(&lat.table_lock);
	for (int i = 0; i < lat.nr_dirs; i++)
		lat.dirs[i].count = 0;
	(void)pthread_mutex_unlock(&lat.table_lock);
}

static int lat_open(const char *path, struct fuse_file_info *fi)
{
	int fd;

	if (is_counts(path)) {
		fi->direct_io = 1;
		if (fi->flags & O_TRUNC)
			forget_counts();
		return 0;
	}
	fd = openat(lat.fd, below(path), (fi->flags & ~O_CREAT) | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int lat_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	struct dir *d = enter(path);
	int fd = openat(lat.fd, below(path), fi->flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode);

	if (fd >= 0)
		fi->fh = (uint64_t)fd;
	return leave(d, fd);
}

/* All counts as text; the caller frees it. */
static char *counts_text(size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	if (f == NULL)
		abort();
	(void)pthread_mutex_lock(&lat.table_lock);
	for (int i = 0; i < lat.nr_dirs; i++) {
		if (lat.dirs[i].count > 0)
			(void)fprintf(f, "%lu %s/\n", lat.dirs[i].count, lat.dirs[i].path);
	}
	(void)pthread_mutex_unlock(&lat.table_lock);
	(void)fclose(f);
	return text;
}

static int lat_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	char *text;
	size_t len;

	if (!is_counts(path))
		return result(pread((int)fi->fh, buf, size, off));
	text = counts_text(&len);
	len = (size_t)off < len ? len - (size_t)off : 0;
	if (len > size)
		len = size;
	memcpy(buf, text + off, len);
	free(text);
	return (int)len;
}

static int lat_write(const char *path, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	if (is_counts(path))
		return (int)size;
	return result(pwrite((int)fi->fh, buf, size, off));
}

static int lat_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	int fd;
	int ret;

	if (is_counts(path)) {
		forget_counts();
		return 0;
	}
	if (fi)
		return result(ftruncate((int)fi->fh, size));
	if (path == NULL)
		return -ENOENT;
	fd = openat(lat.fd, below(path), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = result(ftruncate(fd, size));
	(void)close(fd);
	return ret;
}

static int lat_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
	(void)path;
	return result(data_only ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static int lat_release(const char *path, struct fuse_file_info *fi)
{
	if (!is_counts(path))
		(void)close((int)fi->fh);
	return 0;
}

static int lat_unlink(const char *path)
{
	struct dir *d = enter(path);

	return leave(d, unlinkat(lat.fd, below(path), 0));
}

static int lat_rmdir(const char *path)
{
	struct dir *d = enter(path);

	return leave(d, unlinkat(lat.fd, below(path), AT_REMOVEDIR));
}

static int lat_mkdir(const char *path, mode_t mode)
{
	struct dir *d = enter(path);

	return leave(d, mkdirat(lat.fd, below(path), mode));
}

static int lat_link(const char *from, const char *to)
{
	struct dir *d = enter(to);

	return leave(d, linkat(lat.fd, below(from), lat.fd, below(to), 0));
}

static int lat_rename(const char *from, const char *to, unsigned flags)
{
	struct dir *d;

	if (flags && lat.no_flags)
		return -EINVAL;
	d = enter(to);
	return leave(d, renameat2(lat.fd, below(from), lat.fd, below(to), flags));
}

static int lat_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	return result(fi ? fchmod((int)fi->fh, mode) : fchmodat(lat.fd, below(path), mode, 0));
}

static int lat_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *fi)
{
	return result(fi ? fchown((int)fi->fh, uid, gid)
			 : fchownat(lat.fd, below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int lat_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
	return result(fi ? futimens((int)fi->fh, times)
			 : utimensat(lat.fd, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int lat_statfs(const char *path, struct statvfs *out)
{
	(void)path;
	return result(fstatvfs(lat.fd, out));
}

static void *lat_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	/* The kernel sends no more than this many at once otherwise: 12. */
	conn->max_background = MAX_THREADS;
	conn->congestion_threshold = MAX_THREADS;
	cfg->use_ino = 1;
	cfg->hard_remove = 1;
	cfg->entry_timeout = 3;
	cfg->attr_timeout = 3;
	cfg->negative_timeout = 0;
	return NULL;
}

static const struct fuse_operations operations = {
	.getattr = lat_getattr,
	.readdir = lat_readdir,
	.open = lat_open,
	.create = lat_create,
	.read = lat_read,
	.write = lat_write,
	.truncate = lat_truncate,
	.fsync = lat_fsync,
	.release = lat_release,
	.unlink = lat_unlink,
	.rmdir = lat_rmdir,
	.mkdir = lat_mkdir,
	.link = lat_link,
	.rename = lat_rename,
	.chmod = lat_chmod,
	.chown = lat_chown,
	.utimens = lat_utimens,
	.statfs = lat_statfs,
	.init = lat_init,
};

/* Serve until it is unmounted or a signal comes. */
static int serve(const char *mountpoint)
{
	char *argv[] = {(char[]){"latfs"}, (char[]){"-ofsname=latfs"}, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	struct fuse_loop_config *loop = fuse_loop_cfg_create();
	struct fuse *fuse = fuse_new(&args, &operations, sizeof(operations), NULL);
	int ret = -1;

	if (fuse && loop && fuse_mount(fuse, mountpoint) == 0) {
		fuse_loop_cfg_set_max_threads(loop, MAX_THREADS);
		fuse_loop_cfg_set_idle_threads(loop, MAX_THREADS);
		(void)fuse_set_signal_handlers(fuse_get_session(fuse));
		ret = fuse_loop_mt(fuse, loop);
		fuse_unmount(fuse);
	}
	if (fuse)
		fuse_destroy(fuse);
	if (loop)
		fuse_loop_cfg_destroy(loop);
	return ret;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"mutation-us", required_argument, NULL, 'm'},
						{"lookup-us", required_argument, NULL, 'l'},
						{"no-flags", no_argument, NULL, 'n'},
						{NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'm')
			lat.mutation_us = strtol(optarg, NULL, 10);
		else if (c == 'l')
			lat.lookup_us = strtol(optarg, NULL, 10);
		else if (c == 'n')
			lat.no_flags = true;
		else
			return 2;
	}
	if (argc - optind != 2) {
		(void)fprintf(stderr, "usage: latfs [--mutation-us N] [--lookup-us N] [--no-flags] "
				      "DIR MNT\n");
		return 2;
	}
	lat.fd = open(argv[optind], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lat.fd < 0) {
		(void)fprintf(stderr, "latfs: cannot open %s: %s\n", argv[optind], strerror(errno));
		return 1;
	}
	(void)umask(0);
	return serve(argv[optind + 1]) < 0;
}
