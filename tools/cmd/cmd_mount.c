/* tools/cmd/cmd_mount.c - `casbox mount` and `casbox umount` */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/fs.h"
#include "fs/mount/detach.h"
#include "fs/mount/fusermount.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/daemon.h"
#include "tools/logfile.h"

#define STOP_MS 10000 /* for the answer to `stop`, which waits for nothing */
#define GONE_MS 30000

/* A bind costs some 0.1 ms an action, what it saves is 0.4 ms and more a MiB first read. */
#define LARGE_DEFAULT (16 << 20)

struct mount_args {
	bool foreground;
	bool allow_other;
	bool automatic;
	const char *option;
	uint64_t idle_ms;
	uint64_t large;
	int threads;
	int ready_fd; /* 0: none */
	const char *without;
	const char *engine;
	int lanes;
	const char *warm;
};

#define ARG(field) offsetof(struct mount_args, field)
static const struct cli_option mount_options[] = {
	{"foreground", 'f', CLI_FLAG, ARG(foreground), NULL, "serve in this process", false, NULL},
	{"allow-other", 0, CLI_FLAG, ARG(allow_other), NULL, "let other users in, too", true, NULL},
	{"option", 'o', CLI_TEXT, ARG(option), "WORD",
	 "xattr: checksums of inputs, user.* of outputs", true, "xattr"},
	{"idle", 0, CLI_DURATION, ARG(idle_ms), "TIME",
	 "end after so long without sandboxes (0: never)", true, NULL},
	{"threads", 'j', CLI_NUMBER, ARG(threads), "N", "serving threads (default: 2)", true, NULL},
	{"large", 0, CLI_SIZE, ARG(large), "SIZE",
	 "inputs from SIZE on are mounts of their own (0: none)", true, NULL},
	{"warm", 0, CLI_TEXT, ARG(warm), "DIGEST",
	 "have the kernel know this root before its first sandbox", false, NULL},
	{"lanes", 0, CLI_NUMBER, ARG(lanes), "N", "for as many sandboxes at once (1)", false, NULL},
	{"engine", 0, CLI_TEXT, ARG(engine), "ENGINE", NULL, false, NULL},
	{"automatic", 0, CLI_FLAG, ARG(automatic), NULL, NULL, false, NULL},
	{"ready-fd", 0, CLI_NUMBER, ARG(ready_fd), "FD", NULL, false, NULL},
	{"without", 0, CLI_TEXT, ARG(without), "FEATURES", NULL, false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* Absolute, without touching what is mounted there: it may be dead. */
static int absolute_mountpoint(const char *path, char **out, struct err *err)
{
	auto_free char *copy = strdup(path);
	auto_free char *parent = NULL;
	char *slash;
	size_t len;

	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	len = strlen(copy);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	parent = realpath(!slash ? "." : slash == copy ? "/" : copy, NULL);
	if (!parent)
		return err_set(err, -errno, "cannot find the mount point %s: %s", path,
			       strerror(errno));
	if (asprintf(out, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
		     slash ? slash + 1 : copy) < 0) {
		*out = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

/* A symlink, "." or ".." as last component: only now is it safe to look. */
static int resolve_mountpoint(char **path, struct err *err)
{
	char *real;

	if (daemon_is_mountpoint(*path))
		return 0;
	real = realpath(*path, NULL);
	if (!real)
		return err_set(err, -errno, "cannot mount at %s: %s", *path, strerror(errno));
	free(*path);
	*path = real;
	return 0;
}

/* What root made belongs to whom the directory around it does: his own run starts here, too. */
static void give_to_owner(const char *path)
{
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	struct stat up;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != 0 || fstatat(fd, "..", &up, 0) < 0)
		return;
	if (up.st_uid != 0 && fchown(fd, up.st_uid, up.st_gid) < 0)
		log_debug("%s stays root's: %m", path);
}

static int make_automatic(const char *mountpoint)
{
	auto_free char *above = strdup(mountpoint);
	int ret = above ? io_mkdir_parents(AT_FDCWD, mountpoint, 0700) : -ENOMEM;

	if (ret == 0 && geteuid() == 0) {
		give_to_owner(dirname(above));
		give_to_owner(mountpoint);
	}
	return ret;
}

/* The background process works in "/": nothing may stay relative. */
static int make_absolute(struct cli *cli, char **blobs, struct err *err)
{
	struct cas_store_options opts = {.path = cli->store, .blobs = cli->blobs, .create = true};
	struct cas_store *store = NULL;
	auto_free char *cwd = NULL;
	char *path;
	int ret = cas_store_open(&opts, &store, err);

	if (ret)
		return ret;
	path = strdup(cas_store_path(store));
	cas_store_close(store);
	if (!path)
		return err_set(err, -ENOMEM, "out of memory");
	free(cli->store);
	cli->store = path;
	if (!cli->blobs || cli->blobs[0] == '/')
		return 0;
	cwd = getcwd(NULL, 0);
	if (!cwd || asprintf(blobs, "%s/%s", cwd, cli->blobs) < 0) {
		*blobs = NULL;
		return err_set(err, -ENOMEM, "cannot make %s absolute", cli->blobs);
	}
	cli->blobs = *blobs;
	return 0;
}

/* The root to warm as the daemon takes it. */
static int resolve_warm(struct cli *cli, struct mount_args *args, char out[CAS_DIGEST_STR_SZ],
			struct err *err)
{
	struct cas_store_options opts = {.path = cli->store, .blobs = cli->blobs};
	struct cas_store *store = NULL;
	struct cas_digest digest;
	int ret = cas_store_open(&opts, &store, err);

	if (ret == 0)
		ret = cli_digest(cli, store, args->warm, &digest, err);
	cas_store_close(store);
	if (ret < 0)
		return ret;
	args->warm = cas_digest_format(&digest, '/', out);
	return 0;
}

static int clear_the_way(const struct cli *cli, const char *mountpoint, struct err *err)
{
	struct daemon daemon = {0};
	int ret = daemon_find(cli->store, &daemon, err);

	if (ret == 1 && strcmp(daemon.mountpoint, mountpoint) == 0)
		ret = err_set(err, -EBUSY, "the store is already mounted at %s (pid %d)",
			      mountpoint, (int)daemon.pid);
	else if (ret == 1)
		ret = daemon_take_over(&daemon, err);
	daemon_fini(&daemon);
	if (ret == 0)
		ret = fs_detach_dead(mountpoint, err);
	return ret < 0 ? ret : 0;
}

struct ready {
	int fd;
};

static void on_ready(void *ctx)
{
	struct ready *ready = ctx;

	if (ready->fd > 0) {
		(void)!write(ready->fd, "ready\n", 6);
		(void)close(ready->fd);
		ready->fd = 0;
	}
}

/* Whoever started us waits for one line. */
static void tell_failure(struct ready *ready, const char *text)
{
	if (ready->fd > 0) {
		(void)io_write_full(ready->fd, text, strlen(text));
		(void)close(ready->fd);
		ready->fd = 0;
	}
}

static enum cas_durability durability_of(const char *word)
{
	if (word && strcmp(word, "none") == 0)
		return CAS_DURABILITY_NONE;
	return word && strcmp(word, "full") == 0 ? CAS_DURABILITY_FULL : CAS_DURABILITY_BATCH;
}

static int serve(const struct cli *cli, const struct mount_args *args, const char *mountpoint,
		 struct err *err)
{
	struct ready ready = {args->ready_fd};
	auto_free char *beside = NULL;
	struct fs_options opts = {
		.store = cli->store,
		.blobs = cli->blobs,
		.tiers = cli->tiers.items,
		.nr_tiers = cli->tiers.nr,
		.mountpoint = mountpoint,
		.allow_other = args->allow_other,
		.xattr = args->option != NULL,
		.nr_threads = args->threads,
		.idle_s = (int)((args->idle_ms + 999) / 1000),
		.automatic = args->automatic,
		.own_namespace = args->automatic,
		.durability = durability_of(cli->durability),
		.quota = cli->quota,
		.spool_max_bytes = cli->spool_max_bytes,
		.spool_max_blobs = cli_spool_count(cli),
		.large_min = args->large,
		.without = args->without,
		.engine = args->engine,
		.lanes = args->lanes,
		.warm = args->warm,
	};
	int ret = daemon_beside_path(cli->store, &beside, err);

	if (ret)
		return ret;
	opts.beside = beside;
	/* A client that left is no reason to end. */
	(void)signal(SIGPIPE, SIG_IGN);
	if (ready.fd > 0) {
		(void)fcntl(ready.fd, F_SETFD, FD_CLOEXEC);
		logfile_begin(cli->store);
	}
	ret = fs_serve(&opts, on_ready, &ready, err);
	if (ret)
		tell_failure(&ready, err_text(err, ret));
	return ret;
}

static int mount_at(struct cli *cli, struct mount_args *args, char **mountpoint, struct err *err)
{
	struct daemon_start start = {
		.automatic = args->automatic,
		.allow_other = args->allow_other,
		.option = args->option,
		.threads = args->threads,
		.idle_ms = args->idle_ms,
		.large = args->large,
		.without = args->without,
		.engine = args->engine,
		.lanes = args->lanes,
	};
	auto_free char *blobs = NULL;
	auto_free char *given = NULL;
	char warm[CAS_DIGEST_STR_SZ];
	int ret;

	/* The parent has prepared everything. */
	if (args->ready_fd > 0)
		return serve(cli, args, *mountpoint, err);
	ret = make_absolute(cli, &blobs, err);
	if (ret == 0 && args->warm)
		ret = resolve_warm(cli, args, warm, err);
	start.warm = args->warm;
	if (ret == 0 && args->automatic)
		ret = make_automatic(*mountpoint);
	if (ret)
		return err->code ? ret
				 : err_set(err, ret, "cannot make %s: %s", *mountpoint,
					   strerror(-ret));
	given = steal_ptr(mountpoint);
	ret = absolute_mountpoint(given, mountpoint, err);
	if (ret == 0)
		ret = clear_the_way(cli, *mountpoint, err);
	if (ret == 0)
		ret = resolve_mountpoint(mountpoint, err);
	if (ret)
		return ret;
	if (args->foreground)
		return serve(cli, args, *mountpoint, err);
	start.mountpoint = *mountpoint;
	return daemon_start(cli, &start, err);
}

int cmd_mount(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct mount_args args = {.large = LARGE_DEFAULT};
	struct cli_words words = {0};
	auto_free char *mountpoint = NULL;
	int ret = cli_parse(cli, mount_options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 1, 1, err);
	if (ret)
		return ret;
	if (words.argv[0][0] == '\0')
		return cli_usage(cli, err, "the mount point is empty");
	if (args.engine && strcmp(args.engine, "fuse") != 0 &&
	    strcmp(args.engine, "fuse-shared") != 0)
		return cli_usage(cli, err, "--engine %s: fuse or fuse-shared", args.engine);
	if (args.lanes > 0 && !args.warm)
		return cli_usage(cli, err, "--lanes is for --warm");
	if (args.lanes > FS_LANES_MAX)
		return cli_usage(cli, err, "--lanes: at most %d", FS_LANES_MAX);
	if (args.warm && args.lanes == 0)
		args.lanes = 1;
	mountpoint = strdup(words.argv[0]);
	if (!mountpoint)
		return err_set(err, -ENOMEM, "out of memory");
	return mount_at(cli, &args, &mountpoint, err);
}

struct umount_args {
	bool force;
	bool lazy;
};

static const struct cli_option umount_options[] = {
	{"force", 0, CLI_FLAG, offsetof(struct umount_args, force), NULL,
	 "hardly wait for what runs; abort it when it is stuck", false, NULL},
	{"lazy", 'l', CLI_FLAG, offsetof(struct umount_args, lazy), NULL,
	 "detach now, end when nobody uses it", false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* Tell the daemon of @mountpoint to end; *pid is its process when it says so. */
static int stop_daemon(const char *mountpoint, bool force, pid_t *pid, struct err *err)
{
	const char *const version[] = {"version"};
	const char *const stop[] = {"stop", "--force"};
	struct client *client = NULL;
	json_t *answer = NULL;
	int ret = client_open(mountpoint, -1, &client, err);

	if (ret == 0)
		ret = client_ask(client, version, 1, STOP_MS, &answer, err);
	if (ret == 0) {
		*pid = (pid_t)json_integer_value(json_object_get(answer, "pid"));
		ret = client_ask(client, stop, force ? 2 : 1, STOP_MS, NULL, err);
	}
	json_decref(answer);
	client_close(client);
	return ret;
}

/* A mount that answers nobody: abort its connection, end its process, detach. */
static int force_end(const char *mountpoint, pid_t pid, struct err *err)
{
	if (pid > 0)
		(void)kill(pid, SIGKILL);
	/* A thread of it may wait for an answer, or for who waits for one, and then does not die.
	 */
	(void)fs_mounts_abort(mountpoint);
	if (pid > 0)
		(void)daemon_wait_gone(pid, GONE_MS);
	while (daemon_is_mounted(mountpoint)) {
		int ret = fs_mount_remove(mountpoint, true, err);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static int wait_ended(const char *mountpoint, pid_t pid, struct err *err)
{
	int ret = pid > 0 ? daemon_wait_gone(pid, GONE_MS) : 0;

	for (int i = 0; ret == 0 && daemon_is_mounted(mountpoint) && i < 1000; i++)
		(void)usleep(10000);
	if (ret || daemon_is_mounted(mountpoint))
		return err_set(err, -ETIMEDOUT, "%s (pid %d) was told to end and has not",
			       mountpoint, (int)pid);
	return 0;
}

/* The daemon is gone, or was when it was asked. */
static int umount_dead(const char *mountpoint, struct err *err)
{
	int ret = fs_detach_dead(mountpoint, err);

	if (ret > 0)
		return 0;
	/* It ended between the two looks. */
	if (ret == 0 && daemon_is_mounted(mountpoint))
		ret = err_set(err, -EBUSY, "cannot end the mount at %s", mountpoint);
	return ret;
}

/* @known: the daemon that the store has recorded for this place, or all zero. */
static int umount_at(const char *mountpoint, const struct umount_args *args,
		     const struct daemon *known, struct err *err)
{
	auto_free char *path = daemon_see(known, mountpoint);
	pid_t pid = known->pid;
	int ret;

	if (!path)
		return err_set(err, -ENOMEM, "out of memory");
	/* One in the daemon's own namespace goes with it. */
	if (!known->hidden && !daemon_is_mounted(mountpoint))
		return err_set(err, -EINVAL, "nothing is mounted at %s", mountpoint);
	if (known->stopped)
		ret = err_set(err, -ETIMEDOUT,
			      "the daemon of %s (pid %d) is stopped; 'kill -CONT %d' wakes it, "
			      "--force ends it",
			      mountpoint, (int)pid, (int)pid);
	else
		ret = stop_daemon(path, args->force, &pid, err);
	/* Stopped after it was told, it does not end either. */
	if (ret == 0)
		ret = wait_ended(mountpoint, pid, err);
	if (ret == -ENOTCONN || ret == -EPROTO)
		return umount_dead(mountpoint, err);
	if (args->force && ret == -ETIMEDOUT)
		return force_end(mountpoint, pid, err);
	if (args->lazy && ret == -EBUSY && !known->hidden)
		return fs_mount_remove(mountpoint, true, err);
	return ret;
}

/* What a daemon that was killed had beside its mount. */
static void clear_beside(const struct cli *cli)
{
	auto_free char *path = NULL;
	auto_free char *store = realpath(cli->store, NULL);
	struct err err = {0};
	int ret = daemon_beside_path(store ? store : cli->store, &path, &err);

	if (ret == 0)
		ret = fs_detach_dead(path, &err);
	if (ret < 0)
		log_warn("%s", err_text(&err, ret));
	else if (ret > 0)
		(void)rmdir(path);
}

static int umount_store(const struct cli *cli, const struct umount_args *args, struct err *err)
{
	struct daemon daemon = {0};
	int ret = daemon_find(cli->store, &daemon, err);

	if (ret == 0)
		ret = err_set(err, -ENOENT, "no mount serves the store %s", cli->store);
	if (ret == 1)
		ret = umount_at(daemon.mountpoint, args, &daemon, err);
	daemon_fini(&daemon);
	return ret;
}

static int umount_path(const struct cli *cli, const struct umount_args *args,
		       const char *mountpoint, struct err *err)
{
	static const struct daemon unknown = {0};
	struct daemon daemon = {0};
	bool known = daemon_find(cli->store, &daemon, NULL) == 1 &&
		     strcmp(daemon.mountpoint, mountpoint) == 0;
	int ret = umount_at(mountpoint, args, known ? &daemon : &unknown, err);

	daemon_fini(&daemon);
	clear_beside(cli);
	return ret;
}

int cmd_umount(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct umount_args args = {0};
	struct cli_words words = {0};
	auto_free char *mountpoint = NULL;
	int ret = cli_parse(cli, umount_options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 0, 1, err);
	if (ret)
		return ret;
	if (words.argc == 0)
		return umount_store(cli, &args, err);
	ret = absolute_mountpoint(words.argv[0], &mountpoint, err);
	if (ret == 0 && !daemon_is_mountpoint(mountpoint)) {
		char *real = realpath(mountpoint, NULL);

		if (real) {
			free(mountpoint);
			mountpoint = real;
		}
	}
	return ret ? ret : umount_path(cli, &args, mountpoint, err);
}
