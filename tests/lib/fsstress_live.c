/* tests/lib/fsstress_live.c - signals, locks, running programs, events */
#include "tests/lib/fsstress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

/* --- C35: a signal every millisecond --- */

static volatile sig_atomic_t nr_signals;

static void on_signal(int sig)
{
	int saved = errno;

	nr_signals++;
	while (sig == SIGCHLD && waitpid(-1, NULL, WNOHANG) > 0)
		continue;
	errno = saved;
}

static void signals_start(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 1000}, {0, 1000}};

	if (sigaction(SIGALRM, &sa, NULL) < 0 || sigaction(SIGCHLD, &sa, NULL) < 0 ||
	    sigaction(SIGURG, &sa, NULL) < 0 || setitimer(ITIMER_REAL, &every, NULL) < 0)
		abort();
}

static void signals_stop(void)
{
	struct itimerval never = {{0, 0}, {0, 0}};

	(void)setitimer(ITIMER_REAL, &never, NULL);
	(void)signal(SIGCHLD, SIG_DFL);
}

/* What git and Go programs do with files; nothing of it may be interrupted or done twice. */
static void write_round(long round)
{
	char name[32], dir[32], moved[40], text[8];
	int fd;

	(void)snprintf(name, sizeof(name), "n%ld", round);
	(void)snprintf(dir, sizeof(dir), "d%ld", round);
	(void)snprintf(moved, sizeof(moved), "%s/m", dir);
	fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	expect_call("create with O_EXCL", 0, fd);
	if (fd < 0)
		return;
	if (write(fd, "text", 4) != 4)
		wrong("write: %s", name_of(errno));
	expect_call("close", 0, close(fd));
	expect_call("mkdir", 0, mkdir(dir, 0755));
	expect_call("rename", 0, rename(name, moved));
	fd = open(moved, O_RDONLY | O_CLOEXEC);
	expect_call("open", 0, fd);
	if (read(fd, text, sizeof(text)) != 4 || memcmp(text, "text", 4) != 0)
		wrong("read: %s", name_of(errno));
	(void)close(fd);
}

static void clean_round(long round)
{
	char moved[32];

	(void)snprintf(moved, sizeof(moved), "d%ld/m", round);
	expect_call("unlink", 0, unlink(moved));
	*strchr(moved, '/') = '\0';
	expect_call("rmdir", 0, rmdir(moved));
}

/* Look at every entry of @dir and read it, from the start and not from a cache. */
static long read_round(const char *dir)
{
	char path[PATH_MAX], data[65536];
	struct dirent *de;
	struct stat st;
	DIR *d = opendir(dir);
	long nr = 0;

	expect_call("opendir", 0, d ? 0 : -1);
	if (d == NULL)
		return 0;
	for (errno = 0; (de = readdir(d)) != NULL; errno = 0) {
		int fd;

		(void)snprintf(path, sizeof(path), "%s/%s", dir, de->d_name);
		expect_call("lstat", 0, lstat(path, &st));
		if (!S_ISREG(st.st_mode))
			continue;
		fd = open(path, O_RDONLY | O_CLOEXEC);
		expect_call("open", 0, fd);
		if (fd < 0)
			continue;
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		expect_call("read", 0, read(fd, data, sizeof(data)));
		(void)close(fd);
		nr++;
	}
	if (errno != 0)
		wrong("readdir: %s", name_of(errno));
	(void)closedir(d);
	return nr;
}

/* A child whose end is a signal for us, and SIGURG on top. */
static void more_signals(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)kill(getppid(), SIGURG);
		_exit(0);
	}
	expect_call("fork", 0, pid);
}

/* DIR is writable, INPUTS need not be. */
void check_signals(char **args)
{
	double until = seconds() + duration(args[2]);
	long rounds = 0, files = 0;

	if (chdir(args[0]) < 0) {
		wrong("chdir %s: %s", args[0], name_of(errno));
		return;
	}
	signals_start();
	/* However slow, there are some. */
	for (; seconds() < until || ((rounds < 20 || nr_signals < 100) && seconds() < until + 20);
	     rounds++) {
		write_round(rounds);
		if (rounds % 10 == 0)
			files = read_round(args[1]);
		if (rounds % 3 == 0)
			more_signals();
		clean_round(rounds);
	}
	signals_stop();
	if (nr_signals < 100 || rounds < 20 || files == 0)
		wrong("only %d signals in %ld rounds over %ld files", (int)nr_signals, rounds,
		      files);
}

