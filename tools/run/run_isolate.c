/* tools/run/run_isolate.c - `run --isolate`: the command's words inside of bubblewrap */
#include "tools/run/run_isolate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/sandbox/outputs.h"
#include "tools/cli.h"

/*
 * What bwrap reports as exit status is the command's, or 1 when it could not even begin.
 * To tell them apart a shell inside writes one byte to descriptor 3 and becomes env, which
 * clears what bwrap and the shell have set (PWD) and answers 126 and 127 as a shell does.
 */
#define FIRST_WORDS "echo >&3; exec 3>&- /usr/bin/env -i -- \"$@\""

/* What programs need to start, and certificates. No user's files, no keys, no settings. */
static const char *const default_paths[] = {
	"/usr",
	"/bin",
	"/sbin",
	"/lib",
	"/lib32",
	"/lib64",
	"/libx32",
	"/etc/alternatives",
	"/etc/ca-certificates",
	"/etc/group",
	"/etc/ld.so.cache",
	"/etc/ld.so.conf",
	"/etc/ld.so.conf.d",
	"/etc/localtime",
	"/etc/nsswitch.conf",
	"/etc/passwd",
	"/etc/pki/tls/certs",
	"/etc/ssl/certs",
	"/etc/ssl/openssl.cnf",
	NULL,
};

/* And where there is a network. */
static const char *const net_paths[] = {"/etc/hosts", "/etc/protocols", "/etc/resolv.conf",
					"/etc/services", NULL};

static int add_path(struct run_host *host, const char *path)
{
	char **grown = reallocarray(host->paths, host->nr + 2, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	host->paths = grown;
	grown[host->nr] = strdup(path);
	grown[host->nr + 1] = NULL;
	return grown[host->nr++] ? 0 : -ENOMEM;
}

static int add_existing(struct run_host *host, const char *const *list)
{
	struct stat st;
	int ret = 0;

	for (; *list && ret == 0; list++) {
		if (lstat(*list, &st) == 0)
			ret = add_path(host, *list);
	}
	return ret;
}

static int compare_paths(const void *a, const void *b)
{
	return fs_path_compare(*(char *const *)a, *(char *const *)b);
}

static int add_asked(struct run_host *host, const char *path, struct err *err)
{
	struct stat st;

	if (path[0] != '/' || strstr(path, "/../") || strcmp(path, "/") == 0 ||
	    fs_path_within(path, RUN_INSIDE) || fs_path_within(path, "/proc") ||
	    fs_path_within(path, "/dev"))
		return err_set(
			err, -EINVAL,
			"--host-path wants an absolute path without \"..\" that is not %s, /proc, "
			"/dev or /, not \"%s\"",
			RUN_INSIDE, path);
	if (lstat(path, &st))
		return err_set(err, -errno, "--host-path %s: %s", path, strerror(errno));
	return add_path(host, path);
}

int run_host_init(struct run_host *host, const struct cli_list *asked, bool net, struct err *err)
{
	size_t kept = 0;
	int ret = add_existing(host, default_paths);

	if (ret == 0 && net)
		ret = add_existing(host, net_paths);
	for (size_t i = 0; i < asked->nr && ret == 0; i++)
		ret = add_asked(host, asked->items[i], err);
	if (ret)
		return ret == -ENOMEM ? err_set(err, ret, "out of memory") : ret;
	/* What lies in a directory that is shown comes with it. */
	qsort(host->paths, host->nr, sizeof(*host->paths), compare_paths);
	for (size_t i = 0; i < host->nr; i++) {
		if (kept > 0 && fs_path_within(host->paths[i], host->paths[kept - 1]))
			free(host->paths[i]);
		else
			host->paths[kept++] = host->paths[i];
	}
	host->nr = kept;
	host->net = net;
	return 0;
}

void run_host_fini(struct run_host *host)
{
	for (size_t i = 0; i < host->nr; i++)
		free(host->paths[i]);
	free(host->paths);
	*host = (struct run_host){0};
}

int run_host_forbid(const struct run_host *host, const char *what, const char *path,
		    struct err *err)
{
	for (size_t i = 0; i < host->nr; i++) {
		char real[PATH_MAX];

		if (!realpath(host->paths[i], real))
			continue;
		if (fs_path_within(path, real) || fs_path_within(real, path))
			return err_set(err, -EPERM,
				       "--isolate would show %s at %s, with the host's %s", what,
				       path, host->paths[i]);
	}
	return 0;
}

static int find_bwrap(char **out, struct err *err)
{
	const char *path = getenv("PATH");

	for (path = path ? path : "/usr/bin:/bin"; *path;) {
		size_t len = strcspn(path, ":");
		auto_free char *file = NULL;

		if (asprintf(&file, "%.*s/bwrap", (int)len, path) < 0) {
			file = NULL;
			return err_set(err, -ENOMEM, "out of memory");
		}
		if (len > 0 && access(file, X_OK) == 0) {
			*out = steal_ptr(&file);
			return 0;
		}
		path += len + (path[len] == ':');
	}
	return err_set(err, -ENOENT,
		       "--isolate needs bubblewrap, and there is no bwrap in PATH: install the "
		       "package bubblewrap");
}

/* Words, owned; NULL at the end. A failed word makes all of them fail. */
struct words {
	char **list;
	size_t nr;
	bool failed;
};

static void say(struct words *w, const char *word)
{
	char **grown = reallocarray(w->list, w->nr + 2, sizeof(*grown));

	if (!grown) {
		w->failed = true;
		return;
	}
	w->list = grown;
	grown[w->nr] = strdup(word);
	grown[w->nr + 1] = NULL;
	w->failed |= grown[w->nr] == NULL;
	w->nr += grown[w->nr] != NULL;
}

static void say_all(struct words *w, const char *const *list)
{
	for (; *list; list++)
		say(w, *list);
}

/* Links into /usr, as a merged system has them, stay links. */
static void say_host_path(struct words *w, const char *path)
{
	char target[PATH_MAX];
	ssize_t len = readlink(path, target, sizeof(target) - 1);
	char real[PATH_MAX];

	if (len > 0)
		target[len] = '\0';
	if (len > 0 && strchr(path + 1, '/') == NULL && strncmp(target, "usr/", 4) == 0) {
		say_all(w, (const char *const[]){"--symlink", target, path, NULL});
	} else if (realpath(path, real)) {
		say_all(w, (const char *const[]){"--ro-bind", real, path, NULL});
	}
}

/*
 * Root owns the switches of the kernel, and a plain user those of the namespaces that are
 * made for him (/proc/sys/fs/mqueue). Bubblewrap covers what it may write itself, which is
 * not all that its owner may without capabilities.
 */
static void say_proc(struct words *w)
{
	auto_closedir DIR *dir = opendir("/proc");
	struct dirent *de;

	say_all(w, (const char *const[]){"--proc", "/proc", NULL});
	while (dir && (de = readdir(dir)) != NULL) {
		auto_free char *path = NULL;
		struct stat st;

		if ((de->d_name[0] >= '0' && de->d_name[0] <= '9') || de->d_name[0] == '.' ||
		    fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !(S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && st.st_mode & 0222)))
			continue;
		if (asprintf(&path, "/proc/%s", de->d_name) < 0) {
			path = NULL;
			w->failed = true;
			return;
		}
		say_all(w, (const char *const[]){"--ro-bind", path, path, NULL});
	}
}

