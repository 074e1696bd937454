/* fs/engine/layers.c - the writable layers of one sandbox: make, mount, unmount, freeze */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "fs/capture/foreign.h"
#include "fs/engine/cgroup.h"
#include "fs/engine/engine.h"
#include "fs/helper/helper.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/slot/slot.h"

#define UPPER_SZ 32
#define PARK_MS	 10000
#define AWAY_MAX 16 /* then whoever has more waits for the kernel */

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
 * over itself, step N + 1 layer N, and the large inputs follow. Unmounting takes them in
 * the other order.
 */
struct mounts {
	size_t nr;	 /* the bind, layers, large inputs */
	size_t nr_watch; /* steps after those: marks for its trace */
	struct fs_helper_step *steps;
	char **targets;
	char *parked; /* where its root lies still, and so do the targets; NULL: at its id */
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
	free(m->parked);
}

/* Layers that are mounted. */
static size_t nr_mounted(const struct fs_sandbox *sb)
{
	return fs_plan_is_served(&sb->rec.plan) ? 0 : sb->rec.plan.nr_layers;
}

/* What step @i is about; NULL: no large input. */
static struct fs_large_input *large_of(const struct fs_sandbox *sb, size_t i)
{
	size_t first = 1 + nr_mounted(sb);

	return i < first ? NULL : &sb->large.in[i - first];
}

/* The place of step @i, where the root lies at @top. Malloc'ed; NULL: no memory. */
static char *target_of(const struct fs_sandbox *sb, size_t i, const char *top)
{
	const struct fs_large_input *large = large_of(sb, i);
	const char *path = large ? large->path : i == 0 ? "" : sb->rec.plan.layers[i - 1].path;
	char *target;

	return asprintf(&target, "%s%s%s", top, path[0] ? "/" : "", path) < 0 ? NULL : target;
}