/* --- C37: locks exclude, end with their holder, and are of one file --- */

enum lock_kind {
	LOCK_BSD,
	LOCK_POSIX,
	LOCK_OFD,
	NR_LOCKS,
};

static const char *const lock_names[NR_LOCKS] = {"flock", "F_SETLKW", "F_OFD_SETLKW"};

/* @type is F_WRLCK, F_RDLCK or F_UNLCK. 0 or -1. */
static int lock_set(int fd, enum lock_kind kind, short type, bool wait)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET};
	int how = type == F_WRLCK ? LOCK_EX : type == F_RDLCK ? LOCK_SH : LOCK_UN;

	if (kind == LOCK_BSD)
		return flock(fd, how | (wait ? 0 : LOCK_NB));
	if (kind == LOCK_POSIX)
		return fcntl(fd, wait ? F_SETLKW : F_SETLK, &fl);
	return fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &fl);
}

struct locks {
	const char *path;
	char count[PATH_MAX];
	enum lock_kind kind;
	long rounds;
};

/* Read, add one, write back: loses counts unless the lock excludes. */
static void count_one(const char *path)
{
	int fd = must_open(path, O_RDWR);
	char text[32] = "";

	if (read(fd, text, sizeof(text) - 1) < 0)
		wrong("read: %s", name_of(errno));
	(void)snprintf(text, sizeof(text), "%020ld", atol(text) + 1);
	if (pwrite(fd, text, 20, 0) != 20)
		wrong("write: %s", name_of(errno));
	(void)close(fd);
}

static void lock_rounds(void *arg, int me)
{
	const struct locks *l = arg;
	int fd = must_open(l->path, O_RDWR);

	for (long i = 0; i < l->rounds; i++) {
		expect_call(lock_names[l->kind], 0, lock_set(fd, l->kind, F_WRLCK, true));
		count_one(l->count);
		/* By close now and then. */
		if ((i + me) % 10 == 0) {
			(void)close(fd);
			fd = must_open(l->path, O_RDWR);
		} else {
			expect_call("unlock", 0, lock_set(fd, l->kind, F_UNLCK, true));
		}
	}
	(void)close(fd);
}

static void on_interrupt(int sig)
{
	(void)sig;
}

/* A child that waits for the lock, told to stop waiting by SIGINT. */
static void interrupt_waiter(const struct locks *l)
{
	struct sigaction sa = {.sa_handler = on_interrupt};
	int fd = must_open(l->path, O_RDWR);
	pid_t pid;

	(void)sigaction(SIGINT, &sa, NULL);
	expect_call("lock", 0, lock_set(fd, l->kind, F_WRLCK, false));
	pid = fork();
	if (pid == 0) {
		int mine = must_open(l->path, O_RDWR);

		(void)close(fd);
		expect_call("a waiter that gets SIGINT", EINTR,
			    lock_set(mine, l->kind, F_WRLCK, true));
		child_end();
	}
	/* More than one, as the first may come before it waits. */
	for (int i = 0; i < 10; i++) {
		siginfo_t info = {.si_pid = 0};

		(void)usleep(20000);
		(void)kill(pid, SIGINT);
		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    info.si_pid)
			break;
	}
	child_wait(pid);
	(void)signal(SIGINT, SIG_DFL);
	(void)close(fd);
}

/* The lock of a process that is killed is free at once. */
static void kill_holder(const struct locks *l)
{
	int fd = must_open(l->path, O_RDWR);
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready) < 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0) {
		int mine = must_open(l->path, O_RDWR);

		(void)close(fd);
		expect_call("lock", 0, lock_set(mine, l->kind, F_WRLCK, true));
		if (write(ready[1], "!", 1) != 1)
			child_end();
		for (;;)
			(void)pause();
	}
	if (read(ready[0], &byte, 1) != 1)
		wrong("the holder ended by itself");
	expect_call("a lock held by another", EAGAIN, lock_set(fd, l->kind, F_WRLCK, false));
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	expect_call("the lock of a killed process", 0, lock_set(fd, l->kind, F_WRLCK, false));
	(void)close(ready[0]);
	(void)close(ready[1]);
	(void)close(fd);
}

