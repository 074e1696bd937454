/* tools/bench/bench_tree.c - input trees of which each root differs a little from the last */
#include "tools/bench/bench_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"

/* Coprime to every number of files but its own multiples: spreads changes over the tree. */
#define CHANGE_STRIDE 7919

static void blob_path(const struct cas_digest *d, char out[CAS_HASH_HEX_SZ + 4])
{
	char hex[CAS_HASH_HEX_SZ + 1];

	cas_hash_format(d->hash, hex);
	(void)snprintf(out, CAS_HASH_HEX_SZ + 4, "%.2s/%s", hex, hex);
}

/* Sizes are skewed to the small end as in source trees: the mean is a third of the range. */
static uint32_t file_size(const struct bench_tree_spec *spec, uint64_t *state)
{
	double u = bench_random(state) / 2147483648.0;

	return spec->min_sz + (uint32_t)((spec->max_sz - spec->min_sz) * u * u);
}

/* Make the content of one version of a file, and store it. */
static int blob_make(const struct bench_tree *tree, uint64_t file, uint64_t version, uint8_t *data,
		     struct cas_digest *out, struct err *err)
{
	uint64_t state = tree->spec.seed * 1000003 + file * 2 + version;
	uint32_t len = file_size(&tree->spec, &state);
	char path[CAS_HASH_HEX_SZ + 4];
	auto_close int fd = -1;
	int ret;

	for (uint32_t i = 0; i < len; i += 4) {
		uint32_t word = bench_random(&state);

		(void)memcpy(data + i, &word, len - i < 4 ? len - i : 4);
	}
	ret = cas_hash_bytes(data, len, out);
	if (ret < 0)
		return err_set(err, ret, "hashing: %s", strerror(-ret));
	blob_path(out, path);
	fd = openat(tree->blobs_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_set(err, -errno, "making blob %s: %s", path, strerror(errno));
	ret = io_write_full(fd, data, len);
	if (ret == 0 && fchmod(fd, 0444) < 0)
		ret = -errno;
	return ret < 0 ? err_set(err, ret, "writing blob %s: %s", path, strerror(-ret)) : 0;
}

/*
 * Directories hang below each other so that two levels hold them all: the first `fan` in
 * the top, the rest evenly in those. Files go round all directories.
 */
static int names_make(struct bench_tree *tree)
{
	size_t nr_dirs = tree->spec.nr_dirs;
	size_t fan = (size_t)ceil(sqrt((double)nr_dirs));

	for (size_t i = 0; i < nr_dirs; i++) {
		const char *up = i <= fan ? "" : tree->dirs[1 + (i - 1) % fan];

		tree->dirs[i] =
			i == 0 ? strdup("") : bench_text("%s%spart%05zu", up, *up ? "/" : "", i);
		if (!tree->dirs[i])
			return -ENOMEM;
	}
	for (size_t i = 0; i < tree->spec.nr_files; i++) {
		struct bench_file *f = &tree->files[i];
		const char *dir;

		f->dir = (uint32_t)(i % nr_dirs);
		dir = tree->dirs[f->dir];
		f->path = bench_text("%s%sunit%06zu.h", dir, *dir ? "/" : "", i);
		if (!f->path)
			return -ENOMEM;
	}
	return 0;
}

static int contents_make(struct bench_tree *tree, struct err *err)
{
	auto_free uint8_t *data = malloc(tree->spec.max_sz + 4);
	int ret = data ? 0 : -ENOMEM;

	for (unsigned i = 0; ret == 0 && i < 256; i++) {
		char name[3];

		(void)snprintf(name, sizeof(name), "%02x", i);
		ret = bench_mkdir(tree->blobs_fd, name, err);
	}
	for (size_t i = 0; ret == 0 && i < tree->spec.nr_files; i++) {
		struct bench_file *f = &tree->files[i];

		ret = blob_make(tree, i, 0, data, &f->digest[0], err);
		if (ret == 0 && f->changed_at)
			ret = blob_make(tree, i, 1, data, &f->digest[1], err);
		if (ret == 0 && bench_stopped())
			ret = err_set(err, -EINTR, "stopped");
	}
	return ret;
}

static void changes_make(struct bench_tree *tree)
{
	for (size_t i = tree->spec.per_root; i < tree->spec.nr_roots * tree->spec.per_root; i++) {
		size_t file = i * CHANGE_STRIDE % tree->spec.nr_files;

		tree->changes[i] = (uint32_t)file;
		tree->files[file].changed_at = (uint32_t)(i / tree->spec.per_root);
	}
}

static int tree_make(struct bench_tree *tree, int dir_fd, struct err *err)
{
	const struct bench_tree_spec *spec = &tree->spec;
	int ret;

	if (spec->nr_roots * spec->per_root > spec->nr_files)
		return err_set(err, -EINVAL,
			       "%zu roots with %zu changed files each need more than %zu files",
			       spec->nr_roots, spec->per_root, spec->nr_files);
	tree->dirs = calloc(spec->nr_dirs, sizeof(*tree->dirs));
	tree->files = calloc(spec->nr_files, sizeof(*tree->files));
	tree->changes = calloc(spec->nr_roots * spec->per_root, sizeof(*tree->changes));
	tree->roots = calloc(spec->nr_roots, sizeof(*tree->roots));
	if (!tree->dirs || !tree->files || !tree->changes || !tree->roots || names_make(tree) < 0)
		return err_set(err, -ENOMEM, "making a tree: out of memory");
	changes_make(tree);
	ret = bench_mkdir(dir_fd, "blobs", err);
	if (ret < 0)
		return ret;
	ret = bench_open_dir(dir_fd, "blobs", err);
	if (ret < 0)
		return ret;
	tree->blobs_fd = ret;
	return contents_make(tree, err);
}

int bench_tree_new(int dir_fd, const struct bench_tree_spec *spec, struct bench_tree **out,
		   struct err *err)
{
	struct bench_tree *tree = calloc(1, sizeof(*tree));
	int ret;

