/* tests/lib/fsstress_names.c - names that come, go and move while others look */
#include "tests/lib/fsstress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- C06: entries deleted while they are listed --- */

/* Names are "entry-NNNNN-" and 28 more bytes: 40 in all. */
#define NAME_FMT "entry-%05ld-aaaaaaaaaaaaaaaaaaaaaaaaaaaa"

struct listing {
	int dir_fd;
	long nr;
	unsigned char *seen; /* how often each number was listed */
	bool unlink;	     /* what was listed goes before the next batch */
	bool stat;	     /* and is looked at before */
};

static void listed(struct listing *l, const char *name)
{
	char want[64];
	struct stat st;
	long n = strncmp(name, "entry-", 6) == 0 ? atol(name + 6) : -1;

	(void)snprintf(want, sizeof(want), NAME_FMT, n);
	if (n < 0 || n >= l->nr || strcmp(name, want) != 0) {
		wrong("a listing names '%s'", name);
		return;
	}
	if (l->seen[n] < 255)
		l->seen[n]++;
	if (l->stat && fstatat(l->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		wrong("stat of the listed %s: %s", name, name_of(errno));
	if (!l->unlink)
		return;
	expect_call("unlink of what was listed", 0, unlinkat(l->dir_fd, name, 0));
	expect_call("stat of what was unlinked", ENOENT, fstatat(l->dir_fd, name, &st, 0));
}

/* One pass from where the descriptor stands to the end, 1 KiB at a time. */
static void list_pass(struct listing *l)
{
	_Alignas(uint64_t) char buf[1024];
	long got;

	while ((got = syscall(SYS_getdents64, l->dir_fd, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < got;) {
			const struct dirent64 *de = (const void *)(buf + at);

			if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
				listed(l, de->d_name);
			at += de->d_reclen;
		}
	}
	if (got < 0)
		wrong("getdents64: %s", name_of(errno));
}

/* Open @dir, made and filled with @nr names where it does not hold them already. */
static void listing_init(struct listing *l, const char *dir, long nr)
{
	struct stat st;
	char name[64];

	(void)mkdir(dir, 0755);
	*l = (struct listing){.dir_fd = must_open(dir, O_RDONLY | O_DIRECTORY), .nr = nr};
	l->seen = calloc((size_t)nr, 1);
	if (l->seen == NULL)
		abort();
	for (long i = 0; i < nr; i++) {
		(void)snprintf(name, sizeof(name), NAME_FMT, i);
		if (fstatat(l->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		int fd = openat(l->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

		expect_call("create", 0, fd);
		if (fd >= 0)
			(void)close(fd);
	}
}

/* Names of numbers @from, @from + @step...: each listed @least to @most times. */
static void expect_seen(const struct listing *l, long from, long step, int least, int most)
{
	for (long i = from; i < l->nr; i += step)
		if (l->seen[i] < least || l->seen[i] > most)
			wrong("number %ld was listed %d times", i, l->seen[i]);
}

static void listing_fini(struct listing *l)
{
	(void)close(l->dir_fd);
	free(l->seen);
}

/* Delete each batch before asking for the next: one pass, and the directory is empty. */
void check_list_delete(char **args)
{
	struct listing l;

	listing_init(&l, args[0], number(args[1]));
	l.unlink = true;
	l.stat = true;
	list_pass(&l);
	expect_seen(&l, 0, 1, 1, 1);
	expect_call("rmdir after one pass", 0, rmdir(args[0]));
	listing_fini(&l);
}

struct deleter {
	const struct listing *l;
	long from, step;
};

static void *delete_some(void *arg)
{
	const struct deleter *d = arg;
	struct stat st;
	char name[64];

	for (long i = d->from; i < d->l->nr; i += d->step) {
		(void)snprintf(name, sizeof(name), NAME_FMT, i);
		expect_call("unlink in a thread", 0, unlinkat(d->l->dir_fd, name, 0));
		expect_call("stat after", ENOENT, fstatat(d->l->dir_fd, name, &st, 0));
	}
	return NULL;
}

/* Three threads delete every other name: the ones that stay are listed exactly once. */
void check_list_threads(char **args)
{
	struct deleter deleters[3];
	pthread_t threads[3];
	struct listing l;

	listing_init(&l, args[0], number(args[1]));
	for (int i = 0; i < 3; i++) {
		deleters[i] = (struct deleter){.l = &l, .from = 2L * i, .step = 6};
		if (pthread_create(&threads[i], NULL, delete_some, &deleters[i]) != 0)
			abort();
	}
	list_pass(&l);
	for (int i = 0; i < 3; i++)
		(void)pthread_join(threads[i], NULL);
	expect_seen(&l, 0, 2, 0, 1);
	expect_seen(&l, 1, 2, 1, 1);

	memset(l.seen, 0, (size_t)l.nr);
	(void)lseek(l.dir_fd, 0, SEEK_SET);
	l.unlink = true;
	list_pass(&l);
	expect_seen(&l, 0, 2, 0, 0);
	expect_seen(&l, 1, 2, 1, 1);
	expect_call("rmdir", 0, rmdir(args[0]));
	listing_fini(&l);
}

/* --- C07: used under its new name at once --- */

static ino_t ino_of(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0) {
		wrong("lstat %s: %s", path, name_of(errno));
		return 0;
	}
	return st.st_ino;
}

static void expect_ino(const char *path, ino_t want)
{
	ino_t got = ino_of(path);

	if (got != want)
		wrong("%s is inode %ju, was %ju", path, (uintmax_t)got, (uintmax_t)want);
}

static void expect_gone(const char *path)
{
	struct stat st;

	expect_call(path, ENOENT, lstat(path, &st));
}

/* "mv a b" with a descriptor below it and a process in it. */
static void rename_parent(const char *top, int fd)
{
	ino_t dir = ino_of("a"), sub = ino_of("a/sub"), file = ino_of("a/sub/f");
	char want[PATH_MAX + 16], cwd[PATH_MAX];

	expect_call("chdir", 0, chdir("a/sub"));
	expect_call("rename a b", 0, rename("../../a", "../../b"));
	if (getcwd(cwd, sizeof(cwd)) == NULL)
		wrong("getcwd after a rename: %s", name_of(errno));
	(void)snprintf(want, sizeof(want), "%s/b/sub", top);
	if (strcmp(cwd, want) != 0)
		wrong("working directory is %s, want %s", cwd, want);
	expect_ino("f", file);
	must_fill("../../b/h", 3, 'h');
	must_fill("g", 5, 'g');
	expect_call("chdir", 0, chdir(top));
	expect_gone("a");
	expect_gone("a/sub/f");
	expect_ino("b", dir);
	expect_ino("b/sub", sub);
	expect_ino("b/sub/f", file);
	expect_filled("b/h", 3, 'h');
	expect_filled("b/sub/g", 5, 'g');
	expect_filled("b/sub/f", 100, 'f');
	if (pwrite(fd, "F", 1, 0) != 1 || pwrite(fd, "f", 1, 0) != 1 || ftruncate(fd, 90) < 0)
		wrong("write by the old descriptor: %s", name_of(errno));
	expect_filled("b/sub/f", 90, 'f');
}

/* "mv b/sub c": another parent. */
static void rename_away(const char *top)
{
	ino_t above = ino_of("."), sub = ino_of("b/sub"), file = ino_of("b/sub/f");

	expect_call("chdir", 0, chdir("b/sub"));
	expect_call("rename b/sub c", 0, rename("../../b/sub", "../../c"));
	expect_ino("..", above);
	must_fill("../late", 4, 'l');
	expect_call("chdir", 0, chdir(top));
	expect_filled("late", 4, 'l');
	expect_gone("b/sub");
	expect_ino("c", sub);
	expect_ino("c/f", file);
	expect_filled("c/g", 5, 'g');
	expect_call("unlink", 0, unlink("late"));
}

/* What a local disk refuses, and that nothing is lost by it. */
static void rename_refused(void)
{
	expect_call("mkdir", 0, mkdir("full", 0755));
	must_fill("full/kept", 6, 'k');
	must_fill("plain", 7, 'p');
	expect_call("over a directory that is not empty", ENOTEMPTY, rename("c", "full"));
	expect_call("a directory over a file", ENOTDIR, rename("c", "plain"));
	expect_call("a file over a directory", EISDIR, rename("plain", "c"));
	expect_call("below itself", EINVAL, rename("c", "c/inside"));
	expect_call("over its parent", ENOTEMPTY, rename("full/kept", "full"));
	expect_call("of what is missing", ENOENT, rename("missing", "plain"));
	expect_call("below a file", ENOTDIR, rename("c", "plain/x"));
	expect_call("into what is missing", ENOENT, rename("c", "missing/x"));
	expect_call("onto itself", 0, rename("plain", "plain"));
	expect_filled("full/kept", 6, 'k');
	expect_filled("plain", 7, 'p');
	expect_filled("c/f", 90, 'f');

	expect_call("unlink", 0, unlink("full/kept"));
	expect_call("over an empty directory", 0, rename("c", "full"));
	expect_gone("c");
	expect_filled("full/f", 90, 'f');
	must_fill("victim", 9, 'v');
	expect_call("a file over a file", 0, rename("plain", "victim"));
	expect_filled("victim", 7, 'p');
	expect_gone("plain");
}

/* Made, moved, removed: it does not come back. */
static void rename_then_remove(void)
{
	expect_call("mkdir", 0, mkdir("x", 0755));
	must_fill("x/y", 1, 'y');
	expect_call("rename x z", 0, rename("x", "z"));
	expect_call("rmdir while full", ENOTEMPTY, rmdir("z"));
	expect_call("unlink", 0, unlink("z/y"));
	expect_call("rmdir", 0, rmdir("z"));
	expect_gone("x");
	expect_gone("z");
	expect_gone("z/y");
	expect_call("mkdir", 0, mkdir("z", 0755));
	expect_gone("z/y");
	expect_call("rmdir", 0, rmdir("z"));
}

/* Leaves b/h, full/f (90 bytes), full/g and victim; all else is gone. */
void check_renamed(char **args)
{
	char top[PATH_MAX];
	int fd;

	if (chdir(args[0]) < 0 || getcwd(top, sizeof(top)) == NULL) {
		wrong("chdir %s: %s", args[0], name_of(errno));
		return;
	}
	expect_call("mkdir", 0, mkdir("a", 0755));
	expect_call("mkdir", 0, mkdir("a/sub", 0755));
	must_fill("a/sub/f", 100, 'f');
	fd = must_open("a/sub/f", O_RDWR);
	rename_parent(top, fd);
	rename_away(top);
	rename_refused();
	rename_then_remove();
	(void)close(fd);
}

/* --- C08: replaced by rename, never missing, never mixed --- */

/* A version is this many times its number. */
#define VERSION_WORDS 2048
#define VERSION_SIZE  (VERSION_WORDS * sizeof(uint64_t))

struct replace {
	const char *path;
	double until;
	int *stop; /* shared with the readers; a writer that died does not set it */
};

/* The version that @words hold, or UINT64_MAX when they are not of one. */
static uint64_t one_version(const uint64_t *words)
{
	for (size_t i = 1; i < VERSION_WORDS; i++)
		if (words[i] != words[0])
			return UINT64_MAX;
	return words[0];
}

static uint64_t read_version(int fd, const char *path)
{
	static uint64_t words[VERSION_WORDS + 1];
	size_t have = 0;
	ssize_t got;

	while ((got = pread(fd, (char *)words + have, sizeof(words) - have, (off_t)have)) > 0)
		have += (size_t)got;
	if (got < 0)
		wrong("read %s: %s", path, name_of(errno));
	else if (have != VERSION_SIZE)
		wrong("%s: %zu bytes", path, have);
	else if (one_version(words) == UINT64_MAX)
		wrong("%s holds two versions", path);
	else
		return words[0];
	return UINT64_MAX;
}

/* Odd readers keep a mapping and a descriptor of an old version and look again later. */
static void replace_reader(void *arg, int me)
{
	const struct replace *r = arg;
	uint64_t last = 0, kept = 0;
	uint64_t *map = NULL;
	int kept_fd = -1;

	for (long round = 0;
	     !__atomic_load_n(r->stop, __ATOMIC_RELAXED) && seconds() < r->until + 2; round++) {
		int fd = open(r->path, O_RDONLY | O_CLOEXEC);
		struct stat st;
		uint64_t got;

		if (fd < 0) {
			wrong("open of what always exists: %s", name_of(errno));
			continue;
		}
		expect_call("stat of what always exists", 0, stat(r->path, &st));
		if (st.st_size != VERSION_SIZE)
			wrong("stat says %jd bytes", (intmax_t)st.st_size);
		got = read_version(fd, r->path);
		if (got < last)
			wrong("version %ju after %ju", (uintmax_t)got, (uintmax_t)last);
		last = got;
		if (map && (read_version(kept_fd, "an old descriptor") != kept ||
			    one_version(map) != kept))
			wrong("an old descriptor or mapping changed");
		if (me % 2 == 0 || round % 64 != 0) {
			(void)close(fd);
			continue;
		}
		if (map) {
			(void)munmap(map, VERSION_SIZE);
			(void)close(kept_fd);
		}
		map = mmap(NULL, VERSION_SIZE, PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED) {
			wrong("mmap: %s", name_of(errno));
			return;
		}
		kept_fd = fd;
		kept = got;
	}
}

static void replace_writer(const struct replace *r)
{
	static uint64_t words[VERSION_WORDS];
	char tmp[PATH_MAX + 16];
	uint64_t version = 0;

	(void)snprintf(tmp, sizeof(tmp), "%s.tmp", r->path);
	/* However slow, readers have seen some go by. */
	while (seconds() < r->until || version < 20) {
		int fd = must_open(tmp, O_WRONLY | O_CREAT | O_TRUNC);

		version++;
		for (size_t i = 0; i < VERSION_WORDS; i++)
			words[i] = version;
		if (write(fd, words, sizeof(words)) != (ssize_t)sizeof(words))
			wrong("write: %s", name_of(errno));
		(void)close(fd);
		expect_call("rename", 0, rename(tmp, r->path));
	}
}

/* FILE may exist: 16 KiB of zeros are version 0. */
void check_replace(char **args)
{
	struct replace r = {.path = args[0]};
	pid_t writer;

	r.stop = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r.stop == MAP_FAILED)
		abort();
	if (access(args[0], F_OK) < 0)
		must_fill(args[0], VERSION_SIZE, 0);
	r.until = seconds() + duration(args[2]);
	writer = fork();
	if (writer == 0) {
		replace_writer(&r);
		__atomic_store_n(r.stop, 1, __ATOMIC_RELAXED);
		child_end();
	}
	in_processes((int)number(args[1]), replace_reader, &r);
	child_wait(writer);
}