void check_locks(char **args)
{
	int processes = (int)number(args[1]);
	struct locks l = {.path = args[0], .rounds = number(args[2])};

	(void)snprintf(l.count, sizeof(l.count), "%s.count", args[0]);
	(void)close(must_open(l.path, O_WRONLY | O_CREAT));
	for (l.kind = 0; l.kind < NR_LOCKS; l.kind++) {
		char text[32] = "";
		int fd;

		must_fill(l.count, 20, '0');
		in_processes(processes, lock_rounds, &l);
		fd = must_open(l.count, O_RDONLY);
		if (read(fd, text, 20) != 20 || atol(text) != processes * l.rounds)
			wrong("%s: counted %s of %ld", lock_names[l.kind], text,
			      processes * l.rounds);
		(void)close(fd);
		interrupt_waiter(&l);
		kill_holder(&l);
	}
}

/* Two files that may only be read, of equal content: each has its own lock. */
void check_locks_apart(char **args)
{
	static const enum lock_kind kinds[] = {LOCK_BSD, LOCK_OFD};

	for (size_t i = 0; i < 2; i++) {
		/* Only flock excludes by a descriptor that cannot write. */
		short type = kinds[i] == LOCK_BSD ? F_WRLCK : F_RDLCK;
		int a = must_open(args[0], O_RDONLY), b = must_open(args[1], O_RDONLY);
		int again = must_open(args[0], O_RDONLY);

		expect_call("lock one", 0, lock_set(a, kinds[i], type, false));
		expect_call("lock the other", 0, lock_set(b, kinds[i], type, false));
		expect_call("lock the first again", type == F_WRLCK ? EAGAIN : 0,
			    lock_set(again, kinds[i], type, false));
		if (kinds[i] == LOCK_OFD)
			expect_call("exclude by a descriptor that reads", EBADF,
				    lock_set(b, kinds[i], F_WRLCK, false));
		(void)close(a);
		expect_call("lock what was closed", 0, lock_set(again, kinds[i], type, false));
		(void)close(again);
		(void)close(b);
	}
}

/* --- C19: running programs --- */

static void copy_program(const char *from, const char *to)
{
	int in = must_open(from, O_RDONLY), out = must_open(to, O_WRONLY | O_CREAT | O_TRUNC);
	ssize_t got;

	while ((got = sendfile(out, in, NULL, 1 << 20)) > 0)
		continue;
	expect_call("copy", 0, got);
	expect_call("fchmod", 0, fchmod(out, 0755));
	(void)close(in);
	expect_call("close", 0, close(out));
}

/* Start @path for some seconds; it is running when this returns. 0 or an errno. */
static int start(const char *path, pid_t *pid)
{
	char name[] = "sleeper", secs[] = "20";
	char *argv[] = {name, secs, NULL};

	return posix_spawn(pid, path, NULL, NULL, argv, environ);
}

static void expect_busy(const char *path)
{
	expect_call("open a running program to write", ETXTBSY, open(path, O_WRONLY));
	expect_call("cut a running program on open", ETXTBSY, open(path, O_RDWR | O_TRUNC));
	expect_call("truncate a running program", ETXTBSY, truncate(path, 10));
}