/* Parents that bubblewrap makes by itself are closed to others. */
static void say_parents(struct words *w, const char *path)
{
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		auto_free char *parent = strndup(path, (size_t)(slash - path));

		if (parent)
			say_all(w, (const char *const[]){"--dir", parent, NULL});
	}
}

static void say_places(struct words *w, const struct run_host *host, const char *top)
{
	say_proc(w);
	say_all(w, (const char *const[]){"--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp",
					 "--dir", "/var", "--symlink", "../tmp", "/var/tmp", NULL});
	for (size_t i = 0; i < host->nr; i++) {
		if (strncmp(host->paths[i], "/etc/", 5) == 0)
			say_parents(w, host->paths[i]);
		say_host_path(w, host->paths[i]);
	}
	say_all(w, (const char *const[]){"--bind", top, RUN_INSIDE, "--remount-ro", "/", NULL});
}

int run_isolate_words(const struct run_host *host, const char *top, const char *workdir,
		      const char *const *argv, const char *const *env, char ***out, struct err *err)
{
	static const char *const fixed[] = {"--unshare-all",
					    "--die-with-parent",
					    "--new-session",
					    "--hostname",
					    "casbox",
					    "--cap-drop",
					    "ALL",
					    "--clearenv",
					    NULL};
	struct words w = {0};
	auto_free char *bwrap = NULL;
	auto_free char *cwd = NULL;
	int ret = find_bwrap(&bwrap, err);

	if (ret)
		return ret;
	if (strchr(argv[0], '='))
		return err_set(err, -EINVAL, "--isolate: a command with '=' in its name: %s",
			       argv[0]);
	if (asprintf(&cwd, "%s%s%s", RUN_INSIDE, workdir ? "/" : "", workdir ? workdir : "") < 0) {
		cwd = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	say(&w, bwrap);
	say_all(&w, fixed);
	if (host->net)
		say(&w, "--share-net");
	say_places(&w, host, top);
	say_all(&w, (const char *const[]){"--chdir", cwd, "--", "/bin/sh", "-c", FIRST_WORDS, "sh",
					  NULL});
	say_all(&w, env);
	say_all(&w, argv);
	if (w.failed) {
		run_words_free(w.list);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*out = w.list;
	return 0;
}

void run_words_free(char **words)
{
	for (char **p = words; p && *p; p++)
		free(*p);
	free(words);
}
