/* tools/run/spawn.c - start a command without copying a large process */
#include "tools/run/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"

/*
 * posix_spawn would do but for three things that only a clone of our own can: a control
 * group from birth (CLONE_INTO_CGROUP, where moving a process later waits for every
 * running one), a mount namespace, and the parent's death as a signal.
 *
 * The child shares our memory until it executes, and we sleep until then (CLONE_VFORK).
 * It therefore calls nothing but system calls on memory prepared here, writes only to
 * `struct plan`, and runs on a stack of its own: below ours with clone3 and no stack
 * given, as vfork does, or on one we map for clone. Its frames are never returned from,
 * so AddressSanitizer may not mark them: the marks would stay on our stack.
 */
#define IN_CHILD __attribute__((no_sanitize("address")))

#define CLONE_STACK_SZ (256 * 1024)

enum spawn_step {
	STEP_NONE,
	STEP_CGROUP,
	STEP_LIMITS,
	STEP_NAMESPACE,
	STEP_CAPS,
	STEP_MOUNTS,
	STEP_STDIO,
	STEP_CWD,
	STEP_EXEC
};

/* All that the child needs, made before it exists. */
struct plan {
	const struct spawn_options *opts;
	pid_t parent;
	char **paths; /* what to execute, in turn; NULL at the end */
	char **words; /* argv */
	char **shell; /* the same for a script without "#!": /bin/sh, path, arguments */
	char **env;
	int procs_fd;	 /* cgroup.procs, when the child must move itself; -1 */
	bool own_mounts; /* from birth */
	/* Written by the child, read by us after it is gone or has executed. */
	volatile enum spawn_step step;
	volatile int error;
};

static IN_CHILD void fail(struct plan *plan, enum spawn_step step, int error)
{
	plan->step = step;
	plan->error = error;
	_exit(127);
}

static IN_CHILD void child_signals(const struct plan *plan)
{
	const int *s = plan->opts->default_signals;

	for (; s && *s; s++)
		(void)signal(*s, SIG_DFL);
}

static IN_CHILD void child_stdio(struct plan *plan)
{
	int fd[3];

	/* First away from 0 to 2, so that no dup2 overwrites what a later one needs. */
	for (int i = 0; i < 3; i++) {
		fd[i] = plan->opts->stdio[i];
		if (fd[i] >= 0 && fd[i] < 3)
			fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 3);
		if (plan->opts->stdio[i] >= 0 && fd[i] < 0)
			fail(plan, STEP_STDIO, errno);
	}
	for (int i = 0; i < 3; i++) {
		if (fd[i] >= 0 && dup2(fd[i], i) < 0)
			fail(plan, STEP_STDIO, errno);
	}
}

static IN_CHILD void child_limits(struct plan *plan)
{
	const struct spawn_options *o = plan->opts;

	for (const int *fd = o->join_fds; fd && *fd >= 0; fd++) {
		if (write(*fd, "0", 1) != 1)
			fail(plan, STEP_CGROUP, errno);
	}
	for (size_t i = 0; o->resources && o->resources[i] >= 0; i++) {
		if (syscall(SYS_prlimit64, 0, o->resources[i], &o->rlimits[i], NULL) < 0)
			fail(plan, STEP_LIMITS, errno);
	}
}

