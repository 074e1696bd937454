/* tests/lib/fscheck.c - checks made through a mount, exact errno and stat fields */

/*
 * For shell cases: fscheck CHECK ARGUMENT... exits 0 when it holds, prints what it found
 * and exits 1 when it does not, 2 on wrong usage. It uses nothing of the product.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

static int failures;

__attribute__((format(printf, 1, 2))) static void wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("fscheck: ", stdout);
	(void)vprintf(fmt, ap);
	(void)putchar('\n');
	va_end(ap);
	failures++;
}

static const char *errno_name(int err)
{
	const char *name = err ? strerrorname_np(err) : "OK";

	return name ? name : "?";
}

/* --- stat PATH key=value... --- */

static char type_char(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return 'f';
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	default:
		return '?';
	}
}

static bool stat_field(const struct stat *st, const char *key, char *out, size_t sz)
{
	const struct {
		const char *key;
		long long value;
		const char *fmt;
	} fields[] = {
		{"mode", st->st_mode & 07777, "%04llo"},
		{"nlink", (long long)st->st_nlink, "%lld"},
		{"size", st->st_size, "%lld"},
		{"blocks", st->st_blocks, "%lld"},
		{"uid", st->st_uid, "%lld"},
		{"gid", st->st_gid, "%lld"},
		{"mtime", st->st_mtim.tv_sec, "%lld"},
		{"mtime-ns", st->st_mtim.tv_nsec, "%lld"},
		{"ctime", st->st_ctim.tv_sec, "%lld"},
		{"atime", st->st_atim.tv_sec, "%lld"},
	};

	if (strcmp(key, "type") == 0) {
		(void)snprintf(out, sz, "%c", type_char(st->st_mode));
		return true;
	}
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (strcmp(key, fields[i].key) != 0)
			continue;
		if (fields[i].fmt[1] == '0')
			(void)snprintf(out, sz, "%04llo", (unsigned long long)fields[i].value);
		else
			(void)snprintf(out, sz, "%lld", fields[i].value);
		return true;
	}
	return false;
}

static void check_stat(char **args, int nr)
{
	struct stat st;

	if (lstat(args[0], &st) < 0) {
		wrong("lstat %s: %s", args[0], errno_name(errno));
		return;
	}
	for (int i = 1; i < nr; i++) {
		char *want = strchr(args[i], '=');
		char got[32];

		if (want == NULL) {
			wrong("stat: '%s' is not key=value", args[i]);
			continue;
		}
		*want++ = '\0';
		if (!stat_field(&st, args[i], got, sizeof(got)))
			wrong("stat: no field '%s'", args[i]);
		else if (strcmp(got, want) != 0)
			wrong("%s of %s is %s, want %s", args[i], args[0], got, want);
	}
}

/* --- call ERRNO|OK NAME PATH [PATH]: one attempt, its exact outcome --- */

#define RESULT(expr) ((expr) < 0 ? errno : 0)

static int try_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0644);
	int err = fd < 0 ? errno : 0;

	if (fd >= 0)
		(void)close(fd);
	return err;
}

static int try_write(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
	int err = fd < 0 ? errno : 0;

	if (fd < 0)
		return err;
	if (write(fd, "changed", 7) != 7)
		err = errno;
	(void)close(fd);
	return err;
}

/* A store through a shared mapping of a descriptor opened with @flags. */
static int try_map(const char *path, int flags, bool protect_later)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
	int err = fd < 0 ? errno : 0;
	char *map;

	if (fd < 0)
		return err;
	map = mmap(NULL, 1, protect_later ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		err = errno;
	else if (protect_later && mprotect(map, 1, PROT_READ | PROT_WRITE) < 0)
		err = errno;
	else
		*map = '!';
	if (map != MAP_FAILED)
		(void)munmap(map, 1);
	(void)close(fd);
	return err;
}

/* Open for reading, then again for writing through /proc. */
static int try_reopen(const char *path)
{
	char proc[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? errno : 0;

	if (fd < 0)
		return err;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	err = try_write(proc, O_RDWR);
	(void)close(fd);
	return err;
}

static int try_punch(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int err = fd < 0 ? errno : 0;

	if (fd < 0)
		return err;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1) < 0)
		err = errno;
	(void)close(fd);
	return err;
}

