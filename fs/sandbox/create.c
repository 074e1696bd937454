/* fs/sandbox/create.c - a sandbox begins, and ends */
#include <errno.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch.h"
#include "fs/engine/cgroup.h"
#include "fs/learn/learn.h"
#include "fs/sandbox/land.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/sandbox/times.h"
#include "fs/slot/pool.h"
#include "fs/slot/slot.h"
#include "meta/meta.h"

/* fs_plan_tree over a stored root. */
struct tree_look {
	struct meta *meta;
	const struct cas_digest *root;
};

static int look_dir(struct meta *meta, const struct cas_digest *dir, enum fs_plan_kind *out,
		    struct err *err)
{
	struct meta_dirinfo info;
	int ret = meta_dir_info(meta, dir, &info, err);

	if (ret < 0)
		return ret;
	*out = info.nr_entries > 0 ? FS_PLAN_DIR : FS_PLAN_EMPTY_DIR;
	return 0;
}

static int look(void *ctx, const char *path, enum fs_plan_kind *out, struct err *err)
{
	const struct tree_look *t = ctx;
	struct cas_digest at = *t->root;

	while (*path != '\0') {
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct meta_dirent ent;
		enum cas_node_kind kind;
		int ret;

		memcpy(name, path, len);
		name[len] = '\0';
		path += len;
		path += *path == '/';
		ret = meta_dir_find(t->meta, &at, name, &ent, err);
		if (ret < 0)
			return ret;
		if (ret == 0) {
			*out = FS_PLAN_ABSENT;
			return 0;
		}
		kind = ent.kind;
		at = ent.digest;
		meta_dirent_fini(&ent);
		if (kind != CAS_NODE_DIRECTORY) {
			*out = kind == CAS_NODE_FILE ? FS_PLAN_FILE : FS_PLAN_SYMLINK;
			return 0;
		}
	}
	return look_dir(t->meta, &at, out, err);
}

int fs_sandbox_plan(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	struct tree_look ctx = {.meta = all->meta, .root = &sb->rec.root};
	struct fs_plan_tree tree = {.look = look, .ctx = &ctx};
	struct fs_plan plan;
	int ret = fs_plan_make(&sb->outputs, sb->rec.writable, &tree, &plan, err);

	/* Session two, where exact traces are, serves none. */
	if (ret == 0 && all->uppers && sb->rec.trace != FS_TRACE_EXACT)
		ret = fs_plan_serve(&plan, all->serve_always);
	if (ret < 0)
		return ret;
	/* What a record says about layers stays: files lie there. */
	lock_take(&all->lock);
	if (sb->rec.plan.layers == NULL) {
		sb->rec.plan.layers = steal_ptr(&plan.layers);
		sb->rec.plan.nr_layers = plan.nr_layers;
		plan.nr_layers = 0;
	}
	sb->rec.plan.dirs = steal_ptr(&plan.dirs);
	sb->rec.plan.nr_dirs = plan.nr_dirs;
	plan.nr_dirs = 0;
	lock_drop(&all->lock);
	fs_plan_fini(&plan);
	return 0;
}

int fs_sandbox_derive(struct fs_sandboxes *all, const struct fs_sandbox *sb,
		      struct fs_derived **out, struct err *err)
{
	const struct fs_plan *plan = &sb->rec.plan;
	auto_free struct fs_graft *grafts = calloc(plan->nr_dirs + 1, sizeof(*grafts));

	if (grafts == NULL)
		return err_set(err, -ENOMEM, "no memory for the root of a sandbox");
	for (size_t i = 0; i < plan->nr_dirs; i++)
		grafts[i] = (struct fs_graft){.path = plan->dirs[i], .op = FS_GRAFT_DIR};
	return fs_derive(all->meta, &sb->rec.root, grafts, plan->nr_dirs, out, err);
}

