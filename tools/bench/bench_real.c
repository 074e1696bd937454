/* tools/bench/bench_real.c - real: compiles of a C project, each in its own sandbox */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"

/*
 * The project is copied to WORK/real/source. Compile i takes source file i (round and
 * round) to out/unit.o; its root is the whole project with a marker file beside that
 * source, so that all directories on the way to it differ from the root before. The
 * native build compiles in WORK/real/source itself. All three ways hash the output and
 * move it into a store.
 */
#define MARKER	  ".casbox-bench-action"
#define MAX_WORDS 64

enum { NATIVE, FARM, BOX, NR_WAYS };
static const char *const way_names[] = {"native build", "hardlink farms", "casbox"};

/* @units are source files that compile, relative to the project. */
struct real {
	struct bench_scene scene;
	char *source;
	int source_fd;
	size_t nr_units;
	char **units;
	size_t nr_files; /* of the project */
	char *flags;	 /* words of --cflags, cut up */
	size_t nr_words;
	const char *words[MAX_WORDS];
	size_t nr;
	double *times[NR_WAYS];
	char (*roots)[CAS_DIGEST_STR_SZ];
	size_t nr_equal;
};

/* --- the compile --- */

static int compile(struct real *r, const char *unit, const char *dir, int *status, struct err *err)
{
	auto_free char *own = strdup(unit);
	const char *argv[MAX_WORDS + 16];
	char *slash = own ? strrchr(own, '/') : NULL;
	auto_free char *include = NULL;
	size_t n = 0;

	if (slash)
		*slash = '\0';
	include = bench_text("-I%s", slash ? own : ".");
	if (!own || !include)
		return err_set(err, -ENOMEM, "out of memory");
	argv[n++] = r->scene.env->cc;
	for (size_t i = 0; i < r->nr_words; i++)
		argv[n++] = r->words[i];
	argv[n++] = include;
	argv[n++] = "-I.";
	argv[n++] = "-Iinclude";
	argv[n++] = "-Isrc";
	argv[n++] = "-w";
	argv[n++] = "-c";
	argv[n++] = unit;
	argv[n++] = "-o";
	argv[n++] = "out/unit.o";
	argv[n] = NULL;
	return bench_spawn(argv, dir, NULL, NULL, status, err);
}

static int compile_ok(struct real *r, size_t i, const char *dir, struct err *err)
{
	const char *unit = r->units[i % r->nr_units];
	int status = 0;
	int ret = compile(r, unit, dir, &status, err);

	if (ret == 0 && status != 0)
		ret = err_set(err, -EIO, "compiling %s in %s ended with status %d", unit, dir,
			      status);
	return ret;
}

/* Hash out/unit.o below @dir and move it to the native store. */
static int keep(struct real *r, const char *dir, struct cas_digest *digest, struct err *err)
{
	auto_free char *from = bench_text("%s/out/unit.o", dir);
	char hex[CAS_HASH_HEX_SZ + 1];
	char to[CAS_HASH_HEX_SZ + 8];
	auto_close int fd = from ? open(from, O_RDONLY | O_CLOEXEC) : -1;
	int ret = fd < 0 ? -errno : cas_hash_fd(fd, digest);

	if (ret < 0)
		return err_set(err, ret, "hashing %s: %s", from ? from : dir, strerror(-ret));
	cas_hash_format(digest->hash, hex);
	(void)snprintf(to, sizeof(to), "kept/%s", hex);
	if (renameat(AT_FDCWD, from, r->scene.dir_fd, to) < 0)
		return err_set(err, -errno, "keeping %s: %s", from, strerror(errno));
	return 0;
}

/* --- the project's files --- */

typedef int (*visit_fn)(struct real *r, const char *path, unsigned char type, void *ctx,
			struct err *err);