	if (!tree)
		return err_set(err, -ENOMEM, "making a tree: out of memory");
	tree->spec = *spec;
	tree->blobs_fd = -1;
	ret = tree_make(tree, dir_fd, err);
	if (ret < 0) {
		bench_tree_free(tree);
		return ret;
	}
	*out = tree;
	return 0;
}

void bench_tree_free(struct bench_tree *tree)
{
	if (!tree)
		return;
	for (size_t i = 0; tree->dirs && i < tree->spec.nr_dirs; i++)
		free(tree->dirs[i]);
	for (size_t i = 0; tree->files && i < tree->spec.nr_files; i++)
		free(tree->files[i].path);
	free(tree->dirs);
	free(tree->files);
	free(tree->changes);
	free(tree->roots);
	if (tree->blobs_fd >= 0)
		(void)close(tree->blobs_fd);
	free(tree);
}

const struct cas_digest *bench_tree_digest(const struct bench_tree *tree, size_t file, size_t root)
{
	const struct bench_file *f = &tree->files[file];

	return &f->digest[f->changed_at != 0 && f->changed_at <= root];
}

/* --- on disk --- */

static int file_copy(int from_fd, const char *from, int to_fd, const char *to)
{
	auto_close int in = openat(from_fd, from, O_RDONLY | O_CLOEXEC);
	auto_close int out = -1;
	char data[65536];
	ssize_t got;
	int ret = 0;

	if (in < 0)
		return -errno;
	out = openat(to_fd, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (out < 0)
		return -errno;
	while (ret == 0 && (got = io_read_full(in, data, sizeof(data))) > 0)
		ret = io_write_full(out, data, (size_t)got);
	return ret;
}

static int file_place(const struct bench_tree *tree, size_t file, size_t root, enum bench_fill how,
		      int dst_fd, struct err *err)
{
	const char *path = tree->files[file].path;
	char blob[CAS_HASH_HEX_SZ + 4];
	int ret = 0;

	blob_path(bench_tree_digest(tree, file, root), blob);
	if (how == BENCH_FILL_COPY)
		ret = file_copy(tree->blobs_fd, blob, dst_fd, path);
	else if (linkat(tree->blobs_fd, blob, dst_fd, path, 0) < 0)
		ret = -errno;
	return ret < 0 ? err_set(err, ret, "placing %s: %s", path, strerror(-ret)) : 0;
}

int bench_tree_fill(const struct bench_tree *tree, size_t root, enum bench_fill how, int dst_fd,
		    struct err *err)
{
	int ret = 0;

	for (size_t i = 1; i < tree->spec.nr_dirs; i++) {
		if (mkdirat(dst_fd, tree->dirs[i], 0755) < 0)
			return err_set(err, -errno, "making directory %s: %s", tree->dirs[i],
				       strerror(errno));
	}
	for (size_t i = 0; ret == 0 && i < tree->spec.nr_files; i++)
		ret = file_place(tree, i, root, how, dst_fd, err);
	return ret;
}

int bench_tree_move(const struct bench_tree *tree, size_t from, size_t to, int dst_fd,
		    struct err *err)
{
	size_t per_root = tree->spec.per_root;
	size_t low = from < to ? from : to;
	size_t high = from < to ? to : from;
	int ret = 0;

	for (size_t i = (low + 1) * per_root; ret == 0 && i < (high + 1) * per_root; i++) {
		const char *path = tree->files[tree->changes[i]].path;

		if (unlinkat(dst_fd, path, 0) < 0)
			return err_set(err, -errno, "removing %s: %s", path, strerror(errno));
		ret = file_place(tree, tree->changes[i], to, BENCH_FILL_LINK, dst_fd, err);
	}
	return ret;
}

/* --- verification --- */

static bool is_extra(const char *const *extra, const char *path)
{
	for (size_t i = 0; extra && extra[i]; i++) {
		if (strcmp(extra[i], path) == 0)
			return true;
	}
	return false;
}

/* Count the names below @path; unknown ones would make the count exceed what is known. */
static int names_count(int root_fd, const char *path, const char *const *extra, size_t *nr,
		       struct err *err)
{
	int fd = bench_open_dir(root_fd, *path ? path : ".", err);
	auto_closedir DIR *dir = NULL;
	struct dirent *e;
	int ret = 0;

	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return err_set(err, -errno, "listing %s: %s", path, strerror(errno));
	}
	while (ret == 0 && (e = readdir(dir)) != NULL) {
		auto_free char *name = NULL;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		name = bench_text("%s%s%s", path, *path ? "/" : "", e->d_name);
		if (!name)
			return err_set(err, -ENOMEM, "out of memory");
		if (is_extra(extra, name))
			continue;
		*nr += 1;
		if (e->d_type == DT_DIR)
			ret = names_count(root_fd, name, extra, nr, err);
	}
	return ret;
}

int bench_tree_verify(const struct bench_tree *tree, size_t root, int root_fd,
		      const char *const *extra, struct err *err)
{
	size_t want = tree->spec.nr_files + tree->spec.nr_dirs - 1;
	size_t names = 0;
	int ret;

	for (size_t i = 0; i < tree->spec.nr_files; i++) {
		const char *path = tree->files[i].path;
		auto_close int fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC);
		struct cas_digest got;

		ret = fd < 0 ? -errno : cas_hash_fd(fd, &got);
		if (ret < 0)
			return err_set(err, ret, "reading %s: %s", path, strerror(-ret));
		if (!cas_digest_equal(&got, bench_tree_digest(tree, i, root)))
			return err_set(err, -EBADMSG, "%s holds other bytes than root %zu has",
				       path, root);
	}
	ret = names_count(root_fd, "", extra, &names, err);
	if (ret == 0 && names != want)
		ret = err_set(err, -EBADMSG, "%zu names instead of %zu in root %zu", names, want,
			      root);
	return ret;
}

/* --- into the store --- */

int bench_tree_put(struct bench_tree *tree, struct bench_box *box, int dir_fd, const char *dir,
		   struct err *err)
{
	auto_free char *source = bench_text("%s/source", dir);
	auto_close int fd = -1;
	int ret = source ? bench_mkdir(dir_fd, "source", err) : -ENOMEM;

	if (ret < 0)
		return ret;
	fd = bench_open_dir(dir_fd, "source", err);
	if (fd < 0)
		return fd;
	ret = bench_tree_fill(tree, 0, BENCH_FILL_LINK, fd, err);
	for (size_t i = 0; ret == 0 && i < tree->spec.nr_roots; i++) {
		if (i > 0)
			ret = bench_tree_move(tree, i - 1, i, fd, err);
		if (ret == 0)
			ret = bench_box_put(box, source, tree->roots[i], err);
		if (ret == 0 && bench_stopped())
			ret = err_set(err, -EINTR, "stopped");
	}
	if (ret == 0)
		ret = io_remove_tree(dir_fd, "source", err);
	return ret;
}
