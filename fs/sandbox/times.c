/* fs/sandbox/times.c - where the time of a sandbox goes */
#include "fs/sandbox/times.h"

#include <string.h>

#include "fs/sandbox/sandbox_i.h"

static void count(struct fs_sandboxes *all, struct fs_box_counts *out)
{
	*out = (struct fs_box_counts){0};
	if (all->events.counted)
		all->events.counted(all->events.ctx, out);
}

void fs_sandbox_times_began(struct fs_sandbox *sb, const struct cas_digest *former)
{
	static const struct cas_digest none;

	sb->rec.times.has_former = memcmp(former->hash, none.hash, CAS_HASH_SZ) != 0;
	sb->rec.times.former = *former;
}

void fs_sandbox_times_ready(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	count(all, &sb->counts);
	lock_take(&all->lock);
	sb->rec.times.setup_ns = fs_sandbox_now_ns() - sb->rec.created_ns;
	lock_drop(&all->lock);
}

/* A sandbox that another daemon has made is not counted for: it began with other counts. */
void fs_sandbox_times_ending(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct fs_box_times *t = &sb->rec.times;
	struct fs_box_counts now;

	if (t->live_ns != 0)
		return;
	count(all, &now);
	lock_take(&all->lock);
	t->live_ns = fs_sandbox_now_ns() - sb->rec.created_ns - t->setup_ns;
	if (sb->counts.nr_upcalls > 0) {
		t->nr_upcalls = (int64_t)(now.nr_upcalls - sb->counts.nr_upcalls);
		t->upcalls_ns = (int64_t)(now.upcalls_ns - sb->counts.upcalls_ns);
		t->nr_waits = (int64_t)(now.nr_waits - sb->counts.nr_waits);
		t->waited_ns = (int64_t)(now.waited_ns - sb->counts.waited_ns);
	}
	lock_drop(&all->lock);
}

void fs_sandbox_times_frozen(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct fs_box_times *t = &sb->rec.times;

	lock_take(&all->lock);
	if (t->freeze_ns == 0)
		t->freeze_ns = fs_sandbox_now_ns() - sb->rec.created_ns - t->setup_ns - t->live_ns;
	lock_drop(&all->lock);
}
