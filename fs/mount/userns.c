/* fs/mount/userns.c - namespaces of our own, to mount in without privileges */
#include "fs/mount/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/mount/fusermount.h"

/* What went wrong, for a message; an exit status of the child that tries. */
enum step { STEP_DONE, STEP_UNSHARE, STEP_MAP, STEP_CAPS, STEP_MOUNT };

static int write_proc(const char *path, const char *text)
{
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
}

static int map_ids(uid_t uid, gid_t gid)
{
	char text[48];
	int ret = write_proc("/proc/self/setgroups", "deny");

	(void)snprintf(text, sizeof(text), "%u %u 1\n", uid, uid);
	if (ret == 0)
		ret = write_proc("/proc/self/uid_map", text);
	(void)snprintf(text, sizeof(text), "%u %u 1\n", gid, gid);
	return ret == 0 ? write_proc("/proc/self/gid_map", text) : ret;
}

/*
 * Who is not 0 loses what he has when he executes something, but for ambient capabilities. An
 * overlay acts as whoever mounted it, on a work directory without permissions, so all are
 * kept; they are good for what is the user's own.
 */
static int keep_caps(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2];

	if (syscall(SYS_capget, &head, caps) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		caps[i].inheritable = caps[i].permitted;
	if (syscall(SYS_capset, &head, caps) < 0)
		return -errno;
	for (unsigned long cap = 0; cap < 64; cap++) {
		if (caps[cap / 32].permitted & 1U << cap % 32 &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
			return -errno;
	}
	return 0;
}

static enum step enter(int *code)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	*code = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? -errno : 0;
	if (*code)
		return STEP_UNSHARE;
	*code = map_ids(uid, gid);
	if (*code)
		return STEP_MAP;
	*code = keep_caps();
	if (*code)
		return STEP_CAPS;
	/* What is mounted outside later is to appear here, but nothing of ours there. */
	*code = mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ? -errno : 0;
	if (*code == 0 && !fs_mount_is_allowed())
		*code = -EACCES;
	return *code ? STEP_MOUNT : STEP_DONE;
}

static int explain(enum step step, int code, struct err *err)
{
	static const char *const steps[] = {
		[STEP_DONE] = "",
		[STEP_UNSHARE] = "cannot make a user namespace",
		[STEP_MAP] = "cannot map ids in a user namespace",
		[STEP_CAPS] = "cannot keep the right to mount in a user namespace",
		[STEP_MOUNT] = "cannot mount in a user namespace",
	};
	auto_buf struct buf text = {0};
	bool apparmor =
		io_read_file(AT_FDCWD, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 16,
			     &text) == 0 &&
		buf_str(&text)[0] == '1';

	if (step == STEP_DONE)
		return 0;
	return err_set(err, code, "%s: %s%s", steps[step], strerror(-code),
		       apparmor ? " (kernel.apparmor_restrict_unprivileged_userns is 1)"
		       : step == STEP_UNSHARE && code == -ENOSPC ? " (user.max_user_namespaces)"
								 : "");
}

int fs_userns_check(struct err *err)
{
	int status[2] = {STEP_UNSHARE, -EPERM};
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		int said[2];

		said[0] = (int)enter(&said[1]);
		_exit(write(fds[1], said, sizeof(said)) == sizeof(said) ? 0 : 1);
	}
	(void)close(fds[1]);
	if (pid < 0)
		status[1] = -errno;
	else if (read(fds[0], status, sizeof(status)) != sizeof(status))
		status[1] = -EIO;
	(void)close(fds[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return explain((enum step)status[0], status[1], err);
}

int fs_userns_enter(struct err *err)
{
	int code = 0;
	enum step step = enter(&code);

	return explain(step, code, err);
}
