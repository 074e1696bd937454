/* fs/sandbox/layers.c - the writable layers of one sandbox: make, mount, unmount, freeze */
#include <errno.h>
#include <fcntl.h>
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
	auto_close int upper = -1;

	for (size_t i = 0; layer->kind == FS_LAYER_BIND && i < plan->nr_dirs; i++) {
		int ret = 0;

		if (layer_above(plan, plan->dirs[i]) != (int)n)
			continue;
		if (upper < 0)
			ret = upper = fs_engine_of(layer->kind)->open_upper(layer_fd, err);
		if (ret < 0)
			return ret;
		ret = fs_engine_mkdir(upper, fs_path_rest(plan->dirs[i], layer->path), err);
		if (ret < 0)
			return ret;
	}
	return 0;
}

int fs_layers_prepare(struct fs_sandbox *sb, int dir_fd, struct err *err)
{
	const struct fs_plan *plan = &sb->rec.plan;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < plan->nr_layers; i++) {
		char name[UPPER_SZ];
		auto_close int fd = -1;

		(void)snprintf(name, sizeof(name), "upper/%zu", i);
		/* The first is prepared with the directory. */
		if (i > 0)
			ret = fs_engine_mkdir(dir_fd, name, err);
		if (ret < 0)
			break;
		fd = layer_open_fd(dir_fd, i, err);
		ret = fd < 0 ? fd : 0;
		if (ret == 0 && i > 0)
			ret = fs_engine_of(plan->layers[i].kind)->prepare(fd, err);
		if (ret == 0)
			ret = make_dirs(plan, i, fd, err);
	}
	return ret;
}

/*
 * What the helper is asked to do about one sandbox: step 0 is the bind of its directory
 * over itself, step N + 1 layer N. Unmounting takes them in the other order.
 */
struct mounts {
	size_t nr; /* layers and the bind */
	struct fs_helper_step *steps;
	char **targets;
};

static void mounts_fini(struct mounts *m)
{
	for (size_t i = 0; i < m->nr; i++) {
		free(m->targets[i]);
		for (int n = 0; n < 2; n++) {
			if (m->steps[i].fd[n] >= 0)
				(void)close(m->steps[i].fd[n]);
		}
	}
	free(m->steps);
	free(m->targets);
}

static int mounts_init(const struct fs_sandbox *sb, struct mounts *m)
{
	const struct fs_plan *plan = &sb->rec.plan;

	*m = (struct mounts){
		.steps = calloc(plan->nr_layers + 1, sizeof(*m->steps)),
		.targets = calloc(plan->nr_layers + 1, sizeof(*m->targets)),
	};
	if (m->steps == NULL || m->targets == NULL)
		return -ENOMEM;
	for (size_t i = 0; i <= plan->nr_layers; i++) {
		const char *path = i == 0 ? "" : plan->layers[i - 1].path;

		if (asprintf(&m->targets[i], "%s%s%s", sb->rec.id, path[0] ? "/" : "", path) < 0)
			return -ENOMEM;
		m->steps[i] = (struct fs_helper_step){
			.op = FS_HELPER_BIND_SELF, .target = m->targets[i], .fd = {-1, -1}};
		m->nr = i + 1;
	}
	m->steps[0].may = true;
	return 0;
}

static int layer_step(struct fs_sandboxes *all, const struct fs_sandbox *sb, int dir_fd, size_t n,
		      bool again, struct fs_helper_step *out, struct err *err)
{
	const struct fs_engine *engine = fs_engine_of(sb->rec.plan.layers[n].kind);
	auto_close int fd = layer_open_fd(dir_fd, n, err);
	int ret = fd < 0 ? fd : 0;

	if (ret == 0 && again)
		ret = engine->prepare_again(fd, err);
	return ret < 0 ? ret : engine->mount(fd, all->in_userns, out, err);
}