static int try_times(const char *path)
{
	const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

	return RESULT(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW));
}

static int try_opendir(const char *path)
{
	DIR *dir = opendir(path);
	int err = dir ? 0 : errno;

	if (dir && readdir(dir) == NULL)
		err = errno;
	if (dir)
		(void)closedir(dir);
	return err;
}

static int try_read(const char *path)
{
	char byte;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int err = fd < 0 ? errno : 0;

	if (fd < 0)
		return err;
	if (read(fd, &byte, 1) < 0)
		err = errno;
	(void)close(fd);
	return err;
}

static int try_map_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? errno : 0;
	struct stat st = {.st_size = 0};
	void *map;

	if (fd < 0)
		return err;
	(void)fstat(fd, &st);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		err = errno;
	else
		(void)munmap(map, (size_t)st.st_size);
	(void)close(fd);
	return err;
}

/* A file without a name in @dir, given the name @to. */
static int try_tmpfile(const char *dir, const char *to)
{
	char proc[64];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
	int err = fd < 0 ? errno : 0;

	if (fd < 0)
		return err;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, proc, AT_FDCWD, to, AT_SYMLINK_FOLLOW) < 0)
		err = errno;
	(void)close(fd);
	return err;
}

/* The outcome of one named call: 0, an errno, or -1 when there is no such call. */
static int outcome(const char *name, const char *a, const char *b)
{
	struct stat st;
	char data[256];

#define CALL(text, expr)                                                                           \
	if (strcmp(name, text) == 0)                                                               \
	return expr
	CALL("read", try_read(a));
	CALL("write", try_write(a, O_WRONLY));
	CALL("append", try_write(a, O_WRONLY | O_APPEND));
	CALL("trunc-open", try_open(a, O_WRONLY | O_TRUNC));
	CALL("rdwr", try_write(a, O_RDWR));
	CALL("reopen", try_reopen(a));
	CALL("map-shared", try_map(a, O_RDWR, false));
	CALL("map-readonly", try_map(a, O_RDONLY, false));
	CALL("map-protect", try_map(a, O_RDONLY, true));
	CALL("map-read", try_map_read(a));
	CALL("punch", try_punch(a));
	CALL("truncate", RESULT(truncate(a, 1)));
	CALL("chmod", RESULT(chmod(a, 0600)));
	CALL("chown", RESULT(lchown(a, 0, 0)));
	CALL("times", try_times(a));
	CALL("unlink", RESULT(unlink(a)));
	CALL("rmdir", RESULT(rmdir(a)));
	CALL("mkdir", RESULT(mkdir(a, 0755)));
	CALL("create", try_open(a, O_WRONLY | O_CREAT | O_EXCL));
	CALL("mkfifo", RESULT(mkfifo(a, 0644)));
	CALL("opendir", try_opendir(a));
	CALL("stat", RESULT(fstatat(AT_FDCWD, a, &st, AT_SYMLINK_NOFOLLOW)));
	CALL("exec-access", RESULT(access(a, X_OK)));
	CALL("setxattr", RESULT(lsetxattr(a, "user.casbox-test", "v", 1, 0)));
	CALL("removexattr", RESULT(lremovexattr(a, "user.casbox-test")));
	CALL("getxattr", RESULT(lgetxattr(a, "user.casbox-test", data, sizeof(data))));
	CALL("getcap", RESULT(lgetxattr(a, "security.capability", data, sizeof(data))));
	CALL("listxattr", RESULT(llistxattr(a, data, sizeof(data))));
	CALL("rename", b ? RESULT(rename(a, b)) : -1);
	CALL("exchange", b ? RESULT(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE)) : -1);
	CALL("tmpfile", b ? try_tmpfile(a, b) : -1);
	CALL("link", b ? RESULT(link(a, b)) : -1);
	CALL("symlink", b ? RESULT(symlink(a, b)) : -1);
#undef CALL
	return -1;
}

static void check_call(char **args, int nr)
{
	const char *got;
	int err = outcome(args[1], args[2], nr > 3 ? args[3] : NULL);

	if (err < 0) {
		wrong("no call '%s' with these arguments", args[1]);
		return;
	}
	got = errno_name(err);
	for (const char *want = args[0]; want; want = strchr(want, '|')) {
		size_t len;

		want += *want == '|';
		len = strcspn(want, "|");
		if (strlen(got) == len && strncmp(want, got, len) == 0)
			return;
	}
	wrong("%s %s: %s, want %s", args[1], args[2], got, args[0]);
}