/* Every name of the project below @path ("" for the top), directories before what is in them. */
static int visit(struct real *r, const char *path, visit_fn fn, void *ctx, struct err *err)
{
	int fd = bench_open_dir(r->source_fd, *path ? path : ".", err);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int ret = 0;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return fd < 0 ? fd : err_set(err, -errno, "listing %s: %s", path, strerror(errno));
	}
	while (ret == 0 && (e = readdir(dir)) != NULL) {
		auto_free char *name = bench_text("%s%s%s", path, *path ? "/" : "", e->d_name);

		if (!name)
			return err_set(err, -ENOMEM, "out of memory");
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    strcmp(name, "out") == 0)
			continue;
		ret = fn(r, name, e->d_type, ctx, err);
		if (ret == 0 && e->d_type == DT_DIR)
			ret = visit(r, name, fn, ctx, err);
	}
	return ret;
}

static int visit_link(struct real *r, const char *path, unsigned char type, void *ctx,
		      struct err *err)
{
	int to_fd = *(int *)ctx;

	if (type == DT_DIR)
		return bench_mkdir(to_fd, path, err);
	if (linkat(r->source_fd, path, to_fd, path, 0) < 0)
		return err_set(err, -errno, "linking %s: %s", path, strerror(errno));
	return 0;
}

/* Remember *.c files; whether they compile is tried later. */
static int visit_unit(struct real *r, const char *path, unsigned char type, void *ctx,
		      struct err *err)
{
	size_t len = strlen(path);
	char **units;

