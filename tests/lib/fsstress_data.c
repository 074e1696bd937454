/* tests/lib/fsstress_data.c - bytes through several descriptors and mappings */
#include "tests/lib/fsstress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PAGE 4096

static void in_dir(const char *dir)
{
	if (chdir(dir) < 0) {
		wrong("chdir %s: %s", dir, name_of(errno));
		exit(1);
	}
}

/* --- C09: the last byte of a mapping is there, whatever was done to the file --- */

static sigjmp_buf no_page;

static void on_sigbus(int sig)
{
	(void)sig;
	siglongjmp(no_page, 1);
}

static void list_parent(const char *path)
{
	char dir[PATH_MAX];
	struct dirent *de;
	struct stat st;
	DIR *d;

	(void)snprintf(dir, sizeof(dir), "%s", path);
	if (strrchr(dir, '/'))
		*strrchr(dir, '/') = '\0';
	else
		(void)strcpy(dir, ".");
	d = opendir(dir);
	if (d == NULL) {
		wrong("opendir %s: %s", dir, name_of(errno));
		return;
	}
	while ((de = readdir(d)) != NULL)
		if (fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			wrong("%s/%s: %s", dir, de->d_name, name_of(errno));
	(void)closedir(d);
}

/* Map what @fd has, list the directory, touch the last byte. */
static void touch_last(const char *what, const char *path, int fd, off_t size, int want)
{
	const volatile unsigned char *map;
	struct stat st = {.st_size = -1};

	expect_call("fstat", 0, fstat(fd, &st));
	if (st.st_size != size)
		wrong("%s: size %jd, want %jd", what, (intmax_t)st.st_size, (intmax_t)size);
	map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		wrong("%s: mmap: %s", what, name_of(errno));
		return;
	}
	list_parent(path);
	(void)signal(SIGBUS, on_sigbus);
	if (sigsetjmp(no_page, 1))
		wrong("%s: SIGBUS", what);
	else if (map[size - 1] != want)
		wrong("%s: last byte %d, want %d", what, map[size - 1], want);
	expect_call("fstat", 0, fstat(fd, &st));
	if (st.st_size != size)
		wrong("%s: size went to %jd", what, (intmax_t)st.st_size);
	(void)munmap((void *)(uintptr_t)map, (size_t)size);
}

static void between_chmod(int fd)
{
	expect_call("fchmod", 0, fchmod(fd, 0640));
}

static void between_times(int fd)
{
	expect_call("futimens", 0, futimens(fd, NULL));
}

static void between_xattr(int fd)
{
	/* Not every filesystem has them; what matters is what the attempt does. */
	(void)fsetxattr(fd, "user.casbox-test", "v", 1, 0);
}

static void between_link(int fd)
{
	(void)fd;
	expect_call("link", 0, link("mapped", "linked"));
	expect_call("unlink", 0, unlink("linked"));
}

static void between_rename(int fd)
{
	(void)fd;
	expect_call("rename", 0, rename("mapped", "moved"));
	expect_call("rename", 0, rename("moved", "mapped"));
}

static void between_unlink(int fd)
{
	(void)fd;
	expect_call("unlink", 0, unlink("mapped"));
}

void check_mapped_output(char **args)
{
	static const struct {
		const char *what;
		void (*step)(int fd);
	} between[] = {
		{"after fchmod", between_chmod},   {"after futimens", between_times},
		{"after setxattr", between_xattr}, {"after link", between_link},
		{"after rename", between_rename},  {"after unlink", between_unlink},
	};
	static const off_t sizes[] = {65536, 10, 3 * PAGE + 1};
	char block[65536];

	in_dir(args[0]);
	memset(block, 'm', sizeof(block));
	for (size_t i = 0; i < sizeof(between) / sizeof(between[0]); i++) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			int fd = must_open("mapped", O_RDWR | O_CREAT | O_TRUNC);

			if (write(fd, block, (size_t)sizes[s]) != sizes[s])
				wrong("write: %s", name_of(errno));
			between[i].step(fd);
			touch_last(between[i].what, "mapped", fd, sizes[s], 'm');
			(void)close(fd);
		}
	}
	(void)unlink("mapped");
}

static void *list_again(void *arg)
{
	for (int i = 0; i < 200; i++)
		list_parent(arg);
	return NULL;
}

