/* fs/upper/table.c - layers begin and end, and where they are found */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/engine/engine.h"
#include "fs/node/identity.h"
#include "fs/upper/limit.h"
#include "fs/upper/place.h"
#include "fs/upper/upper_i.h"
#include "meta/meta.h"

static void view_let_go(const struct fs_view *view, const struct fs_entry *entry)
{
	(void)view;
	fs_unode_unref(fs_unode_of(entry));
}

/* What is missing though the tree has it is news to the kernel, as is a node of ours. */
static int look_shown(struct fs_unode *dir, const char *name, struct fs_entry *out, struct err *err)
{
	struct fs_found found;
	int ret = fs_upper_look(dir, name, &found, err);

	if (ret == 0 && dir->place && dir->upper->any_odd) {
		ret = fs_upper_hides(dir, name, err);
		if (ret > 0)
			fs_uplace_touch(dir, name);
		return ret < 0 ? ret : 0;
	}
	if (ret <= 0)
		return ret;
	if (!found.node) {
		*out = found.entry;
	} else if (fs_uplace_is_tree(found.node)) {
		*out = found.node->lower;
		fs_found_end(&found);
	} else {
		fs_uplace_touch(dir, name);
		fs_unode_entry(found.node, out);
	}
	return 1;
}

static int view_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		       struct fs_entry *out, struct err *err)
{
	struct fs_unode *node = fs_unode_of(dir);
	int ret;

	(void)view;
	fs_upper_lock(node->upper);
	ret = fs_upper_check(node->upper);
	if (ret == 0)
		ret = look_shown(node, name, out, err);
	fs_upper_unlock(node->upper);
	return ret;
}

static int view_stat(const struct fs_view *view, const struct fs_entry *entry, struct stat *st,
		     struct fs_entry *lower)
{
	(void)view;
	return fs_upper_stat(fs_unode_of(entry), st, lower);
}

/* What is missing stays so until a name is made, of which the kernel learns by itself. */
static const struct fs_view_ops upper_ops = {
	.lookup = view_lookup,
	.list = fs_upper_list,
	.stat = view_stat,
	.let_go = view_let_go,
	.negative_forever = true,
};

int fs_uppers_new(const struct fs_uppers_options *opts, struct fs_uppers **out)
{
	struct fs_uppers *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->opts = *opts;
	all->view = (struct fs_view){&upper_ops, all};
	fs_view_tree_init(&all->tree, opts->meta);
	lock_init(&all->lock, LOCK_RANK_SESSION, "layers");
	lock_init(&all->refs_lock, LOCK_RANK_LEAF, "counts of nodes of layers");
	atomic_flag_clear(&all->reaping);
	fs_ufds_init(&all->fds);
	*out = all;
	return 0;
}

void fs_uppers_free(struct fs_uppers *all)
{
	if (!all)
		return;
	fs_uppers_reap(all);
	fs_ufds_fini(&all->fds);
	lock_fini(&all->refs_lock);
	lock_fini(&all->lock);
	free(all);
}

bool fs_uppers_any(const struct fs_uppers *all)
{
	return atomic_load_explicit(&all->nr_uppers, memory_order_relaxed) > 0;
}

void fs_upper_unref(struct fs_upper *upper)
{
	struct fs_uppers *all;
	bool last;

	if (!upper)
		return;
	all = upper->all;
	lock_take(&all->refs_lock);
	last = --upper->nr_refs == 0;
	lock_drop(&all->refs_lock);
	if (!last)
		return;
	fs_uplaces_fini(upper);
	fs_outputs_fini(&upper->outputs);
	if (upper->root_fd >= 0)
		(void)close(upper->root_fd);
	if (upper->work_fd >= 0)
		(void)close(upper->work_fd);
	(void)pthread_cond_destroy(&upper->idle);
	lock_fini(&upper->lock);
	free(upper);
}

