/* fs/sandbox/layers.c - the writable layers of one sandbox: make, mount, unmount, freeze */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "fs/sandbox/cgroup.h"
#include "fs/sandbox/engine.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/serve/helper.h"

#define UPPER_SZ 32

static int layer_open_fd(int dir_fd, size_t n, struct err *err)
{
	char name[UPPER_SZ];

	(void)snprintf(name, sizeof(name), "upper/%zu", n);
	return fs_engine_opendir(dir_fd, name, err);
}

/* The layer in whose files a directory at @path has to be made: the nearest above it. */
static int layer_above(const struct fs_plan *plan, const char *path)
{
	int best = -1;

	for (size_t i = 0; i < plan->nr_layers; i++) {
		const char *at = plan->layers[i].path;

		if (strcmp(at, path) != 0 && fs_path_within(path, at) &&
		    (best < 0 || strlen(at) >= strlen(plan->layers[best].path)))
			best = (int)i;
	}
	return best;
}

/* Directories that outputs need and that a bind hides: an overlay's show through from below. */
static int make_dirs(const struct fs_plan *plan, size_t n, int layer_fd, struct err *err)
{
	const struct fs_layer *layer = &plan->layers[n];
	auto_close int upper = fs_engine_of(layer->kind)->open_upper(layer_fd, err);

	if (upper < 0)
		return upper;
	for (size_t i = 0; layer->kind == FS_LAYER_BIND && i < plan->nr_dirs; i++) {
		int ret;

		if (layer_above(plan, plan->dirs[i]) != (int)n)
			continue;
		ret = fs_engine_mkdir(upper, fs_path_rest(plan->dirs[i], layer->path), err);
		if (ret < 0)
			return ret;
	}
	return 0;
}

int fs_layers_prepare(struct fs_sandbox *sb, int dir_fd, struct err *err)
{
	const struct fs_plan *plan = &sb->rec.plan;
	int ret = fs_engine_mkdir(dir_fd, "upper", err);

	for (size_t i = 0; ret == 0 && i < plan->nr_layers; i++) {
		char name[UPPER_SZ];
		auto_close int fd = -1;

		(void)snprintf(name, sizeof(name), "upper/%zu", i);
		ret = fs_engine_mkdir(dir_fd, name, err);
		if (ret == 0)
			ret = fd = layer_open_fd(dir_fd, i, err);
		if (ret >= 0)
			ret = fs_engine_of(plan->layers[i].kind)->prepare(fd, err);
		if (ret == 0)
			ret = make_dirs(plan, i, fd, err);
	}
	return ret;
}

static int target_of(const struct fs_sandbox *sb, size_t n, char *out, size_t sz)
{
	const char *path = sb->rec.plan.layers[n].path;
	int len = snprintf(out, sz, "%s%s%s", sb->rec.id, path[0] ? "/" : "", path);

	return len < 0 || (size_t)len >= sz ? -ENAMETOOLONG : 0;
}

static int layer_mount(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, size_t n,
		       bool again, struct err *err)
{
	const struct fs_engine *engine = fs_engine_of(sb->rec.plan.layers[n].kind);
	char target[PATH_MAX];
	const struct fs_engine_target where = {.helper = all->helper,
					       .base = all->base,
					       .target = target,
					       .in_userns = all->in_userns};
	auto_close int fd = layer_open_fd(dir_fd, n, err);
	int ret = 0;

	if (fd < 0)
		return fd;
	if (target_of(sb, n, target, sizeof(target)) < 0)
		return err_set(err, -ENAMETOOLONG, "layer %s of sandbox %s: path too long",
			       sb->rec.plan.layers[n].path, sb->rec.id);
	if (again)
		ret = engine->prepare_again(fd, err);
	return ret < 0 ? ret : engine->mount(&where, fd, err);
}

/* @why of a layer that did not come off as it should. */
static void note_leftover(struct fs_sandbox *sb, size_t n, int ret, struct err *why)
{
	const char *path = sb->rec.plan.layers[n].path;

	if (ret == -EINVAL || ret == -ENOENT || ret == -ENOTDIR || ret == -ELOOP) {
		/* Its place was renamed under it, or it is detached already. */
		if (sb->moved)
			sb->moved[n] = true;
		log_warn("sandbox %s: the layer at \"%s\" had left its place: %s", sb->rec.id, path,
			 err_text(why, ret));
		return;
	}
	sb->leftover = true;
	log_warn("sandbox %s: the layer at \"%s\" is %s", sb->rec.id, path,
		 ret > 0 ? "in use by a process that was left behind" : err_text(why, ret));
}