/* After the standard streams, which may have come from 3. */
static IN_CHILD void child_keep(struct plan *plan)
{
	int fd = plan->opts->keep_fd;
	unsigned first = fd ? 4 : 3;

	if (fd > 0 && fd != 3 && dup2(fd, 3) < 0)
		fail(plan, STEP_STDIO, errno);
	if (fd == 3 && fcntl(fd, F_SETFD, 0) < 0)
		fail(plan, STEP_STDIO, errno);
	if (plan->opts->only_these && syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		fail(plan, STEP_STDIO, errno);
}

/* execvp, on candidates made beforehand. */
static IN_CHILD void child_exec(struct plan *plan)
{
	int error = ENOENT;

	for (char **path = plan->paths; *path; path++) {
		(void)execve(*path, plan->words, plan->env);
		if (errno == ENOEXEC) {
			plan->shell[1] = *path;
			(void)execve(plan->shell[0], plan->shell, plan->env);
			errno = ENOEXEC;
		}
		if (errno == EACCES && plan->paths[1] && faccessat(AT_FDCWD, *path, F_OK, 0))
			continue; /* a directory of PATH that we may not search */
		if (errno != ENOENT && errno != ENOTDIR) {
			error = errno;
			if (errno != EACCES)
				break;
		} else if (error == ENOENT) {
			error = errno;
		}
	}
	fail(plan, STEP_EXEC, error);
}

/* Out of what root has, gets by executing, and hands on. */
static IN_CHILD void child_under_quota(struct plan *plan)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2];
	uint32_t bit = CAP_TO_MASK(CAP_SYS_RESOURCE);

	if (syscall(SYS_capget, &head, caps) < 0)
		fail(plan, STEP_CAPS, errno);
	if (!((caps[0].permitted | caps[0].inheritable) & bit))
		return;
	/* Without CAP_SETPCAP execution gives back nothing that we do not have. */
	if (prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) < 0 && errno != EPERM)
		fail(plan, STEP_CAPS, errno);
	caps[0].effective &= ~bit;
	caps[0].permitted &= ~bit;
	caps[0].inheritable &= ~bit;
	if (syscall(SYS_capset, &head, caps) < 0)
		fail(plan, STEP_CAPS, errno);
}

/* Runs in the child, on borrowed memory: see the note at the top. */
static IN_CHILD _Noreturn void child_main(struct plan *plan)
{
	const struct spawn_options *o = plan->opts;

	if (o->die_with_parent) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != plan->parent && getppid() != 0)
			_exit(127);
	}
	if (plan->procs_fd >= 0 && write(plan->procs_fd, "0", 1) != 1)
		fail(plan, STEP_CGROUP, errno);
	child_limits(plan);
	/* In there we may have mounts of our own, whatever we may here. */
	if (o->namespace_fd > 0 && setns(o->namespace_fd, CLONE_NEWUSER | CLONE_NEWNS))
		fail(plan, STEP_NAMESPACE, errno);
	if (o->namespace_fd > 0 && o->own_mounts && unshare(CLONE_NEWNS))
		fail(plan, STEP_NAMESPACE, errno);
	if ((plan->own_mounts || (o->namespace_fd > 0 && o->own_mounts)) &&
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fail(plan, STEP_MOUNTS, errno);
	if (o->under_quota)
		child_under_quota(plan);
	child_stdio(plan);
	child_keep(plan);
	if (o->cwd && chdir(o->cwd))
		fail(plan, STEP_CWD, errno);
	if (o->plain_umask)
		(void)umask(022);
	child_signals(plan);
	(void)sigprocmask(SIG_SETMASK, o->sigmask, NULL);
	child_exec(plan);
	_exit(127);
}

#if defined(__x86_64__) || defined(__aarch64__)
/*
 * clone3 without a stack: the child goes on in this very frame, as vfork's does. Hence
 * inline, so that no return address is popped by one and used by the other, and a child
 * path of a single call, so that nothing of the frame is overwritten.
 */
static IN_CHILD __attribute__((noinline)) long clone3_here(struct clone_args *args,
							   struct plan *plan)
{
	long ret;
#if defined(__x86_64__)
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "0"((long)SYS_clone3), "D"(args), "S"(sizeof(*args))
			 : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = (long)sizeof(*args);

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	ret = x0;
#endif
	if (ret == 0)
		child_main(plan);
	return ret;
}
#else
static long clone3_here(struct clone_args *args, struct plan *plan)
{
	(void)args;
	(void)plan;
	return -ENOSYS;
}
#endif

static int start_clone3(struct plan *plan, struct spawn_child *out)
{
	int pidfd = -1;
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	long pid;

	if (plan->own_mounts)
		args.flags |= CLONE_NEWNS;
	if (plan->opts->cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)plan->opts->cgroup_fd;
	}
	pid = clone3_here(&args, plan);
	if (pid < 0)
		return (int)pid;
	*out = (struct spawn_child){(pid_t)pid, pidfd};
	return 0;
}

static IN_CHILD int clone_entry(void *plan)
{
	child_main(plan);
}