static int root_check(struct fs_sandboxes *all, const struct cas_digest *root, struct err *err)
{
	struct err why = {0};
	struct meta_dirinfo info;
	int ret = meta_dir_info(all->meta, root, &info, &why);

	if (ret == -EUCLEAN)
		return err_set(err, -ENOTDIR, "root %s is not a Directory: %.500s",
			       CAS_DIGEST_TEXT(root), err_text(&why, ret));
	if (ret < 0)
		return err_set(err, ret, "root %s: %.500s", CAS_DIGEST_TEXT(root),
			       err_text(&why, ret));
	/* Somebody will look into it soon. */
	if (cas_fetch_of(all->store))
		cas_fetch_foresee_tree(cas_fetch_of(all->store), root);
	return 0;
}

static int record_fill(struct fs_sandboxes *all, const struct fs_sandbox_spec *spec,
		       struct fs_record *rec)
{
	char id[33];

	if (spec->id == NULL && io_random_hex(id, 16) < 0)
		return -EIO;
	rec->id = strdup(spec->id ? spec->id : id);
	rec->boot_id = strdup(all->boot_id);
	rec->root = spec->root;
	rec->writable = spec->writable;
	rec->state = FS_SANDBOX_CREATING;
	rec->unlisted = spec->unlisted;
	rec->attached = spec->attached;
	rec->trace = spec->trace;
	rec->created_ns = fs_sandbox_now_ns();
	rec->allowance.bytes = spec->max_bytes;
	rec->allowance.files = spec->max_files;
	rec->allowance.under_quota = spec->under_quota;
	rec->given = calloc(spec->nr_outputs + 1, sizeof(*rec->given));
	if (!rec->id || !rec->boot_id || !rec->given)
		return -ENOMEM;
	for (size_t i = 0; i < spec->nr_outputs; i++) {
		rec->given[i] = strdup(spec->outputs[i]);
		if (rec->given[i] == NULL)
			return -ENOMEM;
		rec->nr_given = i + 1;
	}
	return 0;
}

static int sandbox_new(struct fs_sandboxes *all, const struct fs_sandbox_spec *spec,
		       struct fs_sandbox **out, struct err *err)
{
	struct fs_sandbox *sb;
	int ret = spec->id ? fs_sandbox_id_check(spec->id, err) : 0;

	if (ret == 0 && spec->trace == FS_TRACE_EXACT && !all->traced)
		ret = err_set(err, -EOPNOTSUPP,
			      "no exact traces on this mount, which fusermount3 made, so that no "
			      "layer can be mounted on it: --trace reads works here, exact where "
			      "casbox mounts itself (in a namespace of its own, or as root)");
	if (ret < 0)
		return ret;
	sb = calloc(1, sizeof(*sb));
	if (sb == NULL)
		return err_set(err, -ENOMEM, "no memory for a sandbox");
	sb->dir_fd = -1;
	ret = record_fill(all, spec, &sb->rec);
	if (ret < 0)
		(void)err_set(err, ret, "cannot describe a new sandbox: %s", strerrordesc_np(-ret));
	else
		ret = fs_outputs_parse(spec->outputs, spec->nr_outputs, &sb->outputs, err);
	if (ret < 0) {
		fs_sandbox_free(sb);
		return ret;
	}
	*out = sb;
	return 0;
}

/*
 * What makes a directory a sandbox's: its record, then the name. All else may still fail, and
 * then it loses that again.
 */
struct naming {
	struct fs_sandboxes *all;
	struct fs_sandbox *sb;
	const char *dir; /* its name before */
	bool done;
	bool named;
	int ret;
	struct err *err;
};

static int write_record(struct naming *n)
{
	int ret;

	fs_sandbox_set_state(n->all, n->sb, FS_SANDBOX_LIVE);
	fs_sandbox_times_ready(n->all, n->sb);
	ret = fs_record_write_new(&n->sb->rec, n->sb->dir_fd, n->all->durable, n->err);
	if (ret == 0)
		fs_sandbox_give(n->all, n->sb->dir_fd, FS_RECORD_NAME);
	return ret;
}

/* Never in another's place: a sandbox's directory has a record, and so is not empty. */
static int rename_new(int dir_fd, const char *from, const char *to)
{
	if (renameat2(dir_fd, from, dir_fd, to, RENAME_NOREPLACE) == 0)
		return 0;
	/* What filesystems answer that know no such flag: many over a network, and in FUSE. */
	if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
		return -errno;
	if (renameat(dir_fd, from, dir_fd, to) == 0)
		return 0;
	return errno == ENOTEMPTY || errno == ENOTDIR ? -EEXIST : -errno;
}