static int copy_outputs(const struct fs_outputs *from, struct fs_outputs *to)
{
	to->out = calloc(from->nr + 1, sizeof(*to->out));
	if (!to->out)
		return -ENOMEM;
	for (size_t i = 0; i < from->nr; i++) {
		to->out[i] = from->out[i];
		to->out[i].path = strdup(from->out[i].path);
		if (!to->out[i].path)
			return -ENOMEM;
		to->nr = i + 1;
	}
	return 0;
}

static int make_root(struct fs_upper *upper, const struct cas_digest *root, struct err *err)
{
	struct fs_unode *node = fs_unode_new(upper, S_IFDIR);
	bool all = upper->writable == FS_WRITABLE_ALL;
	int ret;

	if (!node)
		return -ENOMEM;
	upper->root = node;
	node->has_upper = node->has_lower = true;
	ret = fs_view_tree_root(&upper->all->tree, root, &fs_key_zero, 0, &node->lower, err);
	if (ret < 0)
		return ret;
	node->ino = fs_key_ino(&fs_key_zero);
	node->free = all || fs_outputs_find(&upper->outputs, "") != NULL;
	node->near = true;
	node->area = false;
	for (size_t i = 0; i < upper->outputs.nr; i++)
		node->area = node->area || (!strchr(upper->outputs.out[i].path, '/') &&
					    !upper->outputs.out[i].premade);
	fs_ufd_add(node, upper->root_fd);
	(void)fs_ufd_pin(node);
	fs_ufd_unref(node);
	upper->root_fd = -1;
	return 0;
}

static int open_files(struct fs_upper *upper, int layer_fd, struct err *err)
{
	int ret = fs_engine_mkdir(layer_fd, "w", err);

	if (ret == 0)
		ret = upper->root_fd = fs_engine_opendir(layer_fd, "u", err);
	if (ret >= 0)
		ret = upper->work_fd = fs_engine_opendir(layer_fd, "w", err);
	if (ret >= 0)
		ret = fs_disk_recover(upper, err);
	return ret;
}

static int upper_fill(struct fs_upper *upper, const struct fs_upper_spec *spec, struct err *err)
{
	int ret = copy_outputs(spec->outputs, &upper->outputs);

	/* The tree keeps its root where the layer need not have it. */
	upper->has_root = upper->writable != FS_WRITABLE_OUTPUTS || upper->all->opts.unshared ||
			  (ret == 0 && fs_outputs_at_root(&upper->outputs));
	if (ret == 0)
		ret = open_files(upper, spec->layer_fd, err);
	if (ret == 0)
		ret = make_root(upper, &spec->root, err);
	if (ret == 0 && !upper->has_root)
		ret = fs_uplaces_make(upper, err);
	if (ret == 0)
		ret = fs_ulimit_begin(upper, spec);
	return ret < 0 && err && !err->code
		       ? err_set(err, ret, "cannot serve a layer: %s", strerrordesc_np(-ret))
		       : ret;
}

/* Whether something lies there already that has attributes nobody knows. */
int fs_upper_begin(struct fs_uppers *all, const struct fs_upper_spec *spec, struct fs_upper **out,
		   struct err *err)
{
	struct fs_upper *upper = calloc(1, sizeof(*upper));
	int ret;

	if (!upper)
		return err_set(err, -ENOMEM, "no memory to serve a layer");
	upper->all = all;
	upper->nr_refs = 1;
	upper->serial = spec->serial;
	upper->writable = spec->writable;
	upper->root_fd = upper->work_fd = -1;
	upper->any_odd = spec->again;
	atomic_init(&upper->apart, spec->again);
	lock_init(&upper->lock, LOCK_RANK_INODE, "a layer");
	lock_cond_init(&upper->idle);
	LIST_INIT(&upper->nodes);
	ret = upper_fill(upper, spec, err);
	if (ret == 0) {
		lock_take(&all->lock);
		HASH_ADD(hh, all->by_serial, serial, sizeof(upper->serial), upper);
		ret = upper->hh.tbl ? 0 : err_set(err, -ENOMEM, "no memory to serve a layer");
		lock_drop(&all->lock);
	}
	if (ret < 0) {
		upper->serial = 0;
		fs_upper_end(upper);
		fs_upper_unref(upper);
		return ret;
	}
	(void)atomic_fetch_add(&all->nr_uppers, 1);
	*out = upper;
	return 0;
}