/* Where clone3 is missing or forbidden (container filters answer ENOSYS). */
static int start_clone(struct plan *plan, struct spawn_child *out)
{
	int flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;
	int pidfd = -1;
	int ret = 0;
	char *stack;
	pid_t pid;

	if (plan->own_mounts)
		flags |= CLONE_NEWNS;
	if (plan->opts->cgroup_fd >= 0) {
		plan->procs_fd =
			openat(plan->opts->cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
		if (plan->procs_fd < 0)
			return -errno;
	}
	stack = mmap(NULL, CLONE_STACK_SZ, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED) {
		ret = -errno;
		stack = NULL;
	}
	if (stack) {
		pid = clone(clone_entry, stack + CLONE_STACK_SZ, flags, plan, &pidfd);
		if (pid < 0)
			ret = -errno;
		else
			*out = (struct spawn_child){pid, pidfd};
		(void)munmap(stack, CLONE_STACK_SZ);
	}
	if (plan->procs_fd >= 0)
		(void)close(plan->procs_fd);
	plan->procs_fd = -1;
	return ret;
}

static int start_any(struct plan *plan, struct spawn_child *out)
{
	int ret = start_clone3(plan, out);

	if (ret == -ENOSYS)
		ret = start_clone(plan, out);
	if (ret == -EPERM && plan->own_mounts) {
		plan->own_mounts = false;
		return start_any(plan, out);
	}
	return ret;
}

static void free_list(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

static const char *path_of(const char *const *env)
{
	for (; env && *env; env++) {
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	}
	return "/usr/local/bin:/usr/bin:/bin";
}

/* Every file that execvp would try for @name. */
static int list_paths(const char *name, const char *path, char ***out)
{
	size_t nr = 2, i = 0;
	char **list;

	for (const char *p = path; *p; p++)
		nr += *p == ':';
	list = calloc(nr + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	*out = list;
	if (strchr(name, '/') || *name == '\0') {
		list[0] = strdup(name);
		return list[0] ? 0 : -ENOMEM;
	}
	for (;;) {
		size_t len = strcspn(path, ":");

		if (asprintf(&list[i], "%.*s%s%s", (int)len, path, len ? "/" : "", name) < 0) {
			list[i] = NULL;
			return -ENOMEM;
		}
		i++;
		if (path[len] == '\0')
			return 0;
		path += len + 1;
	}
}

static void plan_fini(struct plan *plan)
{
	free_list(plan->paths);
	free(plan->shell);
}

static int plan_init(struct plan *plan, const struct spawn_options *opts)
{
	size_t nr = 0;
	int ret;

	*plan = (struct plan){
		.opts = opts,
		.parent = getpid(),
		/* execve takes them without const for historical reasons only. */
		.words = (char **)(uintptr_t)opts->argv,
		.env = (char **)(uintptr_t)opts->env,
		.procs_fd = -1,
		.own_mounts = opts->own_mounts && opts->namespace_fd <= 0,
	};
	while (opts->argv[nr])
		nr++;
	plan->shell = calloc(nr + 2, sizeof(*plan->shell));
	if (!plan->shell)
		return -ENOMEM;
	plan->shell[0] = (char *)(uintptr_t) "/bin/sh";
	for (size_t i = 1; i < nr; i++)
		plan->shell[i + 1] = plan->words[i];
	ret = list_paths(opts->argv[0], path_of(opts->env), &plan->paths);
	return ret;
}

static int report(const struct plan *plan, struct err *err)
{
	static const char *const steps[] = {
		[STEP_CGROUP] = "join its control group",
		[STEP_LIMITS] = "set its limits",
		[STEP_NAMESPACE] = "join the namespaces of the mount",
		[STEP_CAPS] = "give up CAP_SYS_RESOURCE",
		[STEP_MOUNTS] = "make its mounts private",
		[STEP_STDIO] = "set up its standard streams",
		[STEP_CWD] = "enter",
		[STEP_EXEC] = "execute",
	};
	const char *what = plan->step == STEP_CWD ? plan->opts->cwd : plan->opts->argv[0];

	if (plan->step == STEP_EXEC || plan->step == STEP_CWD)
		return err_set(err, -plan->error, "cannot %s %s: %s", steps[plan->step], what,
			       strerror(plan->error));
	return err_set(err, -plan->error, "%s: cannot %s: %s", what, steps[plan->step],
		       strerror(plan->error));
}

static int start_blocked(struct plan *plan, struct spawn_child *out)
{
	sigset_t all, old;
	int ret;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	ret = start_any(plan, out);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

int spawn_start(const struct spawn_options *opts, struct spawn_child *out, bool *exec_failed,
		struct err *err)
{
	struct plan plan;
	struct spawn_child child = {-1, -1};
	int ret = plan_init(&plan, opts);

	if (exec_failed)
		*exec_failed = false;
	if (ret == 0)
		ret = start_blocked(&plan, &child);
	if (ret) {
		plan_fini(&plan);
		return err_set(err, ret, "cannot start a process for %s: %s", opts->argv[0],
			       strerror(-ret));
	}
	if (plan.step != STEP_NONE) {
		siginfo_t info;

		(void)waitid(P_PID, (id_t)child.pid, &info, WEXITED);
		(void)close(child.pidfd);
		ret = report(&plan, err);
		if (exec_failed)
			*exec_failed = plan.step == STEP_EXEC;
	} else {
		*out = child;
	}
	plan_fini(&plan);
	return ret;
}

int spawn_self(char **out)
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (len < 0)
		return -errno;
	path[len] = '\0';
	/* Replaced by an upgrade: the link still leads to the running one. */
	*out = strdup(access(path, X_OK) == 0 ? path : "/proc/self/exe");
	return *out ? 0 : -ENOMEM;
}

static int spawn_with(const char *const *argv, const posix_spawn_file_actions_t *actions,
		      short flags, pid_t *pid, struct err *err)
{
	posix_spawnattr_t attr;
	sigset_t none, pipe_only;
	int ret;

	(void)sigemptyset(&none);
	(void)sigemptyset(&pipe_only);
	(void)sigaddset(&pipe_only, SIGPIPE);
	ret = posix_spawnattr_init(&attr);
	if (ret)
		return err_set(err, -ret, "out of memory");
	(void)posix_spawnattr_setsigmask(&attr, &none);
	(void)posix_spawnattr_setsigdefault(&attr, &pipe_only);
	(void)posix_spawnattr_setflags(
		&attr, (short)(flags | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
	ret = posix_spawn(pid, argv[0], actions, &attr, (char **)(uintptr_t)argv, environ);
	(void)posix_spawnattr_destroy(&attr);
	if (ret)
		return err_set(err, -ret, "cannot start %s: %s", argv[0], strerror(ret));
	return 0;
}

int spawn_background(const char *const *argv, int log_fd, int keep_fd, pid_t *pid, struct err *err)
{
	posix_spawn_file_actions_t actions;
	/* Above everything that the actions overwrite. */
	auto_close int log_copy = fcntl(log_fd, F_DUPFD_CLOEXEC, 10);
	auto_close int keep_copy = fcntl(keep_fd, F_DUPFD_CLOEXEC, 10);
	int ret;

	if (log_copy < 0 || keep_copy < 0)
		return err_set(err, -errno, "cannot copy a descriptor: %s", strerror(errno));
	ret = posix_spawn_file_actions_init(&actions);
	if (ret)
		return err_set(err, -ret, "out of memory");
	ret = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
	if (ret == 0)
		ret = posix_spawn_file_actions_adddup2(&actions, 0, 1);
	if (ret == 0)
		ret = posix_spawn_file_actions_adddup2(&actions, log_copy, 2);
	if (ret == 0)
		ret = posix_spawn_file_actions_adddup2(&actions, keep_copy, 3);
	if (ret == 0)
		ret = posix_spawn_file_actions_addclosefrom_np(&actions, 4);
	if (ret == 0)
		ret = posix_spawn_file_actions_addchdir_np(&actions, "/");
	if (ret)
		ret = err_set(err, -ret, "out of memory");
	else
		ret = spawn_with(argv, &actions, POSIX_SPAWN_SETSID, pid, err);
	(void)posix_spawn_file_actions_destroy(&actions);
	return ret;
}

int spawn_helper(const char *const *argv, pid_t *pid, struct err *err)
{
	posix_spawn_file_actions_t actions;
	int ret = posix_spawn_file_actions_init(&actions);

	if (ret)
		return err_set(err, -ret, "out of memory");
	ret = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
	if (ret == 0)
		ret = posix_spawn_file_actions_adddup2(&actions, 0, 1);
	if (ret == 0)
		ret = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	if (ret)
		ret = err_set(err, -ret, "out of memory");
	else
		ret = spawn_with(argv, &actions, 0, pid, err);
	(void)posix_spawn_file_actions_destroy(&actions);
	return ret;
}