static void give_name(void *ctx)
{
	struct naming *n = ctx;

	if (n->done)
		return;
	n->done = true;
	n->ret = write_record(n);
	if (n->ret == 0) {
		n->ret = rename_new(n->all->dir_fd, n->dir, n->sb->rec.id);
		if (n->ret < 0)
			(void)err_set(n->err, n->ret, "cannot make the directory of sandbox %s: %s",
				      n->sb->rec.id, strerrordesc_np(-n->ret));
	}
	n->named = n->ret == 0;
	if (n->all->slots)
		fs_slots_push(n->all->slots);
}

static int mount_and_name(struct fs_sandboxes *all, struct fs_sandbox *sb, struct naming *n,
			  struct err *err)
{
	int ret = fs_layers_mount_while(
		all, sb, sb->dir_fd, false,
		sb->rec.allowance.keeper == FS_KEEPER_NONE ? give_name : NULL, n, err);

	if (ret < 0)
		return ret;
	ret = fs_allowance_set(all, sb, sb->dir_fd, err);
	if (ret == 0) {
		give_name(n);
		ret = n->ret;
	}
	if (ret < 0)
		fs_layers_unmount(all, sb);
	else
		fs_sandbox_times_ready(all, sb);
	return ret;
}

/* Everything that can go wrong, with the sandbox's own directory. */
static int sandbox_make(struct fs_sandboxes *all, struct fs_sandbox *sb, struct naming *n,
			struct err *err)
{
	struct fs_derived *view = NULL;
	int ret = fs_sandbox_derive(all, sb, &view, err);

	if (ret == 0)
		ret = fs_allowance_begin(all, sb, sb->dir_fd, err);
	if (ret == 0)
		ret = fs_layers_prepare(sb, sb->dir_fd, err);
	if (ret == 0)
		ret = fs_sandbox_show_view(all, sb, view, err);
	if (ret < 0) {
		fs_derived_free(view);
		return ret;
	}
	ret = mount_and_name(all, sb, n, err);
	if (!n->done && all->slots)
		fs_slots_push(all->slots);
	return ret;
}

/* Its directory, if the next sandbox may have it. */
static int spare_dir(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	bool spare = !sb->leftover && sb->rec.allowance.keeper == FS_KEEPER_NONE;

	return spare ? fs_sandbox_dir_steal(all, sb) : -1;
}

static int sandbox_begin(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	struct naming naming = {.all = all, .sb = sb, .err = err};
	struct fs_pooled *dir = NULL;
	/* Before anything is made: most wrong requests end here. */
	int ret = root_check(all, &sb->rec.root, err);

	if (ret == 0)
		fs_learn_begin(all->learn, sb->rec.id, &sb->rec.root,
			       (const char *const *)sb->rec.given, sb->rec.nr_given);
	if (ret == 0)
		ret = fs_sandbox_plan(all, sb, err);
	if (ret == 0)
		ret = fs_reaper_prepared(all, &dir, err);
	if (ret < 0)
		return ret;
	sb->dir_fd = steal_fd(&dir->dir_fd);
	(void)atomic_fetch_add(&all->nr_dirs, 1);
	naming.dir = dir->name;
	ret = sandbox_make(all, sb, &naming, err);
	if (ret < 0) {
		fs_allowance_end(all, sb, sb->dir_fd);
		(void)fs_reaper_take(all, naming.named ? sb->rec.id : dir->name, spare_dir(all, sb),
				     sb->rec.plan.nr_layers, NULL, NULL);
	} else {
		fs_sandbox_dir_settle(all, sb);
	}
	fs_pooled_free(dir);
	return ret;
}

