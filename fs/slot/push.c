/* fs/slot/push.c - give the kernel what it does not know before anybody asks */

/*
 * Pushes take turns: each is at it for one message to the helper, then goes to the end of
 * the queue, so that the changes of a new sandbox do not wait for the warming of a tree.
 */
#include "fs/slot/push.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/helper/helper.h"
#include "fs/node/inode.h"
#include "fs/serve/session.h"
#include "fs/slot/push_i.h"

#define MAX_WAITING  256
#define MAX_NAMES    256	 /* of one push of changes */
#define MAX_DIRS     100000	 /* of one push */
#define CHANGES_SZ   (4U << 20)	 /* of files, in all */
#define WARM_SZ	     (64U << 20) /* the same */
#define WARM_ENTRIES 200000

struct fs_push *fs_push_new(enum fs_push_kind kind, uint64_t serial)
{
	struct fs_push *push = calloc(1, sizeof(*push));

	if (!push)
		return NULL;
	push->kind = kind;
	push->serial = serial;
	push->bytes_left = kind == FS_PUSH_WARM ? WARM_SZ : CHANGES_SZ;
	push->entries_left = WARM_ENTRIES;
	return push;
}

void fs_push_free(struct fs_push *push)
{
	if (!push)
		return;
	for (size_t i = 0; i < push->nr_names; i++)
		free(push->names[i].name);
	free(push->names);
	free(push->dirs);
	free(push);
}

/* Room for one more; false: there is none. */
static bool grow_names(struct fs_push *push)
{
	size_t cap = push->names_cap ? 2 * push->names_cap : FS_PUSH_BATCH;
	struct push_name *names;

	if (push->nr_names < push->names_cap)
		return true;
	if (push->kind == FS_PUSH_CHANGES && push->nr_names == MAX_NAMES)
		return false;
	names = realloc(push->names, cap * sizeof(*names));
	if (!names)
		return false;
	push->names = names;
	push->names_cap = cap;
	return true;
}

void fs_push_name(struct fs_push *push, uint64_t dir, const char *name)
{
	char *copy = grow_names(push) ? strdup(name) : NULL;

	if (copy)
		push->names[push->nr_names++] = (struct push_name){dir, copy};
}

void fs_push_list(struct fs_push *push, uint64_t dir)
{
	if (push->nr_dirs == push->dirs_cap) {
		size_t cap = push->dirs_cap ? 2 * push->dirs_cap : FS_PUSH_BATCH;
		uint64_t *dirs = cap <= MAX_DIRS ? realloc(push->dirs, cap * sizeof(*dirs)) : NULL;

		if (!dirs)
			return;
		push->dirs = dirs;
		push->dirs_cap = cap;
	}
	push->dirs[push->nr_dirs++] = dir;
}

/* --- the thread --- */

static void queue_locked(struct fs_pusher *p, struct fs_push *push) REQUIRES(p->lock)
{
	push->next = NULL;
	*p->last = push;
	p->last = &push->next;
}

/* The next, NULL: the end. @last, if there was one, goes to the end of the queue or is over. */
static struct fs_push *next_push(struct fs_pusher *p, struct fs_push *last, bool more)
{
	struct fs_push *push = NULL;

	lock_take(&p->lock);
	if (last && more)
		queue_locked(p, last);
	p->nr_waiting -= last && !more;
	while (!p->first && !atomic_load(&p->stop))
		(void)lock_wait(&p->lock, &p->wake, 0);
	if (!atomic_load(&p->stop)) {
		push = p->first;
		p->first = push->next;
		if (!p->first)
			p->last = &p->first;
	}
	lock_drop(&p->lock);
	if (!more)
		fs_push_free(last);
	return push;
}

static void *pusher_thread(void *arg)
{
	struct fs_pusher *p = arg;
	struct fs_push *push = NULL;
	bool more = false;

	/* What nobody has touched is not worth a download, and not missing when none has it. */
	cas_fetch_never_here(true);
	while ((push = next_push(p, push, more)) != NULL)
		more = fs_push_turn(p, push);
	return NULL;
}