/* Descriptors go at once; nodes when the kernel forgets them. */
void fs_upper_end(struct fs_upper *upper)
{
	struct fs_uppers *all = upper->all;
	struct fs_unode *node;

	lock_take(&all->lock);
	if (upper->hh.tbl) {
		HASH_DEL(all->by_serial, upper);
		(void)atomic_fetch_sub(&all->nr_uppers, 1);
		upper->hh.tbl = NULL;
	}
	lock_drop(&all->lock);
	fs_upper_wait_idle(upper);
	fs_upper_lock(upper);
	LIST_FOREACH(node, &upper->nodes, all_nodes)
	fs_ufd_close(node);
	fs_uplaces_end(upper);
	node = upper->root;
	upper->root = NULL;
	fs_upper_unlock(upper);
	if (node)
		fs_unode_unref(node);
	fs_uppers_reap(all);
}

/* The layer of a slot, counted; NULL: none. */
static struct fs_upper *find(struct fs_uppers *all, uint64_t serial)
{
	struct fs_upper *upper;

	lock_take(&all->lock);
	HASH_FIND(hh, all->by_serial, &serial, sizeof(serial), upper);
	if (upper) {
		lock_take(&all->refs_lock);
		upper->nr_refs++;
		lock_drop(&all->refs_lock);
	}
	lock_drop(&all->lock);
	return upper;
}

int fs_uppers_root(struct fs_uppers *all, uint64_t serial, struct fs_entry *out, struct err *err)
{
	struct fs_upper *upper = find(all, serial);
	int ret = 0;

	(void)err;
	if (upper && upper->has_root) {
		fs_upper_lock(upper);
		if (!upper->ended) {
			fs_unode_ref(upper->root);
			fs_unode_entry(upper->root, out);
			ret = 1;
		}
		fs_upper_unlock(upper);
	}
	fs_upper_unref(upper);
	return ret;
}

/* Down from the root of the layer, so that what lies there is met. */
static int walk(struct fs_upper *upper, const char *path, struct err *err)
{
	struct fs_found at = {.node = upper->root};
	int ret = 1;

	fs_unode_ref(at.node);
	while (ret > 0 && *path) {
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct fs_found next;

		memcpy(name, path, len);
		name[len] = '\0';
		path += len + (path[len] == '/');
		ret = fs_upper_look(at.node, name, &next, err);
		if (ret <= 0)
			break;
		fs_found_end(&at);
		at = next;
		ret = at.node ? 1 : -ENOTDIR;
	}
	fs_found_end(&at);
	return ret;
}

/* The same for the place alone; it is there, or the tree is not what it was. */
static int answer_for(struct fs_upper *upper, const struct fs_uplace *place, struct fs_entry *out,
		      struct err *err)
{
	int ret = place->node ? 1 : walk(upper, place->path, err);

	if (ret >= 0 && !place->node)
		ret = -ESTALE;
	if (ret < 0)
		return ret;
	fs_unode_ref(place->node);
	fs_unode_entry(place->node, out);
	return 1;
}

int fs_uppers_dir(struct fs_uppers *all, uint64_t serial, const struct fs_key *dir,
		  struct fs_entry *out, struct err *err)
{
	struct fs_upper *upper = find(all, serial);
	const struct fs_uplace *place = upper ? fs_uplace_find(upper, dir) : NULL;
	int ret = 0;

	if (place && place->shared) {
		fs_upper_lock(upper);
		if (!upper->ended)
			ret = answer_for(upper, place, out, err);
		fs_upper_unlock(upper);
	}
	fs_upper_unref(upper);
	return ret;
}

bool fs_uppers_apart(struct fs_uppers *all, uint64_t serial, const struct fs_key *dir)
{
	struct fs_upper *upper = find(all, serial);
	bool apart = upper && atomic_load(&upper->apart) && fs_uplace_find(upper, dir);

	fs_upper_unref(upper);
	return apart;
}
