/* tools/run/run_outputs.c - put captured outputs where the caller wants them */
#include "tools/run/run_outputs.h"

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
#include "tools/cmd/client.h"

/*
 * An output grows under a temporary name beside its place and is exchanged with what is
 * there, which is then removed: at every moment the place holds the old or the new one.
 */

struct restore {
	struct cas_store *store;
	int into_fd;
	const json_t *answer;
	bool keep_same;
};

/* Open the parent of @path below @dir_fd, making what is missing. */
static int open_parent(int dir_fd, const char *path, int *out, const char **name, struct err *err)
{
	auto_close int fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	const char *p = path;

	while (fd >= 0 && strchr(p, '/')) {
		char part[NAME_MAX + 1];
		size_t len = strcspn(p, "/");
		int next;

		if (len >= sizeof(part))
			return err_set(err, -ENAMETOOLONG, "output %s: a name is too long", path);
		memcpy(part, p, len);
		part[len] = '\0';
		if (mkdirat(fd, part, 0777) && errno != EEXIST)
			return err_set(err, -errno, "cannot make the parents of %s: %s", path,
				       strerror(errno));
		next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return err_set(err, -errno, "cannot enter %s on the way to %s: %s", part,
				       path, strerror(errno));
		(void)close(fd);
		fd = next;
		p += len + 1;
	}
	if (fd < 0)
		return err_set(err, -errno, "cannot open the directory of outputs: %s",
			       strerror(errno));
	*out = steal_fd(&fd);
	*name = p;
	return 0;
}

static bool is_executable(const json_t *answer, const char *path)
{
	const json_t *files = json_object_get(json_object_get(answer, "result"), "outputFiles");
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file)
	{
		if (strcmp(client_text(file, "path"), path) == 0)
			return json_is_true(json_object_get(file, "isExecutable"));
	}
	return false;
}

/* Make the output under a temporary name. */
static int make_new(struct restore *r, int dir_fd, const char *name, const json_t *output,
		    struct err *err)
{
	struct cas_checkout_options opts = {.mode = CAS_CHECKOUT_AUTO};
	const char *kind = client_text(output, "kind");
	const char *path = client_text(output, "path");
	struct cas_digest digest;

	if (strcmp(kind, "symlink") == 0) {
		if (symlinkat(client_text(output, "target"), dir_fd, name))
			return err_set(err, -errno, "cannot make the link %s: %s", path,
				       strerror(errno));
		return 0;
	}
	if (cas_digest_parse(client_text(output, "digest"), &digest))
		return err_set(err, -EPROTO, "the daemon gave no digest for %s", path);
	if (strcmp(kind, "directory") == 0)
		return cas_checkout_at(r->store, &digest, dir_fd, name, &opts, err);
	return cas_checkout_file(r->store, &digest, is_executable(r->answer, path), dir_fd, name,
				 &opts, err);
}

