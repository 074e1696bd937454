/* tools/roots.c - what live sandboxes, their results and pins need */
#include "tools/roots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/sandbox/result.h"

#define RECORD_MAX    (16 << 20)
#define RESULT_MAX    (256 << 20)
#define PIN_DIRECTORY "directory\n"
#define PIN_BLOB      "blob\n"

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

static int sandbox_roots(int dir_fd, const char *id, const struct sink *sink, struct err *err)
{
	auto_free char *path = NULL;
	struct cas_digest root;
	json_t *record = NULL;
	const char *text;
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
	json_decref(record);
	return ret ? ret : result_roots(dir_fd, id, sink, err);
}

static int all_sandboxes(struct cas_store *store, const struct sink *sink, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	int ret = open_dir(store, "sandboxes", &dir, err);

	while (ret == 0 && dir && (de = readdir(dir)) != NULL) {
		if (de->d_name[0] != '.')
			ret = sandbox_roots(cas_store_dir_fd(store), de->d_name, sink, err);
	}
	return ret;
}

static int all_pins(struct cas_store *store, const struct sink *sink, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	int ret = open_dir(store, "pins", &dir, err);

	while (ret == 0 && dir && (de = readdir(dir)) != NULL) {
		auto_buf struct buf text = {0};
		struct cas_digest digest;

		if (cas_digest_parse(de->d_name, &digest))
			continue;
		/* An unreadable pin counts as the larger thing. */
		(void)io_read_file(dirfd(dir), de->d_name, 4096, &text);
		ret = sink->root(sink->arg, &digest, strcmp(buf_str(&text), PIN_BLOB) != 0);
	}
	return ret;
}

static int each_root(void *ctx,
		     int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		     void *arg, struct err *err)
{
	struct sink sink = {root, arg};
	int ret = all_sandboxes(ctx, &sink, err);

	return ret ? ret : all_pins(ctx, &sink, err);
}

struct cas_evict_roots roots_of_store(struct cas_store *store)
{
	return (struct cas_evict_roots){each_root, store};
}

static bool is_directory(struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_directory *dir = NULL;
	bool yes = digest->size <= CAS_DIRECTORY_MAX &&
		   cas_directory_load(store, digest, &dir, NULL) == 0;

	cas_directory_free(dir);
	return yes;
}

int roots_pin(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	char name[CAS_DIGEST_STR_SZ];
	const char *text;
	auto_close int fd = -1;
	int ret = cas_store_has(store, digest);

	if (ret <= 0)
		return err_set(err, ret ? ret : -ENOENT, "no blob %s in %s",
			       CAS_DIGEST_TEXT(digest), cas_store_path(store));
	text = is_directory(store, digest) ? PIN_DIRECTORY : PIN_BLOB;
	ret = io_mkdir_parents(cas_store_dir_fd(store), "pins", 0700);
	if (ret == 0) {
		fd = openat(cas_store_dir_fd(store), "pins", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ret = fd < 0 ? -errno : 0;
	}
	if (ret == 0)
		ret = io_replace_file(fd, cas_digest_format(digest, '-', name), text, strlen(text),
				      0600, true);
	return ret ? err_set(err, ret, "cannot pin %s: %s", CAS_DIGEST_TEXT(digest), strerror(-ret))
		   : 0;
}

int roots_unpin(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	char path[CAS_DIGEST_STR_SZ + 5] = "pins/";

	(void)cas_digest_format(digest, '-', path + 5);
	if (unlinkat(cas_store_dir_fd(store), path, 0) == 0)
		return 0;
	if (errno == ENOENT)
		return err_set(err, -ENOENT, "%s is not pinned", CAS_DIGEST_TEXT(digest));
	return err_set(err, -errno, "cannot unpin %s: %s", CAS_DIGEST_TEXT(digest),
		       strerror(errno));
}

int roots_count_sandboxes(struct cas_store *store, uint64_t *out, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	struct dirent *de;
	uint64_t nr = 0;
	int ret = open_dir(store, "sandboxes", &dir, err);

	while (ret == 0 && dir && (de = readdir(dir)) != NULL) {
		char path[300];

		if (de->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/record", de->d_name);
		nr += faccessat(dirfd(dir), path, F_OK, 0) == 0;
	}
	if (ret == 0)
		*out = nr;
	return ret;
}
