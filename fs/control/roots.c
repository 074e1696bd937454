/* fs/control/roots.c - what the sandboxes and pins of a store need, by its files */
#include "fs/control/roots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/capture/result.h"
#include "fs/sandbox/journal.h"

#define RECORD_MAX (16 << 20)
#define RESULT_MAX (256 << 20)

/* Where roots go. */
struct sink {
	int (*root)(void *arg, const struct cas_digest *d, bool is_directory);
	void *arg;
};

/* Open STORE/@name for listing: NULL and 0 when it does not exist. */
static int open_dir(struct cas_store *store, const char *name, DIR **out, struct err *err)
{
	int fd = openat(cas_store_dir_fd(store), name,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int ret;

	*out = NULL;
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd >= 0)
		*out = fdopendir(fd);
	if (*out)
		return 0;
	ret = -errno;
	if (fd >= 0)
		(void)close(fd);
	return err_set(err, ret, "cannot list %s/%s: %s", cas_store_path(store), name,
		       strerror(-ret));
}

/*
 * 1 and the next entry, 0 at the end (@dir NULL: at once), negative: an end that comes of
 * an error would make a needed blob look idle.
 */
static int next_name(struct cas_store *store, const char *name, DIR *dir, struct dirent **out,
		     struct err *err)
{
	if (dir == NULL)
		return 0;
	errno = 0;
	*out = readdir(dir);
	if (*out)
		return 1;
	return errno ? err_set(err, -errno, "cannot list %s/%s: %m", cas_store_path(store), name)
		     : 0;
}

/* A Digest message in proto3 JSON: {"hash": ..., "sizeBytes": "12" or 12}. */
static bool json_digest(const json_t *object, struct cas_digest *out)
{
	const char *hash = json_string_value(json_object_get(object, "hash"));
	const json_t *size = json_object_get(object, "sizeBytes");
	char text[CAS_DIGEST_STR_SZ];
	int len;

	if (!hash)
		return false;
	if (json_is_string(size))
		len = snprintf(text, sizeof(text), "%s/%s", hash, json_string_value(size));
	else
		len = snprintf(text, sizeof(text), "%s/%lld", hash,
			       (long long)json_integer_value(size));
	return len < (int)sizeof(text) && cas_digest_parse(text, out) == 0;
}

/* Every Digest anywhere below @value. */
static int each_digest(const json_t *value, bool is_directory, const struct sink *sink)
{
	struct cas_digest digest;
	const char *key;
	json_t *child;
	size_t i;
	int ret = 0;

	if (json_digest(value, &digest))
		return sink->root(sink->arg, &digest, is_directory);
	json_object_foreach((json_t *)(uintptr_t)value, key, child)
	{
		if (ret == 0)
			ret = each_digest(child, strcmp(key, "rootDirectoryDigest") == 0, sink);
	}
	json_array_foreach(value, i, child)
	{
		if (ret == 0)
			ret = each_digest(child, false, sink);
	}
	return ret;
}

/* 1 and *out, 0 when there is no such file, or negative. */
static int read_json(int dir_fd, const char *path, size_t max, json_t **out, struct err *err)
{
	auto_buf struct buf text = {0};
	json_error_t why;
	int ret = io_read_file(dir_fd, path, max, &text);

	if (ret == -ENOENT || ret == -ENOTDIR)
		return 0;
	if (ret)
		return err_set(err, ret, "cannot read %s: %s", path, strerror(-ret));
	*out = json_loadb(text.data ? text.data : "", text.len, 0, &why);
	if (!*out)
		return err_set(err, -EUCLEAN,
			       "%s is damaged (%s), so what that sandbox needs is unknown", path,
			       why.text);
	return 1;
}