	r->nr_files += type == DT_REG;
	if (type != DT_REG || len < 3 || strcmp(path + len - 2, ".c") != 0)
		return 0;
	units = reallocarray(r->units, r->nr_units + 1, sizeof(*units));
	if (!units)
		return err_set(err, -ENOMEM, "out of memory");
	r->units = units;
	units[r->nr_units] = strdup(path);
	return units[r->nr_units++] ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int compare_units(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Leave out what does not compile by itself. */
static int units_try(struct real *r, struct err *err)
{
	size_t good = 0;
	int ret = 0;

	qsort(r->units, r->nr_units, sizeof(*r->units), compare_units);
	for (size_t i = 0; i < r->nr_units; i++) {
		int status = 1;

		if (ret == 0 && good < r->nr)
			ret = compile(r, r->units[i], r->source, &status, err);
		if (ret == 0 && bench_stopped())
			ret = err_set(err, -EINTR, "stopped");
		if (ret == 0 && status == 0)
			r->units[good++] = r->units[i];
		else
			free(r->units[i]);
	}
	r->nr_units = good;
	if (ret == 0 && good == 0)
		ret = err_set(err, -ENOENT, "no C file in %s compiles with '%s %s'",
			      r->scene.env->project, r->scene.env->cc, r->scene.env->cflags);
	return ret;
}

/* --- the ways --- */

static int native_once(struct real *r, size_t i, struct cas_digest *digest, struct err *err)
{
	double begin = bench_now_ms();
	int ret = compile_ok(r, i, r->source, err);

	if (ret == 0)
		ret = keep(r, r->source, digest, err);
	r->times[NATIVE][i] = bench_now_ms() - begin;
	return ret;
}

static int farm_once(struct real *r, size_t i, struct cas_digest *digest, struct err *err)
{
	auto_free char *dir = bench_text("%s/farm", r->scene.dir);
	double begin = bench_now_ms();
	auto_close int fd = -1;
	int ret = dir ? bench_mkdir(r->scene.dir_fd, "farm", err) : -ENOMEM;

	if (ret == 0)
		ret = bench_open_dir(r->scene.dir_fd, "farm", err);
	if (ret < 0)
		return ret;
	fd = ret;
	ret = visit(r, "", visit_link, &fd, err);
	if (ret == 0)
		ret = bench_mkdir(fd, "out", err);
	if (ret == 0)
		ret = compile_ok(r, i, dir, err);
	if (ret == 0)
		ret = keep(r, dir, digest, err);
	if (ret == 0)
		ret = io_remove_tree(r->scene.dir_fd, "farm", err);
	r->times[FARM][i] = bench_now_ms() - begin;
	return ret;
}

/* The digest that finish answers is that of out/, a Directory: ask the view for the file's. */
static int box_digest(struct real *r, const struct cas_digest *top, struct cas_digest *digest,
		      struct err *err)
{
	auto_free char *dir = bench_box_path(r->scene.box, "cas/directory", top);
	auto_free char *path = dir ? bench_text("%s/unit.o", dir) : NULL;
	auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	int ret = fd < 0 ? -errno : cas_hash_fd(fd, digest);

	return ret < 0 ? err_set(err, ret, "hashing %s: %s", path ? path : "", strerror(-ret)) : 0;
}

static int box_once(struct real *r, size_t i, struct cas_digest *digest, struct err *err)
{
	struct bench_channel *ch = &r->scene.channel;
	auto_free char *top = NULL;
	struct cas_digest out;
	double begin = bench_now_ms();
	char id[32];
	int ret;

	(void)snprintf(id, sizeof(id), "real-%zu", i);
	ret = bench_create(ch, r->roots[i], id, "--output out/", &top, err);
	if (ret == 0)
		ret = compile_ok(r, i, top, err);
	if (ret == 0)
		ret = bench_finish(ch, id, true, &out, err);
	r->times[BOX][i] = bench_now_ms() - begin;
	return ret < 0 ? ret : box_digest(r, &out, digest, err);
}

typedef int (*once_fn)(struct real *r, size_t i, struct cas_digest *digest, struct err *err);
static const once_fn ways[NR_WAYS] = {native_once, farm_once, box_once};

/* The farm leaves a mess in the filesystem for whoever is next: a quarter is enough. */
static bool takes_part(const struct real *r, size_t i, size_t way)
{
	return way == NATIVE || (way == FARM && i % 4 == 0) || (way == BOX && r->scene.box);
}

static int compile_each(struct real *r, size_t i, struct err *err)
{
	struct cas_digest digest[NR_WAYS];
	int ret = 0;

	for (size_t k = 0; ret == 0 && k < NR_WAYS; k++) {
		size_t w = (i + k) % NR_WAYS;

		if (takes_part(r, i, w))
			ret = ways[w](r, i, &digest[w], err);
	}
	for (size_t w = FARM; ret == 0 && w < NR_WAYS; w++) {
		if (takes_part(r, i, w) && !cas_digest_equal(&digest[w], &digest[NATIVE]))
			ret = err_set(err, -EBADMSG,
				      "%s: the object differs from the native one: %s",
				      r->units[i % r->nr_units], way_names[w]);
	}
	if (ret < 0)
		return ret;
	r->nr_equal++;
	return bench_stopped() ? err_set(err, -EINTR, "stopped") : 0;
}

/* --- preparation --- */

static int roots_put(struct real *r, struct err *err)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < r->nr; i++) {
		auto_free char *own = strdup(r->units[i % r->nr_units]);
		char *slash = own ? strrchr(own, '/') : NULL;
		auto_free char *marker = NULL;
		char text[64];

		if (slash)
			*slash = '\0';
		marker = bench_text("%s/%s", slash ? own : ".", MARKER);
		if (!own || !marker)
			return err_set(err, -ENOMEM, "out of memory");
		(void)snprintf(text, sizeof(text), "action %zu\n", i);
		(void)unlinkat(r->source_fd, marker, 0);
		ret = io_replace_file(r->source_fd, marker, text, strlen(text), 0644, false);
		if (ret < 0)
			return err_set(err, ret, "writing %s: %s", marker, strerror(-ret));
		ret = bench_box_put(r->scene.box, r->source, r->roots[i], err);
		(void)unlinkat(r->source_fd, marker, 0);
		if (ret == 0 && bench_stopped())
			ret = err_set(err, -EINTR, "stopped");
	}
	return ret;
}