/* --- attack PATH: everything that could change a file; one "NAME OUTCOME" a line --- */

static const char *const attacks[] = {
	"write", "append", "rdwr",  "reopen", "map-shared", "map-readonly", "map-protect",
	"punch", "chmod",  "chown", "times",  "setxattr",   "truncate",	    "trunc-open",
};

static void check_attack(char **args, int nr)
{
	(void)nr;
	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
		printf("%s %s\n", attacks[i], errno_name(outcome(attacks[i], args[0], NULL)));
}

/* refuses PATH [ERRNO|...]: every attack fails, with one of these when given. */
static void check_refuses(char **args, int nr)
{
	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		int err = outcome(attacks[i], args[0], NULL);
		char *call[] = {nr > 1 ? args[1] : NULL, (char *)attacks[i], args[0]};

		if (err == 0)
			wrong("%s %s succeeded", attacks[i], args[0]);
		else if (nr > 1 && strncmp(attacks[i], "map-", 4) != 0)
			check_call(call, 3);
	}
}

/* --- dirents DIR: what a listing says of each entry is what lstat says --- */

struct raw_dirent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

struct names {
	char **v;
	size_t nr;
};

static void names_add(struct names *names, const char *name)
{
	names->v = realloc(names->v, (names->nr + 1) * sizeof(char *));
	if (names->v == NULL || (names->v[names->nr++] = strdup(name)) == NULL)
		abort();
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_finish(struct names *names, const char *dir)
{
	if (names->nr)
		qsort(names->v, names->nr, sizeof(char *), compare_names);
	for (size_t i = 1; i < names->nr; i++)
		if (strcmp(names->v[i - 1], names->v[i]) == 0)
			wrong("%s lists '%s' twice", dir, names->v[i]);
}

static void check_dirent(int dir_fd, dev_t dev, const char *dir, const struct raw_dirent *de)
{
	struct stat st;

	if (fstatat(dir_fd, de->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		wrong("%s lists '%s': %s", dir, de->name, errno_name(errno));
		return;
	}
	/* ".." of a mount's root is another filesystem's, and so is a mount point. */
	if (strcmp(de->name, "..") == 0 || st.st_dev != dev)
		return;
	if (de->ino != st.st_ino)
		wrong("%s/%s: d_ino %" PRIu64 ", st_ino %ju", dir, de->name, de->ino,
		      (uintmax_t)st.st_ino);
	if (de->type != IFTODT(st.st_mode))
		wrong("%s/%s: d_type %u, mode says %u", dir, de->name, de->type,
		      IFTODT(st.st_mode));
}

/* One pass with a buffer of @size bytes, from the start. */
static void list_raw(int fd, const char *dir, size_t size, struct names *names)
{
	_Alignas(uint64_t) char buf[32768];
	struct stat st = {.st_dev = 0};
	long got;

	(void)fstat(fd, &st);
	(void)lseek(fd, 0, SEEK_SET);
	while ((got = syscall(SYS_getdents64, fd, buf, size)) > 0) {
		for (long at = 0; at < got;) {
			const struct raw_dirent *de = (const void *)(buf + at);

			check_dirent(fd, st.st_dev, dir, de);
			names_add(names, de->name);
			at += de->reclen;
		}
	}
	if (got < 0)
		wrong("getdents64 %s: %s", dir, errno_name(errno));
	names_finish(names, dir);
}

static void check_dirents(char **args, int nr)
{
	static const size_t sizes[] = {32768, 1024, 300};
	struct names all[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
	int fd = open(args[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)nr;
	if (fd < 0) {
		wrong("open %s: %s", args[0], errno_name(errno));
		return;
	}
	for (int i = 0; i < 3; i++) {
		list_raw(fd, args[0], sizes[i], &all[i]);
		if (all[i].nr != all[0].nr)
			wrong("%s: %zu entries with a buffer of %zu bytes, %zu with %zu", args[0],
			      all[i].nr, sizes[i], all[0].nr, sizes[0]);
	}
	(void)close(fd);
}

/* --- inos DIR: "INO PATH" of every entry; no number is 0 or 1 or used twice --- */

static struct ino_entry {
	uint64_t ino;
	char *path;
} * inos;
static size_t nr_inos;
static dev_t inos_dev;

static int inos_visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)type;
	if (ftw->level == 0)
		inos_dev = st->st_dev;
	if (st->st_dev != inos_dev)
		wrong("%s: another st_dev than the top", path);
	if (st->st_ino < 2)
		wrong("%s: st_ino is %ju", path, (uintmax_t)st->st_ino);
	inos = realloc(inos, (nr_inos + 1) * sizeof(*inos));
	if (inos == NULL)
		abort();
	inos[nr_inos].ino = st->st_ino;
	inos[nr_inos++].path = strdup(path);
	return 0;
}

static int compare_inos(const void *a, const void *b)
{
	const struct ino_entry *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static void check_inos(char **args, int nr)
{
	(void)nr;
	if (chdir(args[0]) < 0 || nftw(".", inos_visit, 64, FTW_PHYS) != 0) {
		wrong("walk %s: %s", args[0], errno_name(errno));
		return;
	}
	qsort(inos, nr_inos, sizeof(*inos), compare_inos);
	for (size_t i = 0; i < nr_inos; i++) {
		if (i && inos[i - 1].ino == inos[i].ino)
			wrong("%s and %s share st_ino", inos[i - 1].path, inos[i].path);
		printf("%" PRIu64 " %s\n", inos[i].ino, inos[i].path);
	}
}

/* --- single facts --- */

static void check_readlink(char **args, int nr)
{
	char text[PATH_MAX + 1];
	ssize_t got = readlink(args[0], text, sizeof(text) - 1);

	(void)nr;
	if (got < 0) {
		wrong("readlink %s: %s", args[0], errno_name(errno));
		return;
	}
	text[got] = '\0';
	if (strcmp(text, args[1]) != 0)
		wrong("%s points to '%s', want '%s'", args[0], text, args[1]);
}

/* The last byte, through a mapping, after a listing of the parent (readdirplus). */
static void check_mmap_last(char **args, int nr)
{
	int fd = open(args[0], O_RDONLY | O_CLOEXEC);
	struct stat st = {.st_size = 0};
	const unsigned char *map;
	int want = atoi(args[1]);

	(void)nr;
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
		wrong("%s: cannot be opened or is empty", args[0]);
		return;
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		wrong("mmap %s: %s", args[0], errno_name(errno));
	else if (map[st.st_size - 1] != want)
		wrong("last byte of %s is %d, want %d", args[0], map[st.st_size - 1], want);
	(void)close(fd);
}

/* --- told WORD...: the words and the environment as they came, each with its NUL --- */

static void print_told(char **args, int nr)
{
	extern char **environ;

	for (int i = 0; i < nr; i++)
		(void)fwrite(args[i], 1, strlen(args[i]) + 1, stdout);
	(void)fwrite("--env--", 1, sizeof("--env--"), stdout);
	for (char **v = environ; *v; v++)
		(void)fwrite(*v, 1, strlen(*v) + 1, stdout);
}

static const struct {
	const char *name;
	int min, max;
	void (*run)(char **args, int nr);
	const char *usage;
} checks[] = {
	{"stat", 1, 32, check_stat, "PATH key=value..."},
	{"call", 3, 4, check_call, "ERRNO[|ERRNO] CALL PATH [PATH]"},
	{"attack", 1, 1, check_attack, "PATH"},
	{"refuses", 1, 2, check_refuses, "PATH [ERRNO[|ERRNO]]"},
	{"told", 0, INT_MAX, print_told, "WORD..."},
	{"dirents", 1, 1, check_dirents, "DIR"},
	{"inos", 1, 1, check_inos, "DIR"},
	{"readlink", 2, 2, check_readlink, "PATH TEXT"},
	{"mmap-last", 2, 2, check_mmap_last, "PATH BYTE"},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(checks) / sizeof(checks[0]); i++) {
		if (strcmp(argv[1], checks[i].name) != 0)
			continue;
		if (argc - 2 < checks[i].min || argc - 2 > checks[i].max)
			break;
		checks[i].run(argv + 2, argc - 2);
		return failures != 0;
	}
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		(void)fprintf(stderr, "usage: fscheck %s %s\n", checks[i].name, checks[i].usage);
	return 2;
}