int fs_pusher_new(const struct fs_pusher_options *opts, struct fs_pusher **out, struct err *err)
{
	struct fs_pusher *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return err_set(err, -ENOMEM, "no memory for the pusher");
	p->opts = *opts;
	lock_init(&p->lock, LOCK_RANK_QUEUE, "pusher");
	lock_cond_init(&p->wake);
	lock_take(&p->lock);
	p->last = &p->first;
	lock_drop(&p->lock);
	ret = fs_helper_new(opts->helper_program, &p->helper, err);
	if (ret == 0) {
		ret = -pthread_create(&p->thread, NULL, pusher_thread, p);
		p->runs = ret == 0;
		if (ret < 0)
			(void)err_set(err, ret, "cannot start a thread: %s", strerrordesc_np(-ret));
	}
	if (ret < 0) {
		fs_pusher_free(p);
		return ret;
	}
	(void)pthread_setname_np(p->thread, "pusher");
	*out = p;
	return 0;
}

void fs_pusher_stop(struct fs_pusher *p)
{
	if (!p)
		return;
	lock_take(&p->lock);
	atomic_store(&p->stop, true);
	(void)pthread_cond_signal(&p->wake);
	lock_drop(&p->lock);
	if (p->runs)
		(void)pthread_join(p->thread, NULL);
	p->runs = false;
	/* Its copy of the mount would keep session one from ending. */
	fs_helper_free(p->helper);
	p->helper = NULL;
}

NO_LOCK_CHECK void fs_pusher_free(struct fs_pusher *p)
{
	if (!p)
		return;
	fs_pusher_stop(p);
	while (p->first) {
		struct fs_push *push = p->first;

		p->first = push->next;
		fs_push_free(push);
	}
	(void)pthread_cond_destroy(&p->wake);
	lock_fini(&p->lock);
	free(p);
}

void fs_pusher_submit(struct fs_pusher *p, struct fs_push *push)
{
	bool wanted = push->nr_names + push->nr_dirs > 0;

	lock_take(&p->lock);
	if (wanted && !atomic_load(&p->stop) && !atomic_load(&p->refused) &&
	    p->nr_waiting < MAX_WAITING) {
		queue_locked(p, push);
		p->nr_waiting++;
		push = NULL;
	}
	lock_drop(&p->lock);
	if (push && wanted)
		atomic_fetch_add(&p->nr_skipped, 1);
	fs_push_free(push);
}

void fs_pusher_wake(struct fs_pusher *p)
{
	bool wanted;

	lock_take(&p->lock);
	wanted = p->first != NULL;
	lock_drop(&p->lock);
	if (wanted)
		(void)pthread_cond_signal(&p->wake);
}

/* The last in the queue, if it is one of these that takes one more. */
static struct fs_push *open_want_locked(struct fs_pusher *p) REQUIRES(p->lock)
{
	struct fs_push *push = p->first;

	while (push && push->next)
		push = push->next;
	return push && push->kind == FS_PUSH_WANT && push->dir_at == 0 &&
			       push->nr_dirs < FS_PUSH_BATCH
		       ? push
		       : NULL;
}

void fs_pusher_want(struct fs_pusher *p, uint64_t dir)
{
	struct fs_push *push;

	if (lock_now_ns() < atomic_load(&p->crowded_ns)) {
		fs_inode_unlisted(p->opts.session->table, dir);
		return;
	}
	lock_take(&p->lock);
	push = open_want_locked(p);
	if (push)
		fs_push_list(push, dir);
	lock_drop(&p->lock);
	if (push)
		return;
	push = fs_push_new(FS_PUSH_WANT, 0);
	if (!push)
		return;
	fs_push_list(push, dir);
	fs_pusher_submit(p, push);
	fs_pusher_wake(p);
}

json_t *fs_pusher_describe(struct fs_pusher *p)
{
	size_t nr_waiting;

	lock_take(&p->lock);
	nr_waiting = p->nr_waiting;
	lock_drop(&p->lock);
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "names",
			 (json_int_t)atomic_load(&p->nr_names), "directories",
			 (json_int_t)atomic_load(&p->nr_dirs), "blobs",
			 (json_int_t)atomic_load(&p->nr_files), "waiting", (json_int_t)nr_waiting,
			 "skipped", (json_int_t)atomic_load(&p->nr_skipped));
}