static int words_cut(struct real *r, struct err *err)
{
	char *save = NULL;

	r->flags = strdup(r->scene.env->cflags);
	if (!r->flags)
		return err_set(err, -ENOMEM, "out of memory");
	for (char *w = strtok_r(r->flags, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		if (r->nr_words == MAX_WORDS)
			return err_set(err, -E2BIG, "more than %d words in --cflags", MAX_WORDS);
		r->words[r->nr_words++] = w;
	}
	return 0;
}

static int source_copy(struct real *r, struct err *err)
{
	const char *argv[] = {"cp", "-a", "--", r->scene.env->project, r->source, NULL};
	int ret = bench_spawn_ok(argv, NULL, NULL, err);

	if (ret < 0)
		return ret;
	r->source_fd = bench_open_dir(AT_FDCWD, r->source, err);
	if (r->source_fd < 0)
		return r->source_fd;
	/* The outputs' place; left out of the roots, where create makes it. */
	ret = io_remove_tree(r->source_fd, "out", err);
	if (ret == 0)
		ret = visit(r, "", visit_unit, NULL, err);
	if (ret == 0)
		ret = bench_mkdir(r->source_fd, "out", err);
	if (ret == 0)
		ret = units_try(r, err);
	if (ret == 0)
		ret = io_remove_tree(r->source_fd, "out", err);
	return ret;
}

static int real_prepare(struct real *r, struct err *err)
{
	int ret;

	r->nr = (size_t)r->scene.env->compiles;
	r->source = bench_text("%s/source", r->scene.dir);
	r->roots = calloc(r->nr, sizeof(*r->roots));
	for (size_t w = 0; w < NR_WAYS; w++)
		r->times[w] = calloc(r->nr, sizeof(double));
	if (!r->source || !r->roots || !r->times[0] || !r->times[1] || !r->times[2])
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < r->nr * NR_WAYS; i++)
		r->times[i / r->nr][i % r->nr] = NAN;
	ret = words_cut(r, err);
	if (ret == 0)
		ret = source_copy(r, err);
	if (ret == 0)
		ret = bench_mkdir(r->scene.dir_fd, "kept", err);
	if (ret == 0 && r->scene.box)
		ret = roots_put(r, err);
	if (ret == 0)
		ret = bench_mkdir(r->source_fd, "out", err);
	return ret < 0 ? ret : bench_scene_mount(&r->scene, err);
}

/* --- results --- */

/* Median of what a way adds to the native build of the same unit. */
static double added(const struct real *r, int way)
{
	auto_free double *more = calloc(r->nr, sizeof(*more));

	if (!more)
		return NAN;
	for (size_t i = 0; i < r->nr; i++)
		more[i] = r->times[way][i] - r->times[NATIVE][i];
	return bench_median(more, r->nr);
}

static void real_report(struct real *r, struct bench_report *rep)
{
	static const struct bench_column columns[] = {{"median_ms", "median", 2},
						      {"added_ms", "added", 2},
						      {"times_native", "times", 3},
						      {NULL, NULL, 0}};
	auto_free char *title = bench_text("%zu compiles of %zu C files, tree of %zu files, ms",
					   r->nr, r->nr_units, r->nr_files);
	double times[NR_WAYS];

	bench_table(rep, "real", title ? title : "compiles", columns);
	for (int w = 0; w < NR_WAYS; w++) {
		double values[3];

		times[w] = bench_ratio(r->times[w], r->times[NATIVE], r->nr);
		if (w == BOX && !r->scene.box)
			continue;
		values[0] = bench_median(r->times[w], r->nr);
		values[1] = added(r, w);
		values[2] = times[w];
		bench_row(rep, way_names[w], values);
	}
	bench_note(rep, "%zu of %zu outputs byte-equal", r->nr_equal, r->nr);
	if (!r->scene.box)
		return;
	bench_gate(rep, "real: times the native build", times[BOX], 1.1, 1.03);
	bench_gate(rep, "real: added, part of what farms add",
		   added(r, FARM) > 0 ? added(r, BOX) / added(r, FARM) : NAN, 0.2, 0.2);
}

int bench_real(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	struct real r = {.source_fd = -1};
	int ret = bench_scene_open(&r.scene, env, "real", err);

	if (ret == 0 && !env->project)
		ret = err_set(err, -EINVAL, "real needs sources: --project DIR");
	if (ret == 0)
		ret = real_prepare(&r, err);
	for (size_t i = 0; ret == 0 && i < r.nr; i++)
		ret = compile_each(&r, i, err);
	if (ret == 0)
		real_report(&r, rep);
	if (r.source_fd >= 0)
		(void)close(r.source_fd);
	for (size_t i = 0; i < r.nr_units; i++)
		free(r.units[i]);
	for (size_t w = 0; w < NR_WAYS; w++)
		free(r.times[w]);
	free(r.units);
	free(r.flags);
	free(r.roots);
	free(r.source);
	return bench_scene_close(&r.scene, ret, err);
}
