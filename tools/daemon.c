/* tools/daemon.c - find, start and wait for the daemon of a store */
#include "tools/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/logfile.h"
#include "tools/run/spawn.h"

#define RECORD_MAX  65536
#define START_MS    30000 /* from spawn to a usable mount */
#define GONE_MS	    30000 /* for a daemon that was told to stop */
#define STARTING_MS 3000
#define DYING_MS    10000 /* from SIGKILL to the last of its locks */

void daemon_fini(struct daemon *daemon)
{
	free(daemon->mountpoint);
	*daemon = (struct daemon){0};
}

static int join(char **out, const char *dir, const char *name, struct err *err)
{
	if (asprintf(out, "%s/%s", dir, name) < 0) {
		*out = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

/* Is the writer's lock of the store held by anyone? Asked without taking it. */
static bool writer_lock_held(const char *store)
{
	struct flock lock = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = CAS_LAYOUT_LOCK_WRITER,
		.l_len = 1,
	};
	auto_free char *path = NULL;
	auto_close int fd = -1;

	if (join(&path, store, "lock", NULL))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool same_boot(const char *boot_id)
{
	auto_buf struct buf text = {0};
	size_t len = strlen(boot_id);

	return io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096, &text) == 0 &&
	       strncmp(buf_str(&text), boot_id, len) == 0 && len > 0 &&
	       (text.data[len] == '\n' || text.data[len] == '\0');
}

static bool process_lives(pid_t pid)
{
	return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/* In state T or t: stopped by a signal, or by a debugger. */
static bool process_stopped(pid_t pid)
{
	auto_buf struct buf text = {0};
	char path[48];
	const char *p;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (io_read_file(AT_FDCWD, path, 65536, &text))
		return false;
	p = strrchr(buf_str(&text), ')');
	return p && (p[2] == 'T' || p[2] == 't');
}

static int read_record(const char *store, json_t **out, struct err *err)
{
	auto_buf struct buf text = {0};
	auto_free char *path = NULL;
	json_error_t why;
	int ret = join(&path, store, "run/daemon", err);

	if (ret)
		return ret;
	ret = io_read_file(AT_FDCWD, path, RECORD_MAX, &text);
	if (ret == -ENOENT || ret == -ENOTDIR)
		return 0;
	if (ret)
		return err_set(err, ret, "cannot read %s: %s", path, strerror(-ret));
	/* A record that is none says nothing: it is written whole, by renaming. */
	*out = json_loadb(text.data ? text.data : "", text.len, 0, &why);
	return json_is_object(*out) ? 1 : 0;
}

int daemon_find(const char *store, struct daemon *out, struct err *err)
{
	json_t *record = NULL;
	int ret = read_record(store, &record, err);
	pid_t pid = 0;

	if (ret == 1) {
		pid = (pid_t)json_integer_value(json_object_get(record, "pid"));
		if (!same_boot(client_text(record, "boot_id")) || !process_lives(pid))
			ret = 0;
		/* It keeps its locks until its last thread is gone. */
		else if (process_is_dying(pid) && daemon_wait_gone(pid, DYING_MS) == 0)
			ret = 0;
		else if (!writer_lock_held(store))
			ret = 0;
	}
	if (ret == 1) {
		out->mountpoint = strdup(client_text(record, "mountpoint"));
		out->pid = pid;
		out->automatic = json_is_true(json_object_get(record, "automatic"));
		out->hidden = (pid_t)json_integer_value(json_object_get(record, "hidden"));
		out->stopped = process_stopped(pid);
		if (!out->mountpoint)
			ret = err_set(err, -ENOMEM, "out of memory");
	}
	json_decref(record);
	return ret;
}

char *daemon_see(const struct daemon *daemon, const char *path)
{
	char *out;

	if (!daemon->hidden)
		return strdup(path);
	return asprintf(&out, "/proc/%d/root%s", (int)daemon->hidden, path) < 0 ? NULL : out;
}

int daemon_wait_gone(pid_t pid, int timeout_ms)
{
	unsigned long long end = lock_now_ns() + (unsigned long long)timeout_ms * 1000000;
	auto_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fd < 0)
		return errno == ESRCH ? 0 : -errno;
	for (;;) {
		unsigned long long now = lock_now_ns();
		int nr = poll(&p, 1, now < end ? (int)((end - now) / 1000000) + 1 : 0);

		if (nr > 0)
			return 0;
		if (nr == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

int daemon_take_over(const struct daemon *daemon, struct err *err)
{
	const char *const words[] = {"stop", "--if-idle"};
	struct client *client = NULL;
	int ret;

	if (!daemon->automatic)
		return err_set(err, -EBUSY, "the store is already served at %s (pid %d)",
			       daemon->mountpoint, (int)daemon->pid);
	ret = client_open_daemon(daemon, -1, &client, err);
	if (ret == 0)
		ret = client_ask(client, words, 2, CLIENT_QUICK_MS, NULL, err);
	client_close(client);
	/* It may have ended by itself meanwhile, answer or no answer. */
	if (ret == -ENOTCONN || ret == -ENOENT || ret == -EPROTO)
		ret = 0;
	if (ret == 0 && daemon_wait_gone(daemon->pid, GONE_MS))
		ret = err_set(err, -ETIMEDOUT, "the idle mount at %s (pid %d) does not end",
			      daemon->mountpoint, (int)daemon->pid);
	return ret;
}

/* The command line that serves in the background, telling descriptor 3 how it went. */
struct start_args {
	char threads[16];
	char idle[32];
	char large[32];
	char quota[3][32];
	char spool[2][32];
	char lanes[16];
	const char *words[48 + 2 * CLI_TIERS_MAX];
	size_t nr;
};

static void add_word(struct start_args *a, const char *word, const char *value)
{
	a->words[a->nr++] = word;
	if (value)
		a->words[a->nr++] = value;
}

static void add_quota(struct start_args *a, const struct cas_quota *quota)
{
	const char *const names[3] = {"--max-size", "--low-size", "--max-blobs"};
	const uint64_t values[3] = {quota->max_bytes, quota->low_bytes, quota->max_blobs};

	for (size_t i = 0; i < 3; i++) {
		if (values[i] == CAS_QUOTA_NONE)
			continue;
		(void)snprintf(a->quota[i], sizeof(a->quota[i]), "%llu",
			       (unsigned long long)values[i]);
		add_word(a, names[i], a->quota[i]);
	}
}

static void add_spool(struct start_args *a, const struct cli *cli)
{
	const char *const names[2] = {"--spool-max-bytes", "--spool-max-count"};
	const uint64_t values[2] = {cli->spool_max_bytes, cli->spool_max_count};

	for (size_t i = 0; i < 2; i++) {
		if (values[i] == 0)
			continue;
		(void)snprintf(a->spool[i], sizeof(a->spool[i]), "%llu",
			       (unsigned long long)values[i]);
		add_word(a, names[i], a->spool[i]);
	}
}

/* @serve: be the daemon, and tell descriptor 3; else: start one and wait for it. */
static void make_args(struct start_args *a, const char *self, const struct cli *cli,
		      const struct daemon_start *start, bool serve)
{
	*a = (struct start_args){0};
	(void)snprintf(a->threads, sizeof(a->threads), "%d", start->threads);
	(void)snprintf(a->large, sizeof(a->large), "%llu", (unsigned long long)start->large);
	(void)snprintf(a->idle, sizeof(a->idle), "%llums", (unsigned long long)start->idle_ms);
	add_word(a, self, NULL);
	add_word(a, "--store", cli->store);
	if (cli->blobs)
		add_word(a, "--blobs", cli->blobs);
	for (size_t i = 0; i < cli->tiers.nr && i < CLI_TIERS_MAX; i++)
		add_word(a, "--tier", cli->tiers.items[i]);
	if (cli->durability)
		add_word(a, "--durability", cli->durability);
	add_quota(a, &cli->quota);
	add_spool(a, cli);
	add_word(a, "--log-level", cli->log_level ? cli->log_level : "info");
	add_word(a, "mount", serve ? "--ready-fd=3" : NULL);
	add_word(a, "--threads", a->threads);
	add_word(a, "--idle", a->idle);
	if (serve)
		add_word(a, "--large", a->large);
	if (start->automatic)
		add_word(a, "--automatic", NULL);
	if (start->allow_other)
		add_word(a, "--allow-other", NULL);
	if (start->option)
		add_word(a, "--option", start->option);
	if (start->without)
		add_word(a, "--without", start->without);
	if (start->engine)
		add_word(a, "--engine", start->engine);
	if (start->warm) {
		(void)snprintf(a->lanes, sizeof(a->lanes), "%d", start->lanes);
		add_word(a, "--lanes", a->lanes);
		add_word(a, "--warm", start->warm);
	}
	add_word(a, "--", start->mountpoint);
}

/* The daemon's word on @fd: "ready", or what went wrong, or nothing when it died. */
static int wait_ready(int fd, pid_t pid, const char *mountpoint, struct err *err)
{
	unsigned long long end = lock_now_ns() + START_MS * 1000000ULL;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[ERR_MSG_SZ] = "";
	size_t len = 0;
	int status = 0;

	while (len < sizeof(text) - 1 && !memchr(text, '\n', len)) {
		unsigned long long now = lock_now_ns();
		ssize_t got;

		if (now >= end) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, &status, 0);
			return err_set(err, -ETIMEDOUT, "the mount at %s was not ready in %d s",
				       mountpoint, START_MS / 1000);
		}
		if (poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0)
			continue;
		got = read(fd, text + len, sizeof(text) - 1 - len);
		if (got <= 0)
			break;
		len += (size_t)got;
	}
	text[strcspn(text, "\n")] = '\0';
	if (strcmp(text, "ready") == 0)
		return 0;
	(void)waitpid(pid, &status, 0);
	if (*text)
		return err_set(err, -EIO, "%s", text);
	return err_set(err, -EIO,
		       "the daemon for %s ended before it was ready (status 0x%x); see "
		       "run/log in the store",
		       mountpoint, status);
}

int daemon_start(const struct cli *cli, const struct daemon_start *start, struct err *err)
{
	auto_free char *self = NULL;
	auto_close int log_fd = -1;
	auto_close int read_fd = -1;
	auto_close int write_fd = -1;
	struct start_args args;
	pid_t pid = 0;
	int fds[2];
	int ret = spawn_self(&self);

	if (ret)
		return err_set(err, ret, "cannot find our own program: %s", strerror(-ret));
	log_fd = logfile_open(cli->store, err);
	if (log_fd < 0)
		return log_fd;
	if (pipe2(fds, O_CLOEXEC))
		return err_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
	read_fd = fds[0];
	write_fd = fds[1];
	make_args(&args, self, cli, start, true);
	ret = spawn_background(args.words, log_fd, write_fd, &pid, err);
	if (ret)
		return ret;
	(void)close(steal_fd(&write_fd));
	return wait_ready(read_fd, pid, start->mountpoint, err);
}

/* A name for the store that fits a path: of its own path, since two may share a disk. */
static int store_id(const char *store, char out[17])
{
	struct cas_digest digest;
	char hex[CAS_HASH_HEX_SZ + 1];
	int ret = cas_hash_bytes(store, strlen(store), &digest);

	if (ret)
		return ret;
	cas_hash_format(digest.hash, hex);
	memcpy(out, hex, 16);
	out[16] = '\0';
	return 0;
}

static int place_of(const char *store, const char *suffix, char **out, struct err *err)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char id[17];
	int ret = store_id(store, id);

	if (ret)
		return err_set(err, ret, "cannot hash %s: %s", store, strerror(-ret));
	if (runtime && runtime[0] == '/' && access(runtime, W_OK) == 0)
		ret = asprintf(out, "%s/casbox/%s%s", runtime, id, suffix);
	else
		ret = asprintf(out, "%s/run/casbox/%s%s", store, id, suffix);
	if (ret < 0) {
		*out = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

int daemon_automatic_path(const char *store, char **out, struct err *err)
{
	return place_of(store, "", out, err);
}

/* Not below the automatic place, which may be the mount point itself. */
int daemon_beside_path(const char *store, char **out, struct err *err)
{
	return place_of(store, ".sandboxes", out, err);
}

static int lock_start(const char *store, struct err *err)
{
	auto_free char *path = NULL;
	int ret = join(&path, store, "run/start.lock", err);
	int fd;

	if (ret)
		return ret;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	io_give_to_dir_owner(fd, path);
	while (flock(fd, LOCK_EX)) {
		if (errno != EINTR) {
			ret = -errno;
			(void)close(fd);
			return err_set(err, ret, "cannot lock %s: %s", path, strerror(-ret));
		}
	}
	return fd;
}

/*
 * `mount` starts the daemon and ends: the daemon must not be our child, or what cleans
 * up behind a command would take it for something the command left.
 */
static int start_automatic(const struct cli *cli, const char *mountpoint, uint64_t idle_ms,
			   struct err *err)
{
	struct daemon_start start = {
		.mountpoint = mountpoint, .automatic = true, .idle_ms = idle_ms};
	auto_free char *self = NULL;
	struct start_args args;
	pid_t pid = 0;
	int status = 0;
	int ret = spawn_self(&self);

	if (ret)
		return err_set(err, ret, "cannot find our own program: %s", strerror(-ret));
	make_args(&args, self, cli, &start, false);
	ret = spawn_helper(args.words, &pid, err);
	if (ret)
		return ret;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(err, -EIO, "cannot start a mount for the store at %s", mountpoint);
	return 0;
}

/* As daemon_find, but whoever holds the lock without a record may be about to serve. */
static int find_or_free(const char *store, struct daemon *out, struct err *err)
{
	int ret = daemon_find(store, out, err);

	for (int i = 0; i < STARTING_MS / 20 && ret == 0 && writer_lock_held(store); i++) {
		(void)usleep(20000);
		ret = daemon_find(store, out, err);
	}
	return ret;
}

static int ensure_locked(const struct cli *cli, const char *store, uint64_t idle_ms,
			 struct daemon *out, struct err *err)
{
	auto_free char *path = NULL;
	auto_close int lock_fd = lock_start(store, err);
	int ret;

	if (lock_fd < 0)
		return lock_fd;
	ret = find_or_free(store, out, err);
	if (ret)
		return ret < 0 ? ret : 0;
	ret = daemon_automatic_path(store, &path, err);
	if (ret)
		return ret;
	ret = start_automatic(cli, path, idle_ms, err);
	if (ret)
		return ret;
	ret = daemon_find(store, out, err);
	if (ret == 0)
		ret = err_set(err, -EIO, "the mount at %s ended at once; see run/log in the store",
			      path);
	return ret < 0 ? ret : 0;
}

int daemon_ensure(const struct cli *cli, const char *store, uint64_t idle_ms, struct daemon *out,
		  struct err *err)
{
	int ret = daemon_find(store, out, err);

	if (ret)
		return ret < 0 ? ret : 0;
	return ensure_locked(cli, store, idle_ms, out, err);
}

/* Is something of @type (NULL: of any) mounted exactly at @path? */
static bool is_mounted(const char *path, const char *type)
{
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	bool found = false;

	if (mountinfo_read_self(&mounts) < 0)
		return false;
	while (!found && mountinfo_next(&mounts, &e))
		found = strcmp(e.path, path) == 0 && (!type || strcmp(e.type, type) == 0);
	mountinfo_fini(&mounts);
	return found;
}

bool daemon_is_mountpoint(const char *path)
{
	return is_mounted(path, NULL);
}

bool daemon_is_mounted(const char *path)
{
	return is_mounted(path, "fuse.casbox");
}
