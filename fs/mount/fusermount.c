/* fs/mount/fusermount.c - mounting and unmounting where we may not: through fusermount3 */

/*
 * fusermount3 mounts for its caller and hands the descriptor over a socket, whose number
 * it reads from _FUSE_COMMFD. libfuse does the same, but prints what goes wrong, and does
 * not tell it.
 */
#include "fs/mount/fusermount.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/mount/mountfd.h"

#define PROGRAM "fusermount3"
#define COMM_FD 3
#define SAID_SZ 512

bool fs_mount_is_allowed(void)
{
	auto_close int fd = fsopen("fuse", FSOPEN_CLOEXEC);

	/* Whatever else is wrong is better told by who mounts. */
	return fd >= 0 || (errno != EPERM && errno != EACCES && errno != ENOSYS);
}

/* One run of the program. */
struct run {
	pid_t pid;
	int comm_fd; /* our end; -1: none wanted */
	int said_fd; /* what it says on standard error */
	char said[SAID_SZ];
};

/* @comm and @said are clear of 0 to COMM_FD. */
static int spawn(const char *const *argv, int comm, int said, pid_t *pid)
{
	char env_comm[] = "_FUSE_COMMFD=3";
	char env_path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
	char env_locale[] = "LC_ALL=C";
	char *env[] = {env_path, env_locale, comm >= 0 ? env_comm : NULL, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int code = posix_spawn_file_actions_init(&actions);

	if (code != 0)
		return -code;
	for (int fd = 0; code == 0 && fd < 2; fd++)
		code = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
	if (code == 0)
		code = posix_spawn_file_actions_adddup2(&actions, said, 2);
	if (code == 0 && comm >= 0)
		code = posix_spawn_file_actions_adddup2(&actions, comm, COMM_FD);
	if (code == 0)
		code = posix_spawn_file_actions_addclosefrom_np(&actions,
								comm >= 0 ? COMM_FD + 1 : COMM_FD);
	(void)sigemptyset(&none);
	if (code == 0 && (code = posix_spawnattr_init(&attr)) == 0) {
		(void)posix_spawnattr_setsigmask(&attr, &none);
		(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
		code = posix_spawnp(pid, PROGRAM, &actions, &attr, (char **)(uintptr_t)argv, env);
		(void)posix_spawnattr_destroy(&attr);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return -code;
}

static int begin(struct run *r, const char *const *argv, bool want_fd, struct err *err)
{
	auto_close int theirs = -1;
	auto_close int said = -1;
	int pair[2];
	int pipe_fd[2];
	int ret;

	*r = (struct run){.comm_fd = -1, .said_fd = -1};
	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return err_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
	r->said_fd = pipe_fd[0];
	said = fcntl(pipe_fd[1], F_DUPFD_CLOEXEC, COMM_FD + 1);
	(void)close(pipe_fd[1]);
	if (want_fd && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	if (want_fd) {
		r->comm_fd = pair[0];
		theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, COMM_FD + 1);
		(void)close(pair[1]);
	}
	if (said < 0 || (want_fd && theirs < 0))
		return err_set(err, -EMFILE, "no descriptors to start " PROGRAM " with");
	ret = spawn(argv, theirs, said, &r->pid);
	if (ret == -ENOENT)
		return err_set(err, ret,
			       "cannot mount: there is no " PROGRAM " in PATH (install the package "
			       "fuse3; or be root, or mount in a user namespace: unshare -Urm)");
	return ret < 0 ? err_set(err, ret, "cannot start " PROGRAM ": %s", strerror(-ret)) : 0;
}

/* The last line it said, without the name it calls itself by. */
static const char *last_line(struct run *r)
{
	size_t len = strlen(r->said);
	char *line;

	while (len > 0 && r->said[len - 1] == '\n')
		r->said[--len] = '\0';
	line = strrchr(r->said, '\n');
	line = line ? line + 1 : r->said;
	return strncmp(line, PROGRAM ": ", strlen(PROGRAM ": ")) == 0 ? line + strlen(PROGRAM ": ")
								      : line;
}

/* Hear it out, and reap it: its exit status. */
static int end(struct run *r)
{
	size_t len = 0;
	int status = 0;
	ssize_t got;

	do {
		got = read(r->said_fd, r->said + len, SAID_SZ - 1 - len);
		len += got > 0 ? (size_t)got : 0;
	} while ((got > 0 && len < SAID_SZ - 1) || (got < 0 && errno == EINTR));
	r->said[len] = '\0';
	while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void run_fini(struct run *r)
{
	if (r->comm_fd >= 0)
		(void)close(r->comm_fd);
	if (r->said_fd >= 0)
		(void)close(r->said_fd);
}

/* The descriptor that it sends, or -1 when it ended without. */
static int receive_fd(int sock)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c;
	ssize_t got;
	int fd = -1;

	do
		got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	c = got > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* Is the program that PATH leads to one that may mount? */
static bool is_setuid(void)
{
	const char *path = getenv("PATH");

	for (path = path ? path : "/usr/bin:/bin"; *path;) {
		size_t len = strcspn(path, ":");
		auto_free char *file = NULL;
		struct stat st;

		if (asprintf(&file, "%.*s/" PROGRAM, (int)len, path) < 0) {
			file = NULL;
			return true;
		}
		if (stat(file, &st) == 0)
			return st.st_uid == 0 && st.st_mode & S_ISUID;
		path += len + (path[len] == ':');
	}
	return true;
}

static int refused(struct run *r, const char *path, int status, struct err *err)
{
	const char *said = last_line(r);
	const char *hint = "";

	if (strstr(said, "allow_other"))
		hint = " (the line user_allow_other there lets plain users use --allow-other)";
	else if (!is_setuid())
		hint = " (it is not setuid root here, which it has to be)";
	else if (strstr(said, "ermission denied") || strstr(said, "not permitted"))
		hint = " (the directory must be yours; and where AppArmor confines " PROGRAM
		       ", only places named in /etc/apparmor.d/" PROGRAM " may be mounted on)";
	if (!*said)
		return err_set(err, -EPERM,
			       "cannot mount at %s: " PROGRAM " ended with status %d%s", path,
			       status, hint);
	return err_set(err, -EPERM, "cannot mount at %s: " PROGRAM ": %s%s", path, said, hint);
}

/* Which device is on top at @path? Without asking it. */
static int find_dev(const char *path, dev_t *out, struct err *err)
{
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	int ret = mountinfo_read_self(&mounts);
	bool found = false;

	while (ret == 0 && mountinfo_next(&mounts, &e)) {
		if (strcmp(e.path, path) != 0 || strcmp(e.type, FS_MOUNT_TYPE) != 0)
			continue;
		*out = e.dev;
		found = true;
	}
	mountinfo_fini(&mounts);
	if (ret < 0 || !found)
		return err_set(err, ret < 0 ? ret : -ENOENT,
			       "cannot find the mount that " PROGRAM " made at %s", path);
	return 0;
}

int fs_fusermount(const char *path, bool read_only, bool allow_other, struct fs_mount *out,
		  struct err *err)
{
	char options[128];
	const char *const argv[] = {PROGRAM, "-o", options, "--", path, NULL};
	struct run r;
	int fd = fs_mount_open_dev(err);
	int status = 0;
	int ret;

	/* A clearer message than that of the program, which asks the same. */
	if (fd < 0)
		return fd;
	(void)close(fd);
	fd = -1;
	(void)snprintf(options, sizeof(options),
		       "nosuid,nodev,fsname=casbox,subtype=casbox,default_permissions%s%s",
		       read_only ? ",ro" : "", allow_other ? ",allow_other" : "");
	ret = begin(&r, argv, true, err);
	if (ret == 0) {
		fd = receive_fd(r.comm_fd);
		status = end(&r);
		if (fd < 0)
			ret = refused(&r, path, status, err);
	}
	run_fini(&r);
	if (ret == 0)
		ret = find_dev(path, &out->dev, err);
	if (ret < 0) {
		if (fd >= 0)
			(void)close(fd);
		return ret;
	}
	out->dev_fd = fd;
	out->mount_fd = -1;
	return 0;
}

static int fusermount_remove(const char *path, bool lazy, struct err *err)
{
	const char *const argv[] = {PROGRAM, lazy ? "-uz" : "-u", "--", path, NULL};
	struct run r;
	int ret = begin(&r, argv, false, err);

	if (ret == 0 && end(&r) != 0) {
		const char *said = last_line(&r);

		ret = err_set(err, strstr(said, "busy") ? -EBUSY : -EPERM,
			      "cannot unmount %s: " PROGRAM ": %s", path, said);
	}
	run_fini(&r);
	return ret;
}

int fs_mount_remove(const char *path, bool lazy, struct err *err)
{
	int ret;

	if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	ret = -errno;
	if (ret == -EPERM)
		return fusermount_remove(path, lazy, err);
	return err_set(err, ret, "cannot unmount %s: %s", path, strerror(-ret));
}