/* Unmount layers @nr - 1 to 0, then the bind. True: none was in use, or missing. */
static bool layers_unmount(struct fs_sandboxes *all, struct fs_sandbox *sb, size_t nr)
{
	bool clean = sb->bound;
	struct err err = {0};
	int ret;

	for (size_t i = nr; i-- > 0;) {
		char target[PATH_MAX];

		ret = target_of(sb, i, target, sizeof(target));
		if (ret == 0)
			ret = fs_helper_unmount(all->helper, all->base, target, true, &err);
		if (ret == 0)
			continue;
		clean = false;
		note_leftover(sb, i, ret, &err);
	}
	if (sb->bound) {
		ret = fs_helper_unmount(all->helper, all->base, sb->rec.id, true, &err);
		if (ret != 0)
			log_info("sandbox %s: its directory is %s", sb->rec.id,
				 ret > 0 ? "in use by a process that was left behind"
					 : err_text(&err, ret));
		clean = clean && ret == 0;
	}
	sb->bound = false;
	return clean;
}

/* A helper that did not answer may have done it all the same. */
static bool is_unsure(int ret)
{
	return ret == -ETIMEDOUT || ret == -EPIPE;
}

/* Only the proof of idleness depends on it: where it is not allowed, there is none. */
static int bind_self(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	struct err why = {0};
	int ret;

	ret = fs_helper_bind_self(all->helper, all->base, sb->rec.id, &why);
	sb->bound = ret == 0 || is_unsure(ret);
	if (is_unsure(ret))
		return err_set(err, ret, "%s", why.msg);
	if (ret < 0)
		log_debug("sandbox %s: no proof of idleness: %s", sb->rec.id, why.msg);
	return 0;
}

int fs_layers_mount(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, bool again,
		    struct err *err)
{
	size_t nr = 0;
	int ret = bind_self(all, sb, err);

	while (ret == 0 && nr < sb->rec.plan.nr_layers) {
		ret = layer_mount(all, sb, dir_fd, nr, again, err);
		nr += ret == 0 || is_unsure(ret);
	}
	if (ret < 0) {
		(void)layers_unmount(all, sb, nr);
		return ret;
	}
	sb->mounted = true;
	return 0;
}

/* True: it was mounted and nobody was inside. */
static bool unmount_mounted(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	bool clean = sb->mounted && layers_unmount(all, sb, sb->rec.plan.nr_layers);

	sb->mounted = false;
	return clean;
}

void fs_layers_unmount(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	(void)unmount_mounted(all, sb);
}

void fs_layers_freeze(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct err err = {0};
	bool ended = true;

	if (sb->frozen)
		return;
	if (sb->rec.cgroup && fs_cgroup_kill(sb->rec.cgroup, &err) < 0) {
		ended = false;
		sb->leftover = true;
		log_warn("sandbox %s: %s", sb->rec.id, err.msg);
	}
	if (sb->moved == NULL)
		sb->moved = calloc(sb->rec.plan.nr_layers + 1, sizeof(*sb->moved));
	sb->idle_proven = unmount_mounted(all, sb) && ended;
	sb->frozen = true;
}

int fs_layers_open(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
		   struct fs_merge *out, struct err *err)
{
	const struct fs_plan *plan = &sb->rec.plan;
	struct fs_merge m = {.store = all->store, .userxattr = all->in_userns};
	int ret = 0;

	m.layers = calloc(plan->nr_layers + 1, sizeof(*m.layers));
	if (m.layers == NULL)
		return err_set(err, -ENOMEM, "no memory for layers");
	for (size_t i = 0; ret >= 0 && i < plan->nr_layers; i++) {
		auto_close int fd = -1;

		m.layers[i] = (struct fs_merge_layer){
			.kind = plan->layers[i].kind, .path = plan->layers[i].path, .upper_fd = -1};
		m.nr_layers = i + 1;
		if (sb->moved && sb->moved[i])
			continue;
		ret = fd = layer_open_fd(dir_fd, i, err);
		if (ret >= 0)
			ret = m.layers[i].upper_fd =
				fs_engine_of(plan->layers[i].kind)->open_upper(fd, err);
	}
	if (ret < 0) {
		fs_layers_close(&m);
		return ret;
	}
	*out = m;
	return 0;
}

void fs_layers_close(struct fs_merge *m)
{
	for (size_t i = 0; i < m->nr_layers; i++) {
		if (m->layers[i].upper_fd >= 0)
			(void)close(m->layers[i].upper_fd);
	}
	free(m->layers);
	m->layers = NULL;
	m->nr_layers = 0;
}