/* TOOL sleeps for as many seconds as it is told. */
void check_busy_text(char **args)
{
	pid_t pid = 0;
	int fd, err;

	if (chdir(args[1]) < 0) {
		wrong("chdir %s: %s", args[1], name_of(errno));
		return;
	}
	copy_program(args[0], "tool");
	fd = must_open("tool", O_WRONLY);
	err = start("./tool", &pid);
	if (err != ETXTBSY)
		wrong("start while it is written to: %s", name_of(err));
	(void)close(fd);
	err = start("./tool", &pid);
	if (err != 0) {
		wrong("start: %s", name_of(err));
		return;
	}
	expect_busy("tool");
	copy_program(args[0], "next");
	expect_call("replace a running program", 0, rename("next", "tool"));
	expect_call("write to what replaced it", 0, truncate("tool", 10));
	expect_call("unlink", 0, unlink("tool"));
	if (waitpid(pid, NULL, WNOHANG) != 0)
		wrong("the program ended");
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

/* Fork without an end in sight: children hold for a moment what was open. */
void check_fork_storm(char **args)
{
	double until = seconds() + duration(args[0]);

	while (seconds() < until) {
		pid_t pid = fork();

		if (pid == 0) {
			(void)usleep(500);
			_exit(0);
		}
		if (pid > 0)
			(void)waitpid(pid, NULL, 0);
	}
}

/* --- C41: extended attributes of what an action makes --- */

static void expect_size(const char *what, ssize_t want, ssize_t got)
{
	if (got != want)
		wrong("%s: %zd (%s), want %zd", what, got, got < 0 ? name_of(errno) : "OK", want);
}

/* Sizes as asked for, too small, exact; then gone. */
static void xattr_round(const char *path)
{
	char value[200], got[300];

	memset(value, 'v', sizeof(value));
	expect_call("setxattr", 0, setxattr(path, "user.one", value, sizeof(value), 0));
	expect_call("setxattr that must create", EEXIST,
		    setxattr(path, "user.one", "x", 1, XATTR_CREATE));
	expect_call("setxattr that must replace", ENODATA,
		    setxattr(path, "user.two", "x", 1, XATTR_REPLACE));
	expect_call("setxattr", 0, setxattr(path, "user.two", "", 0, 0));
	expect_size("size asked for", 200, getxattr(path, "user.one", NULL, 0));
	expect_size("exact", 200, getxattr(path, "user.one", got, 200));
	expect_size("more room", 200, getxattr(path, "user.one", got, sizeof(got)));
	if (memcmp(value, got, sizeof(value)) != 0)
		wrong("another value than was set");
	expect_call("too small", ERANGE, getxattr(path, "user.one", got, 199));
	expect_size("an empty value", 0, getxattr(path, "user.two", got, sizeof(got)));
	expect_size("size of the list", 18, listxattr(path, NULL, 0));
	expect_size("the list", 18, listxattr(path, got, 18));
	expect_call("a list too small", ERANGE, listxattr(path, got, 17));
	expect_call("removexattr", 0, removexattr(path, "user.one"));
	expect_call("getxattr of what was removed", ENODATA,
		    getxattr(path, "user.one", got, sizeof(got)));
	expect_call("removexattr again", ENODATA, removexattr(path, "user.one"));
	expect_call("removexattr", 0, removexattr(path, "user.two"));
	expect_size("an empty list", 0, listxattr(path, got, sizeof(got)));
	expect_call("a capability that is not there", ENODATA,
		    getxattr(path, "security.capability", got, sizeof(got)));
}

void check_xattrs(char **args)
{
	if (chdir(args[0]) < 0) {
		wrong("chdir %s: %s", args[0], name_of(errno));
		return;
	}
	must_fill("file", 10, 'x');
	expect_call("mkdir", 0, mkdir("dir", 0755));
	xattr_round("file");
	xattr_round("dir");
	expect_call("rmdir", 0, rmdir("dir"));
	expect_call("unlink", 0, unlink("file"));
}

/* --- C28: who watches a directory hears of what others do in it --- */

static void make_events(void *arg, int i)
{
	(void)arg;
	(void)i;
	must_fill("seen", 10, 's');
	expect_call("chmod", 0, chmod("seen", 0600));
	expect_call("rename", 0, rename("seen", "seen2"));
	expect_call("unlink", 0, unlink("seen2"));
	expect_call("mkdir", 0, mkdir("dir", 0755));
	expect_call("rmdir", 0, rmdir("dir"));
}

void check_events(char **args)
{
	const uint32_t want = IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVED_FROM |
			      IN_MOVED_TO | IN_DELETE;
	_Alignas(struct inotify_event) char buf[4096];
	struct pollfd p = {.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), .events = POLLIN};
	uint32_t got = 0;

	if (chdir(args[0]) < 0 || inotify_add_watch(p.fd, ".", want) < 0) {
		wrong("watch %s: %s", args[0], name_of(errno));
		return;
	}
	in_processes(1, make_events, NULL);
	while ((got & want) != want && poll(&p, 1, 1000) > 0) {
		ssize_t nr = read(p.fd, buf, sizeof(buf));

		for (ssize_t at = 0; at < nr;) {
			const struct inotify_event *ev = (const void *)(buf + at);

			got |= ev->mask;
			at += (ssize_t)(sizeof(*ev) + ev->len);
		}
	}
	if ((got & want) != want)
		wrong("events 0x%x, want 0x%x", got & want, want);
	(void)close(p.fd);
}