int fs_sandbox_create(struct fs_sandboxes *all, const struct fs_sandbox_spec *spec, char **id_out,
		      char **path_out, struct err *err)
{
	struct fs_sandbox *sb = NULL;
	auto_free char *id = NULL;
	auto_free char *path = NULL;
	int ret = sandbox_new(all, spec, &sb, err);

	if (ret < 0)
		return ret;
	id = strdup(sb->rec.id);
	if (id == NULL || asprintf(&path, "%s/%s", fs_sandbox_base(all, sb), id) < 0) {
		path = NULL;
		fs_sandbox_free(sb);
		return err_set(err, -ENOMEM, "no memory for a sandbox");
	}
	ret = fs_sandbox_enter(all, sb);
	if (ret < 0) {
		fs_sandbox_free(sb);
		return err_set(err, ret,
			       ret == -EEXIST ? "sandbox id %s is in use"
					      : "no memory for sandbox %s",
			       id);
	}
	ret = sandbox_begin(all, sb, err);
	if (ret < 0) {
		fs_sandbox_leave(all, sb);
	} else {
		fs_sandbox_tell_added(all, sb);
		fs_sandbox_history(all, sb, "live");
		log_info("sandbox %s: created, root %s, %zu layers", id,
			 CAS_DIGEST_TEXT(&sb->rec.root), sb->rec.plan.nr_layers);
	}
	fs_sandbox_unclaim(all, sb);
	if (ret < 0)
		return ret;
	*id_out = steal_ptr(&id);
	*path_out = steal_ptr(&path);
	return 0;
}

int fs_sandbox_vouch(struct fs_sandboxes *all, const char *id, struct err *err)
{
	struct fs_sandbox *sb = NULL;
	int ret = fs_sandbox_claim(all, id, &sb, err);

	if (ret < 0)
		return ret;
	sb->vouched = true;
	fs_sandbox_unclaim(all, sb);
	return 0;
}

int fs_sandbox_set_cgroup(struct fs_sandboxes *all, const char *id, const char *cgroup,
			  struct err *err)
{
	struct fs_sandbox *sb = NULL;
	char *copy = NULL;
	char *old;
	int ret = cgroup ? fs_cgroup_check(cgroup, err) : 0;

	if (ret == 0)
		ret = fs_sandbox_claim(all, id, &sb, err);
	if (ret < 0)
		return ret;
	if (cgroup)
		copy = strdup(cgroup);
	if (cgroup && copy == NULL) {
		fs_sandbox_unclaim(all, sb);
		return err_set(err, -ENOMEM, "no memory for a control group");
	}
	lock_take(&all->lock);
	old = sb->rec.cgroup;
	sb->rec.cgroup = copy;
	lock_drop(&all->lock);
	free(old);
	ret = fs_sandbox_save(all, sb, err);
	fs_sandbox_unclaim(all, sb);
	return ret;
}

int fs_sandbox_drop_files(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	int dir_fd = sb->rec.state == FS_SANDBOX_FINISHED ? fs_sandbox_dir(all, sb, NULL) : -1;
	int ret = dir_fd < 0 ? 0 : fs_land(all->store, dir_fd, err);

	/* What its result names would go with it. */
	if (ret < 0)
		return ret;
	if (sb->rec.allowance.keeper != FS_KEEPER_NONE)
		fs_allowance_end(all, sb, fs_sandbox_dir(all, sb, NULL));
	/* Who is inside still keeps what he has, and it is used for nothing else. */
	return fs_reaper_take(all, sb->rec.id, spare_dir(all, sb), sb->rec.plan.nr_layers,
			      sb->rec.cgroup, err);
}

void fs_sandbox_drop(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	fs_sandbox_leave(all, sb);
	fs_sandbox_history(all, sb, "removed");
}

int fs_sandbox_remove(struct fs_sandboxes *all, const char *id, struct err *err)
{
	struct fs_sandbox *sb;
	int ret = fs_sandbox_claim(all, id, &sb, err);
	int answer = -EBUSY;

	if (ret < 0)
		return ret;
	/* While the name still resolves: forgetting an entry would detach what is on it. */
	ret = fs_layers_freeze_and_ask(all, sb, &answer, err);
	if (ret == 0)
		fs_layers_settle(all, sb, answer);
	if (ret == 0)
		ret = fs_sandbox_drop_files(all, sb, err);
	if (ret == 0) {
		fs_sandbox_drop(all, sb);
		log_info("sandbox %s: removed", id);
	} else {
		fs_sandbox_uncover(all, sb);
	}
	fs_sandbox_unclaim(all, sb);
	return ret;
}