/* Every byte of FILE is the same; a thread lists the directory meanwhile. */
void check_mapped_input(char **args)
{
	pthread_t thread;
	struct stat st;
	char byte;

	if (pthread_create(&thread, NULL, list_again, args[0]) != 0)
		abort();
	for (int i = 0; i < 50; i++) {
		int fd = must_open(args[0], O_RDONLY);

		if (fstat(fd, &st) < 0 || pread(fd, &byte, 1, 0) != 1)
			wrong("read %s: %s", args[0], name_of(errno));
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		touch_last("input", args[0], fd, st.st_size, (unsigned char)byte);
		(void)close(fd);
	}
	(void)pthread_join(thread, NULL);
}

/* --- C26: what is written after the first of several closes --- */

static void write_bytes(int fd, size_t size, int byte)
{
	char *data = malloc(size);

	if (data == NULL)
		abort();
	memset(data, byte, size);
	if (write(fd, data, size) != (ssize_t)size)
		wrong("write: %s", name_of(errno));
	free(data);
}

static void life_fork(void)
{
	int fd = must_open("forked", O_WRONLY | O_CREAT | O_TRUNC);
	pid_t pid = fork();

	if (pid == 0) {
		write_bytes(fd, 1000, 'c');
		expect_call("close in the child", 0, close(fd));
		child_end();
	}
	child_wait(pid);
	write_bytes(fd, 1 << 20, 'p');
	expect_call("close", 0, close(fd));
}

static void life_dup(void)
{
	int fd = must_open("dupped", O_RDWR | O_CREAT | O_TRUNC);
	int again = dup(fd);

	write_bytes(fd, 10, 'a');
	expect_call("close", 0, close(fd));
	if (pwrite(again, "bbbb", 4, 20000) != 4)
		wrong("pwrite after a close: %s", name_of(errno));
	expect_call("close", 0, close(again));
}