/* @ret of a layer that did not come off as it should. */
static void note_leftover(struct fs_sandbox *sb, size_t n, int ret)
{
	const char *path = sb->rec.plan.layers[n].path;

	if (ret == -EINVAL || ret == -ENOENT || ret == -ENOTDIR || ret == -ELOOP) {
		/* Its place was renamed under it, or it is detached already. */
		if (sb->moved)
			sb->moved[n] = true;
		log_warn("sandbox %s: the layer at \"%s\" had left its place: %s", sb->rec.id, path,
			 strerrordesc_np(-ret));
		return;
	}
	sb->leftover = true;
	log_warn("sandbox %s: the layer at \"%s\" is %s", sb->rec.id, path,
		 ret > 0 ? "in use by a process that was left behind" : strerrordesc_np(-ret));
}

/* A helper that did not answer may have done it all the same. */
static bool is_unsure(int code)
{
	return code == -ETIMEDOUT || code == -EPIPE;
}

/*
 * Undo the steps that were or may have been done, the last first. True: nothing was in
 * use, or missing, and the bind was among them.
 */
static bool mounts_undo(struct fs_sandboxes *all, struct fs_sandbox *sb, const struct mounts *m)
{
	auto_free struct fs_helper_step *back = calloc(m->nr, sizeof(*back));
	auto_free size_t *which = calloc(m->nr, sizeof(*which));
	bool clean = m->steps[0].code == 0;
	size_t nr = 0;
	struct err err = {0};

	for (size_t i = m->nr; back && which && i-- > 0;) {
		if (m->steps[i].code < 0 && !is_unsure(m->steps[i].code))
			continue;
		which[nr] = i;
		back[nr++] = (struct fs_helper_step){
			.op = FS_HELPER_UNMOUNT, .target = m->targets[i], .detach = true};
	}
	if (back == NULL || which == NULL)
		log_error("sandbox %s: no memory to unmount it", sb->rec.id);
	else
		(void)fs_helper_run(all->helper, all->base, back, nr, true, &err);
	for (size_t i = 0; i < nr; i++) {
		clean = clean && back[i].code == 0;
		if (back[i].code != 0 && which[i] > 0)
			note_leftover(sb, which[i] - 1, back[i].code);
		else if (back[i].code != 0)
			log_info("sandbox %s: somebody is inside still", sb->rec.id);
	}
	return clean && nr > 0;
}

int fs_layers_mount(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, bool again,
		    struct err *err)
{
	struct mounts m;
	int ret = mounts_init(sb, &m);

	if (ret < 0)
		(void)err_set(err, ret, "no memory to mount sandbox %s", sb->rec.id);
	for (size_t i = 0; ret == 0 && i < sb->rec.plan.nr_layers; i++)
		ret = layer_step(all, sb, dir_fd, i, again, &m.steps[i + 1], err);
	if (ret == 0) {
		ret = fs_helper_run(all->helper, all->base, m.steps, m.nr, false, err);
		if (ret < 0)
			(void)mounts_undo(all, sb, &m);
		else if (m.steps[0].code < 0)
			log_debug("sandbox %s: no proof of idleness: %s", sb->rec.id,
				  strerrordesc_np(-m.steps[0].code));
	}
	if (ret == 0) {
		sb->mounted = true;
		sb->bound = m.steps[0].code == 0;
	}
	mounts_fini(&m);
	return ret;
}

/* Unmount what fs_layers_mount mounted. */
static bool layers_unmount(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct mounts m;
	bool clean = false;

	if (mounts_init(sb, &m) < 0) {
		log_error("sandbox %s: no memory to unmount it", sb->rec.id);
	} else {
		m.steps[0].code = sb->bound ? 0 : -EPERM;
		clean = mounts_undo(all, sb, &m);
	}
	mounts_fini(&m);
	sb->bound = false;
	return clean;
}

/* True: it was mounted and nobody was inside. */
static bool unmount_mounted(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	bool clean = sb->mounted && layers_unmount(all, sb);

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
	bool survivors = false;

	if (sb->frozen)
		return;
	if (sb->rec.cgroup && fs_cgroup_kill(sb->rec.cgroup, &err) < 0) {
		survivors = true;
		sb->leftover = true;
		log_warn("sandbox %s: %s", sb->rec.id, err.msg);
	}
	sb->group_ended = sb->rec.cgroup && !survivors;
	if (sb->moved == NULL)
		sb->moved = calloc(sb->rec.plan.nr_layers + 1, sizeof(*sb->moved));
	sb->idle_proven = unmount_mounted(all, sb) && !survivors;
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
