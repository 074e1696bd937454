/* fs/sandbox/served.c - a sandbox whose layer session one serves itself */
#include <errno.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "fs/engine/engine.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/slot/slot.h"
#include "fs/upper/upper.h"

bool fs_sandbox_is_apart(const struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	return all->uppers && fs_plan_is_served(&sb->rec.plan) &&
	       (all->serve_always || sb->rec.writable != FS_WRITABLE_OUTPUTS ||
		fs_outputs_at_root(&sb->outputs));
}

/* What the kernel knows of the tree where the layer has its own is not so any more. */
static bool forget_hidden(struct fs_sandboxes *all, const struct fs_upper *upper, uint64_t serial)
{
	const char *const *hidden;
	bool forgotten = true;
	size_t nr;

	hidden = fs_upper_hidden(upper, &nr);
	for (size_t i = 0; i < nr && all->slots; i++)
		forgotten = fs_slot_forget(all->slots, serial, hidden[i]) == 0 && forgotten;
	return forgotten;
}

struct forgetting {
	struct fs_sandboxes *all;
	uint64_t serial;
};

static int forget_stale(void *ctx, const struct fs_upper_stale *stale)
{
	const struct forgetting *f = ctx;

	if (stale->whole)
		return fs_slot_forget(f->all->slots, f->serial, stale->dir);
	return fs_slot_forget_in(f->all->slots, f->serial, stale->dir, stale->names, stale->nr,
				 stale->changed);
}

int fs_sandbox_begin_upper(struct fs_sandboxes *all, struct fs_sandbox *sb, uint64_t serial,
			   const struct cas_digest *root, struct err *err)
{
	struct fs_upper_spec spec = {
		.serial = serial,
		.root = *root,
		.writable = sb->rec.writable,
		.outputs = &sb->outputs,
		.again = sb->rec.state != FS_SANDBOX_CREATING,
	};
	const struct fs_allowance *allowance = &sb->rec.allowance;
	auto_close int fd = -1;
	int dir_fd;
	int ret;

	if (!all->uppers || !fs_plan_is_served(&sb->rec.plan) || sb->upper)
		return 0;
	dir_fd = fs_sandbox_dir(all, sb, err);
	if (dir_fd < 0)
		return dir_fd;
	fd = fs_engine_opendir(dir_fd, "upper/0", err);
	if (fd < 0)
		return fd;
	spec.layer_fd = fd;
	if (allowance->keeper == FS_KEEPER_SERVED)
		spec.limit = (struct fs_usage){allowance->bytes, allowance->files};
	ret = fs_upper_begin(all->uppers, &spec, &sb->upper, err);
	/* The root may have been another's, for which these were inputs. */
	if (ret == 0 && !forget_hidden(all, sb->upper, serial)) {
		fs_upper_end(sb->upper);
		fs_upper_unref(sb->upper);
		sb->upper = NULL;
		ret = err_set(err, -EAGAIN, "the kernel does not let go of an earlier sandbox");
	}
	return ret;
}

bool fs_sandbox_end_upper(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct forgetting f = {all, sb->serial};
	bool forgotten;

	if (!sb->upper)
		return true;
	fs_upper_end(sb->upper);
	fs_upper_usage(sb->upper, &sb->usage);
	forgotten = !all->slots || fs_upper_each_stale(sb->upper, forget_stale, &f) == 0;
	fs_upper_unref(sb->upper);
	sb->upper = NULL;
	return forgotten;
}