static int result_roots(int dir_fd, const char *id, const struct sink *sink, struct err *err)
{
	const struct fs_outputs none = {0};
	auto_free char *path = NULL;
	auto_buf struct buf data = {0};
	json_t *answer = NULL;
	int ret;

	if (asprintf(&path, "sandboxes/%s/" FS_RESULT_NAME, id) < 0) {
		path = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	ret = io_read_file(dir_fd, path, RESULT_MAX, &data);
	if (ret == -ENOENT || ret == -ENOTDIR)
		return 0;
	if (ret == 0)
		ret = fs_result_answer(buf_str(&data), data.len, &none, NULL, &answer, err);
	if (ret < 0)
		return err_set(err, ret, "cannot tell what %s needs: %s", path, strerror(-ret));
	ret = each_digest(answer, false, sink);
	json_decref(answer);
	return ret;
}

static int moved_root(void *ctx, const struct cas_digest *digest)
{
	const struct sink *sink = ctx;

	return sink->root(sink->arg, digest, false);
}

/* What a capture that was cut has moved to the store, from where it goes back. */
static int moved_roots(struct cas_store *store, const char *id, const struct sink *sink,
		       struct err *err)
{
	auto_free char *path = NULL;
	auto_close int fd = -1;

	if (asprintf(&path, "sandboxes/%s", id) < 0) {
		path = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	fd = openat(cas_store_dir_fd(store), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_set(err, -errno, "cannot open %s: %m", path);
	return fs_journal_blobs(store, fd, moved_root, (void *)(uintptr_t)sink, err);
}

static int sandbox_roots(struct cas_store *store, const char *id, const struct sink *sink,
			 struct err *err)
{
	int dir_fd = cas_store_dir_fd(store);
	auto_free char *path = NULL;
	struct cas_digest root;
	json_t *record = NULL;
	const char *text;
	const char *state;
	bool finished;
	bool lost;
	int ret;

	if (asprintf(&path, "sandboxes/%s/record", id) < 0) {
		path = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	ret = read_json(dir_fd, path, RECORD_MAX, &record, err);
	if (ret != 1)
		return ret;
	text = json_string_value(json_object_get(record, "root"));
	if (text && cas_digest_parse(text, &root) == 0)
		ret = sink->root(sink->arg, &root, true);
	else
		ret = err_set(err, -EUCLEAN, "%s names no root, so what it needs is unknown", path);
	state = json_string_value(json_object_get(record, "state"));
	finished = state && strcmp(state, "finished") == 0;
	lost = state && strcmp(state, "lost") == 0;
	json_decref(record);
	if (ret != 0 || lost)
		return ret;
	return finished ? result_roots(dir_fd, id, sink, err) : moved_roots(store, id, sink, err);
}

static int all_sandboxes(struct cas_store *store, const struct sink *sink, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	int ret = open_dir(store, "sandboxes", &dir, err);

	while (ret == 0 && (ret = next_name(store, "sandboxes", dir, &de, err)) > 0) {
		ret = 0;
		if (de->d_name[0] != '.')
			ret = sandbox_roots(store, de->d_name, sink, err);
	}
	return ret;
}

static int all_pins(struct cas_store *store, const struct sink *sink, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	int ret = open_dir(store, "pins", &dir, err);

	while (ret == 0 && (ret = next_name(store, "pins", dir, &de, err)) > 0) {
		auto_buf struct buf text = {0};
		struct cas_digest digest;

		ret = 0;
		if (cas_digest_parse(de->d_name, &digest))
			continue;
		/* An unreadable pin counts as the larger thing. */
		(void)io_read_file(dirfd(dir), de->d_name, 4096, &text);
		ret = sink->root(sink->arg, &digest, strcmp(buf_str(&text), CONTROL_PIN_BLOB) != 0);
	}
	return ret;
}

int control_roots_each(struct cas_store *store,
		       int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		       void *arg, struct err *err)
{
	struct sink sink = {root, arg};
	int ret = all_sandboxes(store, &sink, err);

	if (ret == 0)
		ret = all_pins(store, &sink, err);
	return ret ? ret : cas_outbox_roots(store, root, arg, err);
}

int64_t control_roots_pins_ns(struct cas_store *store)
{
	struct stat st;

	if (fstatat(cas_store_dir_fd(store), "pins", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

int control_roots_count(struct cas_store *store, uint64_t *out, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	uint64_t nr = 0;
	int ret = open_dir(store, "sandboxes", &dir, err);

	while (ret == 0 && (ret = next_name(store, "sandboxes", dir, &de, err)) > 0) {
		char path[300];

		ret = 0;
		if (de->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/record", de->d_name);
		nr += faccessat(dirfd(dir), path, F_OK, 0) == 0;
	}
	if (ret == 0)
		*out = nr;
	return ret;
}