/* @writable: session one shows what can be written. */
static int mounts_init(const struct fs_sandbox *sb, bool writable, struct mounts *m)
{
	const struct fs_plan *plan = &sb->rec.plan;
	size_t nr = 1 + nr_mounted(sb) + sb->large.nr;

	*m = (struct mounts){
		.steps = calloc(nr + 2 + plan->nr_layers, sizeof(*m->steps)),
		.targets = calloc(nr, sizeof(*m->targets)),
	};
	if (m->steps == NULL || m->targets == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		const struct fs_large_input *large = large_of(sb, i);

		m->targets[i] = target_of(sb, i, sb->rec.id);
		if (m->targets[i] == NULL)
			return -ENOMEM;
		m->steps[i] = (struct fs_helper_step){
			.op = large ? FS_HELPER_BIND_FILE : FS_HELPER_BIND_SELF,
			.target = m->targets[i],
			.source = large ? large->source : NULL,
			.fd = {-1, -1},
			.may = large || i == 0,
			.writable = writable,
		};
		m->nr = i + 1;
	}
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

/* Did the layer leave its place, or go? Then nobody can be using it there. */
static bool is_away(int code)
{
	return code == -EINVAL || code == -ENOENT || code == -ENOTDIR || code == -ELOOP ||
	       code == -ESTALE;
}

/* @code of a layer that did not come off as it should. */
static void note_leftover(struct fs_sandbox *sb, size_t n, int code)
{
	const char *path = sb->rec.plan.layers[n].path;

	sb->leftover |= !is_away(code);
	log_warn("sandbox %s: the layer at \"%s\" %s", sb->rec.id, path,
		 code == 1 || code == -EBUSY ? "is in use by a process that was left behind"
		 : is_away(code)	     ? "is not at its place any more"
					     : strerrordesc_np(-code));
}

/*
 * A slot's root lies where it was parked until somebody looks its sandbox up. There the kernel
 * knows the way, and needs to ask nobody while somebody waits for the sandbox. Marks are put
 * where they are to be seen.
 */
static int aim_at_parked(struct fs_sandboxes *all, const struct fs_sandbox *sb, struct mounts *m)
{
	auto_free char *parked =
		sb->bound && m->nr_watch == 0 ? fs_slot_parked_name(all->slots, sb->serial) : NULL;

	for (size_t i = 0; parked && i < m->nr; i++) {
		char *target = target_of(sb, i, parked);

		if (target == NULL)
			return -ENOMEM;
		free(m->targets[i]);
		m->steps[i].target = m->targets[i] = target;
	}
	m->parked = steal_ptr(&parked);
	return 0;
}

/* Somebody did, or has to from now on. */
static int aim_at_id(const struct fs_sandbox *sb, struct mounts *m)
{
	for (size_t i = 0; m->parked && i < m->nr; i++) {
		char *target = target_of(sb, i, sb->rec.id);

		if (target == NULL)
			return -ENOMEM;
		free(m->targets[i]);
		m->steps[i].target = m->targets[i] = target;
	}
	free(steal_ptr(&m->parked));
	return 0;
}

/* A helper that did not answer may have done it all the same. */
static bool is_unsure(int code)
{
	return code == -ETIMEDOUT || code == -EPIPE;
}

/* Undo the steps that were or may have been done, the last first. */
static void mounts_undo(struct fs_sandboxes *all, struct fs_sandbox *sb, struct mounts *m)
{
	struct fs_helper_step back = {.op = FS_HELPER_UNMOUNT, .detach = true};
	struct err err = {0};

	if (aim_at_id(sb, m) < 0)
		log_error("sandbox %s: no memory to undo its mounts", sb->rec.id);
	for (size_t i = m->nr; i-- > 0;) {
		if (m->steps[i].code < 0 && !is_unsure(m->steps[i].code))
			continue;
		back.target = m->targets[i];
		if (fs_helper_run(all->helper, fs_sandbox_base(all, sb), &back, 1, true, &err) !=
			    0 &&
		    i > 0 && !large_of(sb, i))
			note_leftover(sb, i - 1, back.code);
	}
}

/* What was allowed to fail. */
static void note_bound(struct fs_sandbox *sb, const struct mounts *m)
{
	sb->bound = m->steps[0].code == 0;
	for (size_t i = 0; i < m->nr; i++) {
		struct fs_large_input *large = large_of(sb, i);

		if (!large)
			continue;
		large->bound = m->steps[i].code == 0;
		if (!large->bound)
			log_warn("sandbox %s: the large input %s is not bound: %s", sb->rec.id,
				 large->path, strerrordesc_np(-m->steps[i].code));
	}
}

/* The steps from @from on that did not find their target: the root may have left its place. */
static int mounts_again(struct fs_sandboxes *all, const struct fs_sandbox *sb, struct mounts *m,
			size_t from, struct err *err)
{
	int ret = 0;

	for (size_t i = from; ret == 0 && i < m->nr; i++) {
		struct fs_helper_step *step = &m->steps[i];

		if (step->code != -ENOENT && step->code != -ECANCELED)
			continue;
		ret = aim_at_id(sb, m);
		if (ret == 0)
			ret = fs_helper_run(all->helper, fs_sandbox_base(all, sb), step, 1, false,
					    err);
	}
	return ret;
}

/* All but the bind, when the root that it shows has one already. */
static int mounts_do(struct fs_sandboxes *all, struct fs_sandbox *sb, struct mounts *m,
		     void (*meanwhile)(void *ctx), void *ctx, struct err *err)
{
	struct err why = {0};
	size_t at = sb->bound ? 1 : 0;
	size_t nr = m->nr + m->nr_watch;
	int ret;

	if (sb->bound) {
		m->steps[0].code = 0;
		m->steps[0].key = sb->bind;
	}
	if (at == nr)
		return 0;
	/* Who is told of the sandbox is not to wait for the kernel to find it. */
	if (m->parked)
		m->steps[nr] = (struct fs_helper_step){
			.op = FS_HELPER_VISIT, .target = sb->rec.id, .fd = {-1, -1}, .may = true};
	ret = fs_helper_run_while(all->helper, fs_sandbox_base(all, sb), m->steps + at,
				  nr + !!m->parked - at, false, meanwhile, ctx, &why);
	if (m->parked && (ret == 0 || ret == -ENOENT))
		ret = mounts_again(all, sb, m, at, &why);
	return ret < 0 ? err_set(err, ret, "%s", err_text(&why, ret)) : 0;
}

int fs_layers_mount(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, bool again,
		    struct err *err)
{
	return fs_layers_mount_while(all, sb, dir_fd, again, NULL, NULL, err);
}

int fs_layers_mount_while(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, bool again,
			  void (*meanwhile)(void *ctx), void *ctx, struct err *err)
{
	struct mounts m;
	int ret;

	if (all->no_mounts) {
		fs_sandbox_trace_watched(all, sb, -1, NULL, 0);
		return nr_mounted(sb) == 0
			       ? 0
			       : err_set(err, -EROFS,
					 "sandbox %s: its layers were mounted, which a mount that "
					 "fusermount3 made does not allow",
					 sb->rec.id);
	}
	fs_large_inputs_fini(&sb->large);
	/* What is opened there is opened in session two, where nobody could tell whose it is. */
	if (sb->rec.writable != FS_WRITABLE_ALL && sb->rec.trace < FS_TRACE_READS &&
	    !fs_plan_is_served(&sb->rec.plan))
		fs_large_choose(all->large, &sb->rec.root, &sb->outputs, &sb->large);
	ret = mounts_init(sb, all->uppers && sb->rec.trace != FS_TRACE_EXACT, &m);
	free(sb->keys);
	sb->keys = ret == 0 ? calloc(m.nr, sizeof(*sb->keys)) : NULL;
	if (sb->keys == NULL)
		ret = err_set(err, -ENOMEM, "no memory to mount sandbox %s", sb->rec.id);
	for (size_t i = 0; ret == 0 && i < nr_mounted(sb); i++)
		ret = layer_step(all, sb, dir_fd, i, again, &m.steps[i + 1], err);
	if (ret == 0) {
		m.nr_watch = fs_sandbox_trace_watch(all, sb, m.targets, m.steps + m.nr);
		ret = aim_at_parked(all, sb, &m);
	}
	if (ret == 0) {
		ret = mounts_do(all, sb, &m, meanwhile, ctx, err);
		if (ret < 0)
			mounts_undo(all, sb, &m);
		else if (m.steps[0].code < 0)
			log_debug("sandbox %s: no proof of idleness: %s", sb->rec.id,
				  strerrordesc_np(-m.steps[0].code));
	}
	if (ret == 0) {
		for (size_t i = 0; i < m.nr; i++)
			sb->keys[i] = m.steps[i].key;
		sb->mounted = true;
		sb->bind = m.steps[0].key;
		note_bound(sb, &m);
	}
	fs_large_done(all->large, &sb->large);
	if (ret == 0)
		fs_sandbox_trace_watched(all, sb, dir_fd, m.steps + m.nr, m.nr_watch);
	else
		fs_sandbox_trace_pause(all, sb);
	mounts_fini(&m);
	return ret;
}

/* Where its root is in session one. */
static const char *root_name(struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	bool parked = sb->parking && fs_slot_is_parked(all->slots, sb->parking);

	return parked ? fs_slot_place(sb->parking) : sb->rec.id;
}

/*
 * What else is mounted in the sandbox, and which layers are not where they were put: only
 * their files are captured that the action still had, or had taken off, at their place.
 */
static int look_around(struct fs_sandboxes *all, struct fs_sandbox *sb, const struct mounts *m,
		       struct err *err)
{
	auto_free struct fs_own_mount *own = calloc(m->nr, sizeof(*own));
	auto_free char *top = NULL;
	struct fs_findings foreign = {0};
	int ret;

	if (own == NULL ||
	    asprintf(&top, "%s/%s", fs_sandbox_base(all, sb), root_name(all, sb)) < 0) {
		top = NULL;
		return err_set(err, -ENOMEM, "no memory to look for mounts");
	}
	for (size_t i = 0; i < m->nr; i++)
		own[i] = (struct fs_own_mount){
			.path = fs_path_rest(m->targets[i], sb->rec.id),
			.key = sb->keys ? sb->keys[i] : (struct fs_mount_key){0},
		};
	ret = fs_foreign_find(top, own, m->nr, &foreign, err);
	if (ret < 0) {
		fs_findings_fini(&foreign);
		return ret;
	}
	for (size_t i = 1; i <= nr_mounted(sb) && sb->moved; i++)
		sb->moved[i - 1] = own[i].elsewhere;
	for (size_t i = 0; i < foreign.nr; i++)
		log_warn("sandbox %s: \"%s\": %s", sb->rec.id, foreign.found[i].path,
			 foreign.found[i].text);
	fs_findings_fini(&sb->foreign);
	sb->foreign = foreign;
	return 0;
}

/* Let go of all that is mounted in the sandbox, whoever uses it. */
static void detach_all(struct fs_sandboxes *all, struct fs_sandbox *sb, const struct mounts *m)
{
	struct fs_helper_step step = {.op = FS_HELPER_DETACH};
	struct err err = {0};

	/* What is on the bind goes with it. */
	for (size_t i = sb->bound ? 1 : m->nr; i-- > 0;) {
		step.target = i > 0 ? m->targets[i] : root_name(all, sb);
		if (fs_helper_run(all->helper, fs_sandbox_base(all, sb), &step, 1, true, &err) <
			    0 &&
		    !is_away(step.code))
			log_error("sandbox %s: %s", sb->rec.id, err_text(&err, step.code));
	}
}

/* Is step @i of fs_layers_mount undone when the sandbox ends? */
static bool is_mounted(const struct fs_sandbox *sb, size_t i)
{
	const struct fs_large_input *large = large_of(sb, i);

	return large ? large->bound : i > 0 || sb->bound;
}

/* @code of step @i, which did not come off as it should. */
static void note_in_use(struct fs_sandbox *sb, size_t i, int code)
{
	if (i == 0)
		log_info("sandbox %s: somebody is inside still", sb->rec.id);
	else if (large_of(sb, i))
		log_info("sandbox %s: the large input %s is %s", sb->rec.id, large_of(sb, i)->path,
			 is_away(code) ? "not at its place any more" : "in use still");
	else
		note_leftover(sb, i - 1, code);
}

/*
 * A layer that is put out of the way needs no waiting for the kernel. But who unmounts them
 * later may be slower than those who bring some.
 */
static bool may_put_away(const struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	return all->slots && sb->parking && sb->rec.allowance.keeper == FS_KEEPER_NONE &&
	       atomic_load(&all->nr_away) < AWAY_MAX;
}

static struct fs_helper_step off_step(const struct fs_sandboxes *all, const struct fs_sandbox *sb,
				      const struct mounts *m, size_t i)
{
	struct fs_helper_step step = {.op = FS_HELPER_UNMOUNT, .target = m->targets[i]};

	if (sb->keys)
		step.key = sb->keys[i];
	if (i > 0 && !large_of(sb, i) && may_put_away(all, sb)) {
		step.op = FS_HELPER_AWAY;
		step.source = fs_slots_off(all->slots);
	}
	return step;
}

/* Asks whether anybody is on the bind. */
static struct fs_helper_step proof_step(const struct fs_sandbox *sb)
{
	struct fs_helper_step step = {.op = FS_HELPER_UNMOUNT, .target = sb->rec.id};

	if (sb->keys)
		step.key = sb->keys[0];
	if (sb->parking) {
		step.op = FS_HELPER_IDLE;
		step.target = fs_slot_place(sb->parking);
	}
	return step;
}

/*
 * Take all but the bind off as long as nobody uses it. True: so it was with all; then
 * *answer (NULL: nobody wants it) is what fs_layers_ask would return.
 */
static bool take_off(struct fs_sandboxes *all, struct fs_sandbox *sb, const struct mounts *m,
		     struct fs_helper_step *back, int *answer)
{
	struct err err = {0};
	bool clean = true;
	size_t nr = 0;

	for (size_t i = m->nr; i-- > 1;) {
		if (is_mounted(sb, i))
			back[nr++] = off_step(all, sb, m, i);
	}
	if (answer && sb->bound) {
		back[nr] = proof_step(sb);
		back[nr++].if_clean = true;
	}
	if (nr > 0)
		(void)fs_helper_run(all->helper, fs_sandbox_base(all, sb), back, nr, true, &err);
	nr = 0;
	for (size_t i = m->nr; i-- > 1;) {
		bool away = is_mounted(sb, i) && back[nr].op == FS_HELPER_AWAY;
		int code = is_mounted(sb, i) ? back[nr++].code : 0;

		if (code != 0)
			note_in_use(sb, i, code);
		if (away && code == 0)
			(void)atomic_fetch_add(&all->nr_away, 1);
		clean = clean && code == 0;
	}
	if (answer && sb->bound)
		*answer = back[nr].code;
	return clean;
}

/*
 * Unmount what fs_layers_mount mounted but for the bind, noting with @look what the action
 * mounted besides. Where something was in use, or missing, the bind goes as well. @answer:
 * as of take_off, while proving.
 */
static int layers_unmount(struct fs_sandboxes *all, struct fs_sandbox *sb, bool look, int *answer,
			  struct err *err)
{
	auto_free struct fs_helper_step *back = NULL;
	struct mounts m;
	int ret = mounts_init(sb, all->uppers != NULL, &m);
	bool off = false;

	fs_sandbox_trace_pause(all, sb);
	back = ret == 0 ? calloc(m.nr, sizeof(*back)) : NULL;
	if (back == NULL)
		ret = err_set(err, -ENOMEM, "no memory to unmount sandbox %s", sb->rec.id);
	if (ret == 0) {
		off = take_off(all, sb, &m, back, answer);
		if (!off && look)
			ret = look_around(all, sb, &m, err);
	}
	if (ret == 0 && !off)
		detach_all(all, sb, &m);
	mounts_fini(&m);
	if (ret < 0)
		return ret;
	sb->layers_idle = off;
	sb->proving = off && sb->bound;
	sb->bound = sb->bound && off;
	sb->mounted = false;
	return 0;
}

int fs_layers_ask(struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	struct fs_helper_step step = proof_step(sb);
	struct err err = {0};

	(void)fs_helper_run(all->helper, fs_sandbox_base(all, sb), &step, 1, true, &err);
	return step.code;
}

/* Somebody is inside, or something is mounted there, where no output is. */
static void let_bind_go(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct mounts m;
	struct err err = {0};
	int ret = mounts_init(sb, false, &m);

	if (ret == 0)
		ret = look_around(all, sb, &m, &err);
	if (ret < 0)
		log_error("sandbox %s: %s", sb->rec.id, err_text(&err, ret));
	if (m.targets && m.steps)
		detach_all(all, sb, &m);
	mounts_fini(&m);
}

void fs_layers_settle(struct fs_sandboxes *all, struct fs_sandbox *sb, int answer)
{
	if (!sb->proving)
		return;
	sb->proving = false;
	if (answer != 0) {
		note_in_use(sb, 0, answer);
		let_bind_go(all, sb);
	}
	/* A parked bind is its root's from now on. */
	sb->bound = false;
	sb->idle_proven = answer == 0 && sb->layers_idle && !sb->leftover;
}

void fs_layers_sweep(struct fs_sandboxes *all)
{
	unsigned nr;

	while ((nr = atomic_load(&all->nr_away)) > 0) {
		struct fs_helper_step steps[AWAY_MAX] = {0};
		struct err err = {0};
		int ret;

		nr = nr < AWAY_MAX ? nr : AWAY_MAX;
		for (unsigned i = 0; i < nr; i++)
			steps[i] = (struct fs_helper_step){.op = FS_HELPER_UNMOUNT,
							   .target = fs_slots_off(all->slots),
							   .detach = true};
		ret = fs_helper_run(all->helper, all->base, steps, nr, true, &err);
		(void)atomic_fetch_sub(&all->nr_away, nr);
		if (ret < 0 && !is_away(ret))
			log_warn("layers of ended sandboxes: %s", err_text(&err, ret));
	}
}

void fs_layers_unmount(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct err err = {0};
	int answer = -EBUSY;

	if (sb->mounted && layers_unmount(all, sb, false, &answer, &err) < 0)
		log_error("%s", err.msg);
	fs_layers_settle(all, sb, answer);
}

/* Has the root moved to its parking place, when somebody looks for it there? */
static bool park_unmounted(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	auto_free char *path = NULL;

	if (!sb->parking || asprintf(&path, "%s/%s", all->base, fs_slot_place(sb->parking)) < 0) {
		path = NULL;
		return false;
	}
	return fs_helper_ping(all->helper, path, PARK_MS, NULL) == 0 &&
	       fs_slot_is_parked(all->slots, sb->parking);
}

static int freeze(struct fs_sandboxes *all, struct fs_sandbox *sb, int *answer, struct err *err)
{
	struct err why = {0};
	bool survivors = false;
	int ret;

	if (sb->frozen) {
		if (answer && sb->proving)
			*answer = fs_layers_ask(all, sb);
		return 0;
	}
	if (sb->rec.cgroup && fs_cgroup_kill(sb->rec.cgroup, &why) < 0) {
		survivors = true;
		sb->leftover = true;
		log_warn("sandbox %s: %s", sb->rec.id, why.msg);
	}
	sb->group_ended = sb->rec.cgroup && !survivors;
	if (sb->moved == NULL)
		sb->moved = calloc(sb->rec.plan.nr_layers + 1, sizeof(*sb->moved));
	fs_sandbox_cover(all, sb);
	ret = sb->mounted ? layers_unmount(all, sb, true, answer, err) : 0;
	if (ret < 0) {
		fs_sandbox_uncover(all, sb);
		return ret;
	}
	if (all->no_mounts && !survivors)
		sb->layers_idle = park_unmounted(all, sb);
	sb->layers_idle = sb->layers_idle && !survivors;
	/* It does not serve writes any more, whoever is inside. */
	if (!fs_sandbox_end_upper(all, sb))
		sb->layers_idle = false;
	if (all->no_mounts)
		sb->idle_proven = sb->layers_idle;
	sb->frozen = true;
	return 0;
}

int fs_layers_freeze(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	return freeze(all, sb, NULL, err);
}

int fs_layers_freeze_and_ask(struct fs_sandboxes *all, struct fs_sandbox *sb, int *answer,
			     struct err *err)
{
	return freeze(all, sb, answer, err);
}

int fs_layers_open(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
		   struct fs_merge *out, struct err *err)
{
	const struct fs_plan *plan = &sb->rec.plan;
	struct fs_merge m = {
		.store = all->store, .loaded = fs_merge_loaded_new(), .userxattr = all->in_userns};
	int ret = 0;

	m.layers = calloc(plan->nr_layers + 1, sizeof(*m.layers));
	if (m.layers == NULL) {
		fs_layers_close(&m);
		return err_set(err, -ENOMEM, "no memory for layers");
	}
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
	fs_merge_loaded_free(m->loaded);
	m->layers = NULL;
	m->loaded = NULL;
	m->nr_layers = 0;
}