/* Through a mapping whose descriptor is closed; the mapping ends with the process. */
static void life_map(const char *name, bool unmap)
{
	pid_t pid = fork();
	char *map;
	int fd;

	if (pid != 0) {
		child_wait(pid);
		return;
	}
	fd = must_open(name, O_RDWR | O_CREAT | O_TRUNC);
	expect_call("ftruncate", 0, ftruncate(fd, 5L * PAGE));
	map = mmap(NULL, 5L * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	expect_call("close", 0, close(fd));
	if (map == MAP_FAILED) {
		wrong("mmap: %s", name_of(errno));
		child_end();
	}
	memset(map + 100, 'M', 4L * PAGE);
	if (unmap)
		(void)munmap(map, 5L * PAGE);
	child_end();
}

static void life_killed(void)
{
	int ready[2];
	int status = 0;
	pid_t pid;
	char byte;

	if (pipe(ready) < 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0) {
		int fd = must_open("killed", O_WRONLY | O_CREAT | O_TRUNC);

		write_bytes(fd, 70000, 'k');
		write_bytes(ready[1], 1, '!');
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		wrong("the writer ended by itself");
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	(void)close(ready[0]);
}

/* Leaves forked, dupped, mapped, mapped-exit, killed: the same bytes on any filesystem. */
void check_open_life(char **args)
{
	in_dir(args[0]);
	life_fork();
	life_dup();
	life_map("mapped", true);
	life_map("mapped-exit", false);
	life_killed();
}

/* --- C28: never old bytes, never an old answer --- */

static void expect_bytes(int fd, off_t from, size_t size, int byte)
{
	static unsigned char data[65536];
	ssize_t got = pread(fd, data, size, from);

	if (got != (ssize_t)size) {
		wrong("pread at %jd: %zd of %zu bytes", (intmax_t)from, got, size);
		return;
	}
	for (size_t i = 0; i < size; i++) {
		if (data[i] != byte) {
			wrong("byte %jd is %d, want %d", (intmax_t)from + (intmax_t)i, data[i],
			      byte);
			return;
		}
	}
}

static void grow_and_shrink(int reader, int writer)
{
	char *map;

	expect_bytes(reader, 0, 0, 0);
	write_bytes(writer, 100, '1');
	expect_bytes(reader, 0, 100, '1');
	map = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
	if (map == MAP_FAILED) {
		wrong("mmap: %s", name_of(errno));
		return;
	}
	if (map[99] != '1' || map[100] != 0)
		wrong("a mapping shows other bytes than were written");
	write_bytes(writer, 5000, '2');
	expect_bytes(reader, 100, 5000, '2');
	if (map[100] != '2' || map[5099] != '2' || map[5100] != 0)
		wrong("a mapping made earlier does not show what was written later");
	expect_call("ftruncate", 0, ftruncate(writer, 10));
	expect_call("ftruncate", 0, ftruncate(writer, 2 * PAGE));
	expect_bytes(reader, 0, 10, '1');
	expect_bytes(reader, 10, 2 * PAGE - 10, 0);
	if (map[9] != '1' || map[10] != 0 || map[5000] != 0)
		wrong("a mapping shows what was cut off");
	(void)munmap(map, 2 * PAGE);
}

static void create_name(void *arg, int i)
{
	(void)i;
	must_fill(arg, 3, 'n');
}

static void remove_name(void *arg, int i)
{
	(void)i;
	expect_call("unlink", 0, unlink(arg));
}

static void names_of_others(void)
{
	char name[] = "other";
	struct stat st;

	for (int i = 0; i < 20; i++) {
		expect_call("stat of what is missing", ENOENT, stat(name, &st));
		in_processes(1, create_name, name);
		expect_call("stat of what another made", 0, stat(name, &st));
		if (st.st_size != 3)
			wrong("size of what another made: %jd", (intmax_t)st.st_size);
		in_processes(1, remove_name, name);
	}
}

void check_second_fd(char **args)
{
	int reader, writer;

	in_dir(args[0]);
	(void)close(must_open("second", O_WRONLY | O_CREAT | O_TRUNC));
	reader = must_open("second", O_RDONLY);
	writer = must_open("second", O_WRONLY);
	grow_and_shrink(reader, writer);
	(void)close(reader);
	(void)close(writer);

	/* In the other order. */
	writer = must_open("second", O_WRONLY | O_TRUNC);
	reader = must_open("second", O_RDONLY);
	grow_and_shrink(reader, writer);
	(void)close(reader);
	(void)close(writer);
	names_of_others();
	expect_call("unlink", 0, unlink("second"));
}

static void print_age(const char *what, char byte, char old)
{
	printf("%s %s\n", what, byte == old ? "old" : "new");
}

/*
 * FILE holds at least a byte, not '!'. Open and map it for reading, then write a '!' by
 * another descriptor: prints what the first ones show.
 */
void check_first_write(char **args)
{
	int reader = must_open(args[0], O_RDONLY), writer;
	char old = 0, now = 0;
	const volatile char *map = mmap(NULL, 1, PROT_READ, MAP_SHARED, reader, 0);

	if (map == MAP_FAILED || pread(reader, &old, 1, 0) != 1 || *map != old) {
		wrong("read %s: %s", args[0], name_of(errno));
		return;
	}
	writer = must_open(args[0], O_WRONLY);
	if (pwrite(writer, "!", 1, 0) != 1)
		wrong("write %s: %s", args[0], name_of(errno));
	if (pread(reader, &now, 1, 0) != 1)
		wrong("read %s: %s", args[0], name_of(errno));
	print_age("descriptor", now, old);
	print_age("mapping", *map, old);
	(void)munmap((void *)(uintptr_t)map, 1);
	(void)close(writer);
	(void)close(reader);
}

/* --- C27: appended lines stay whole --- */

#define LINE_SIZE 37

struct append {
	const char *path;
	long lines;
};

/* Exactly LINE_SIZE bytes. */
static void make_line(char line[64], int me, long i)
{
	(void)snprintf(line, 64, "p%02d line %08ld of the whole log..\n", me, i);
}

/* Odd processes open the file for each line. */
static void append_lines(void *arg, int me)
{
	const struct append *a = arg;
	int fd = must_open(a->path, O_WRONLY | O_APPEND | O_CREAT);

	for (long i = 0; i < a->lines; i++) {
		char line[64];

		make_line(line, me, i);
		if (me % 2) {
			(void)close(fd);
			fd = must_open(a->path, O_WRONLY | O_APPEND | O_CREAT);
		}
		if (write(fd, line, LINE_SIZE) != LINE_SIZE)
			wrong("append: %s", name_of(errno));
	}
	expect_call("close", 0, close(fd));
}

static void expect_lines(const char *path, int processes, long lines)
{
	long next[64] = {0};
	char line[128];
	struct stat st;
	FILE *f = fopen(path, "re");

	if (f == NULL || fstat(fileno(f), &st) < 0) {
		wrong("open %s: %s", path, name_of(errno));
		return;
	}
	if (st.st_size != processes * lines * LINE_SIZE)
		wrong("%s has %jd bytes", path, (intmax_t)st.st_size);
	while (fgets(line, sizeof(line), f)) {
		char want[64];
		int me = atoi(line + 1);

		if (me < 0 || me >= processes) {
			wrong("a line of nobody: %s", line);
			continue;
		}
		make_line(want, me, next[me]++);
		if (strcmp(line, want) != 0)
			wrong("line '%s', want '%s'", line, want);
	}
	(void)fclose(f);
	for (int i = 0; i < processes; i++)
		if (next[i] != lines)
			wrong("process %d: %ld lines of %ld", i, next[i], lines);
}

void check_append(char **args)
{
	struct append a = {.path = args[0], .lines = number(args[2])};
	int processes = (int)number(args[1]);

	in_processes(processes, append_lines, &a);
	expect_lines(a.path, processes, a.lines);
}

/* FILE holds "input\n" (and may be one, to be copied up); it ends as "XYput\nABC". */
void check_append_odd(char **args)
{
	int fd = must_open(args[0], O_RDWR | O_APPEND);
	char text[32] = "";
	ssize_t got;

	/* Linux appends whatever the offset given, see pwrite(2). */
	if (pwrite(fd, "A", 1, 0) != 1)
		wrong("pwrite: %s", name_of(errno));
	expect_call("no longer append", 0, fcntl(fd, F_SETFL, 0));
	if (pwrite(fd, "XY", 2, 0) != 2)
		wrong("pwrite: %s", name_of(errno));
	expect_call("append again", 0, fcntl(fd, F_SETFL, O_APPEND));
	if (write(fd, "B", 1) != 1 || pwrite(fd, "C", 1, 3) != 1)
		wrong("write: %s", name_of(errno));
	got = pread(fd, text, sizeof(text) - 1, 0);
	if (got != 9 || strcmp(text, "XYput\nABC") != 0)
		wrong("it reads '%s'", text);
	(void)close(fd);
}

/* --- C40: direct I/O, mappings, several kinds of open at once --- */

static void print_outcome(const char *what, ssize_t ret)
{
	printf("%s %s\n", what, ret < 0 ? name_of(errno) : "OK");
}

/* Prints what became of each call: to be compared with a directory of the same disk. */
void check_direct(char **args)
{
	char *page = aligned_alloc(PAGE, 2 * PAGE);
	int fd, plain;

	if (page == NULL)
		abort();
	in_dir(args[0]);
	fd = open("direct", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644);
	print_outcome("open", fd);
	if (fd < 0) {
		free(page);
		return;
	}
	memset(page, 'd', 2 * PAGE);
	plain = must_open("direct", O_RDWR);
	print_outcome("aligned write", pwrite(fd, page, PAGE, 0));
	expect_bytes(plain, 0, PAGE, 'd');
	print_outcome("odd size", pwrite(fd, page, 100, PAGE));
	print_outcome("odd memory", pwrite(fd, page + 1, PAGE, PAGE));
	print_outcome("odd offset", pwrite(fd, page, PAGE, 7));
	expect_call("ftruncate", 0, ftruncate(fd, PAGE));
	if (pwrite(plain, "P", 1, 0) != 1)
		wrong("write beside: %s", name_of(errno));
	print_outcome("aligned read", pread(fd, page, PAGE, 0));
	if (page[0] != 'P' || page[1] != 'd' || page[PAGE - 1] != 'd')
		wrong("direct read beside a cached write shows other bytes");
	print_outcome("read odd memory", pread(fd, page + 1, PAGE, 0));
	(void)close(plain);
	(void)close(fd);
	free(page);
	must_fill("direct", 0, 0);
	expect_filled("direct", 0, 0);
}

static void map_and_grow(int fd)
{
	char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char byte = 0;

	if (map == MAP_FAILED) {
		wrong("mmap: %s", name_of(errno));
		return;
	}
	memset(map, 's', PAGE);
	expect_bytes(fd, 0, PAGE, 's');
	expect_call("msync", 0, msync(map, PAGE, MS_SYNC));
	expect_call("ftruncate", 0, ftruncate(fd, 8L * PAGE));
	map = mremap(map, PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	if (map == MAP_FAILED) {
		wrong("mremap: %s", name_of(errno));
		return;
	}
	map[8 * PAGE - 1] = 'e';
	if (pread(fd, &byte, 1, 8 * PAGE - 1) != 1 || byte != 'e')
		wrong("read does not show the store through a mapping");
	if (pwrite(fd, "w", 1, 5L * PAGE) != 1 || map[5 * PAGE] != 'w')
		wrong("a mapping does not show the write");
	(void)munmap(map, 8 * PAGE);
}

void check_mappings(char **args)
{
	char *map;
	int fd;

	in_dir(args[0]);
	fd = must_open("maps", O_RDWR | O_CREAT | O_TRUNC);
	expect_call("ftruncate", 0, ftruncate(fd, PAGE));
	map_and_grow(fd);
	map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED) {
		wrong("private mmap: %s", name_of(errno));
	} else {
		memset(map, 'x', PAGE);
		(void)munmap(map, PAGE);
	}
	expect_bytes(fd, 0, PAGE, 's');
	map = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	expect_call("mmap to execute", 0, map == MAP_FAILED ? -1 : 0);
	(void)close(fd);
	expect_call("unlink", 0, unlink("maps"));
}

struct mixed {
	const char *path;
	unsigned char *want;
	size_t size;
};

static void mixed_read(const struct mixed *m, int flags, unsigned char *data)
{
	int fd = open(m->path, O_RDONLY | O_CLOEXEC | flags);
	size_t at = 0;
	ssize_t got = 0;

	if (fd < 0) {
		if (!(flags & O_DIRECT) || errno != EINVAL)
			wrong("open %s: %s", m->path, name_of(errno));
		return;
	}
	while (at < m->size && (got = read(fd, data + at, 65536)) > 0)
		at += (size_t)got;
	if (got < 0)
		wrong("read %s%s: %s", m->path, flags ? " (direct)" : "", name_of(errno));
	else if (at != m->size || memcmp(data, m->want, m->size) != 0)
		wrong("%s%s: other bytes", m->path, flags ? " (direct)" : "");
	(void)close(fd);
}

static void mixed_map(const struct mixed *m, int prot)
{
	int fd = must_open(m->path, O_RDONLY);
	void *map = mmap(NULL, m->size, prot, MAP_PRIVATE, fd, 0);

	if (map == MAP_FAILED)
		wrong("mmap %s: %s", m->path, name_of(errno));
	else if (memcmp(map, m->want, m->size) != 0)
		wrong("%s (mapped): other bytes", m->path);
	if (map != MAP_FAILED)
		(void)munmap(map, m->size);
	(void)close(fd);
}

static void mixed_sendfile(const struct mixed *m)
{
	int fd = must_open(m->path, O_RDONLY);
	int copy = memfd_create("copy", MFD_CLOEXEC);
	size_t at = 0;
	ssize_t got;
	void *map;

	while ((got = sendfile(copy, fd, NULL, m->size)) > 0)
		at += (size_t)got;
	if (got < 0)
		wrong("sendfile %s: %s", m->path, name_of(errno));
	map = mmap(NULL, m->size, PROT_READ, MAP_SHARED, copy, 0);
	if (at != m->size || map == MAP_FAILED || memcmp(map, m->want, m->size) != 0)
		wrong("%s (sendfile): other bytes", m->path);
	if (map != MAP_FAILED)
		(void)munmap(map, m->size);
	(void)close(copy);
	(void)close(fd);
}

static void mixed_process(void *arg, int me)
{
	const struct mixed *m = arg;
	unsigned char *data = aligned_alloc(PAGE, (m->size + 2 * 65536) & ~(size_t)(PAGE - 1));

	if (data == NULL)
		abort();
	for (int i = 0; i < 15; i++) {
		switch ((me + i) % 5) {
		case 0:
			mixed_read(m, 0, data);
			break;
		case 1:
			mixed_read(m, O_DIRECT, data);
			break;
		case 2:
			mixed_map(m, PROT_READ);
			break;
		case 3:
			mixed_map(m, PROT_READ | PROT_EXEC);
			break;
		default:
			mixed_sendfile(m);
		}
	}
	free(data);
}

/* Eight processes read FILE in every way at once; COPY holds what they have to see. */
void check_mixed_opens(char **args)
{
	int fd = must_open(args[1], O_RDONLY);
	struct mixed m = {.path = args[0]};
	struct stat st;

	if (fstat(fd, &st) < 0 || st.st_size == 0) {
		wrong("%s is empty", args[1]);
		return;
	}
	m.size = (size_t)st.st_size;
	m.want = mmap(NULL, m.size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (m.want == MAP_FAILED)
		abort();
	in_processes(8, mixed_process, &m);
	(void)close(fd);
}