/* Put @temp at @name whatever is there, and leave nothing at @temp. */
static int swap_in(int dir_fd, const char *temp, const char *name)
{
	char aside[CAS_TEMP_NAME_SZ];
	int ret;

	if (renameat2(dir_fd, temp, dir_fd, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno == EEXIST && renameat2(dir_fd, temp, dir_fd, name, RENAME_EXCHANGE) == 0)
		return io_remove_tree(dir_fd, temp, NULL);
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* A filesystem without these flags (NFS): one step more, and a moment without any. */
	ret = cas_temp_name_random("output", aside);
	if (ret)
		return ret;
	if (renameat(dir_fd, name, dir_fd, aside) && errno != ENOENT)
		return -errno;
	if (renameat(dir_fd, temp, dir_fd, name)) {
		ret = -errno;
		(void)renameat(dir_fd, aside, dir_fd, name);
		return ret;
	}
	return io_remove_tree(dir_fd, aside, NULL);
}

/* Is what lies at @name what is to be put there? Unchanged files are not read for that. */
static bool is_same(struct restore *r, int dir_fd, const char *name, const json_t *output)
{
	struct cas_ingest_options opts = {0};
	struct cas_ingest_result found;
	const char *path = client_text(output, "path");
	const char *kind = client_text(output, "kind");
	char at[64 + NAME_MAX], target[PATH_MAX];
	struct cas_digest digest;
	struct stat st;
	ssize_t len;

	if (!r->keep_same || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	if (strcmp(kind, "symlink") == 0) {
		len = readlinkat(dir_fd, name, target, sizeof(target));
		return len >= 0 && (size_t)len == strlen(client_text(output, "target")) &&
		       memcmp(target, client_text(output, "target"), (size_t)len) == 0;
	}
	if (cas_digest_parse(client_text(output, "digest"), &digest) ||
	    !(strcmp(kind, "directory") == 0
		      ? S_ISDIR(st.st_mode)
		      : S_ISREG(st.st_mode) && (uint64_t)st.st_size == digest.size))
		return false;
	(void)snprintf(at, sizeof(at), "/proc/self/fd/%d/%s", dir_fd, name);
	return cas_ingest(r->store, at, &opts, &found, NULL) == 0 &&
	       cas_digest_equal(&found.digest, &digest) &&
	       (found.is_directory || found.executable == is_executable(r->answer, path));
}

static int restore_one(struct restore *r, const json_t *output, struct err *err)
{
	const char *path = client_text(output, "path");
	auto_close int dir_fd = -1;
	const char *name = NULL;
	char temp[CAS_TEMP_NAME_SZ];
	int ret = open_parent(r->into_fd, path, &dir_fd, &name, err);

	if (ret || is_same(r, dir_fd, name, output))
		return ret;
	ret = cas_temp_name_random("output", temp);
	if (ret)
		return err_set(err, ret, "no random bytes: %s", strerror(-ret));
	ret = make_new(r, dir_fd, temp, output, err);
	if (ret == 0) {
		ret = swap_in(dir_fd, temp, name);
		if (ret)
			(void)err_set(err, ret, "cannot replace %s: %s", path, strerror(-ret));
	}
	if (ret)
		(void)io_remove_tree(dir_fd, temp, NULL);
	return ret;
}

const json_t *run_outputs_find(const json_t *answer, const char *path)
{
	const json_t *output;
	size_t i;

	json_array_foreach(json_object_get(answer, "outputs"), i, output)
	{
		if (strcmp(client_text(output, "path"), path) == 0)
			return output;
	}
	return NULL;
}

/* Is @path inside another declared output, which brings it along? */
static bool is_nested(const struct fs_outputs *declared, const char *path)
{
	for (size_t i = 0; i < declared->nr; i++) {
		if (strcmp(declared->out[i].path, path) != 0 &&
		    fs_path_within(path, declared->out[i].path))
			return true;
	}
	return false;
}

static int restore_root(struct restore *r, const char *into, const json_t *output, struct err *err)
{
	struct cas_checkout_options opts = {.mode = CAS_CHECKOUT_AUTO};
	struct cas_digest digest;

	if (cas_digest_parse(client_text(output, "digest"), &digest))
		return err_set(err, -EPROTO, "the daemon gave no digest for the whole root");
	return cas_checkout(r->store, &digest, into, &opts, err);
}

int run_outputs_restore(struct cas_store *store, const char *into,
			const struct fs_outputs *declared, const json_t *answer, bool keep_same,
			struct err *err)
{
	struct restore r = {store, -1, answer, keep_same};
	auto_close int fd = -1;
	int ret = 0;

	if (declared->nr == 0)
		return 0;
	if (fs_outputs_find(declared, "")) {
		const json_t *output = run_outputs_find(answer, "");

		return output ? restore_root(&r, into, output, err) : 0;
	}
	ret = io_mkdir_parents(AT_FDCWD, into, 0777);
	if (ret)
		return err_set(err, ret, "cannot make %s: %s", into, strerror(-ret));
	fd = open(into, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, -errno, "cannot open %s: %s", into, strerror(errno));
	r.into_fd = fd;
	for (size_t i = 0; i < declared->nr && ret == 0; i++) {
		const char *path = declared->out[i].path;
		const json_t *output = run_outputs_find(answer, path);

		if (output && !is_nested(declared, path))
			ret = restore_one(&r, output, err);
	}
	return ret;
}
