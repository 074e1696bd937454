/* fs/control/fsck.c - compare every blob with its name, by the daemon that serves them */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/control/commands.h"
#include "fs/control/control.h"
#include "fs/report/events.h"
#include "meta/meta.h"

/* An answer names so many faults, and counts the rest. */
#define NAMES_MAX   1000
#define THREADS_MAX 64
#define CANCEL_NS   100000000ULL

struct check {
	const struct control_env *env;
	struct cas_fsck_progress progress;
	json_t *faults; /* lists of lines */
	json_t *notes;
	struct buf lost; /* of struct cas_digest */
	struct lock lock;
	pthread_cond_t changed;
	bool done GUARDED_BY(lock);
};

static void add_line(json_t *list, const char *line)
{
	/* A file's name may be no UTF-8: jansson refuses it, and the count tells. */
	if (json_array_size(list) < NAMES_MAX)
		(void)json_array_append_new(list, json_string(line));
}

static void on_fault(void *ctx, const char *line)
{
	struct check *c = ctx;

	log_warn("fsck: %s", line);
	add_line(c->faults, line);
}

static void on_note(void *ctx, const char *line)
{
	struct check *c = ctx;

	add_line(c->notes, line);
}

static void on_lost(void *ctx, const struct cas_digest *digest)
{
	struct check *c = ctx;

	(void)buf_append(&c->lost, digest, sizeof(*digest));
}

/* The check looks at its own flag alone. */
static void *watch_thread(void *arg)
{
	struct check *c = arg;

	lock_take(&c->lock);
	while (!c->done) {
		if (atomic_load(c->env->ending))
			atomic_store(&c->progress.cancel, true);
		(void)lock_wait(&c->lock, &c->changed, lock_now_ns() + CANCEL_NS);
	}
	lock_drop(&c->lock);
	return NULL;
}

static int check_watched(struct check *c, const struct cas_fsck_options *opts,
			 struct cas_fsck_result *out, struct err *err)
{
	pthread_t thread;
	int ret = -pthread_create(&thread, NULL, watch_thread, c);

	if (ret < 0)
		return err_set(err, ret, "fsck: cannot start a thread");
	ret = cas_fsck(c->env->store, opts, out, err);
	lock_take(&c->lock);
	c->done = true;
	(void)pthread_cond_signal(&c->changed);
	lock_drop(&c->lock);
	(void)pthread_join(thread, NULL);
	return ret;
}

/* What was moved aside may be in a tier; the digests of what is nowhere are told. */
static int restore_lost(struct check *c, json_t *answer)
{
	const struct cas_digest *lost = (const struct cas_digest *)(const void *)c->lost.data;
	size_t nr = c->lost.len / sizeof(*lost);
	json_t *gone = json_array();
	json_int_t restored = 0;
	int ret;

	for (size_t i = 0; gone && i < nr; i++) {
		if (cas_store_has(c->env->store, &lost[i]) == 1 ||
		    (c->env->fetch &&
		     cas_fetch_wait(c->env->fetch, &lost[i], c->env->ending, NULL) == 0))
			restored++;
		else
			add_line(gone, CAS_DIGEST_TEXT(&lost[i]));
	}
	ret = control_add(answer, "restored", json_integer(restored));
	return ret == 0 ? control_add(answer, "lost", gone) : (json_decref(gone), ret);
}

/* Rows are hints, so making them right needs no --repair. */
static int recount(const struct control_env *env, const struct cas_fsck_result *r,
		   struct meta_reconcile_result *counts)
{
	struct meta_stat known = {0};
	struct err why = {0};
	int ret = meta_stat(env->meta, &known, &why);

	if (ret == 0 &&
	    (known.blobs != r->blobs || known.bytes != r->bytes || known.disk != r->disk))
		ret = meta_reconcile(env->meta, counts, &why);
	if (ret < 0)
		log_warn("fsck: counts may differ and stay: %s", err_text(&why, ret));
	return ret;
}

static int add_sums(json_t *answer, const struct cas_fsck_result *r,
		    const struct meta_reconcile_result *counts)
{
	json_t *o =
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "blobs", (json_int_t)r->blobs,
			  "bytes", (json_int_t)r->bytes, "faults", (json_int_t)r->faults,
			  "repaired", (json_int_t)r->repaired, "foreign", (json_int_t)r->foreign,
			  "adopted", (json_int_t)counts->adopted, "dropped",
			  (json_int_t)counts->dropped, "resized", (json_int_t)counts->resized);
	int ret = o && json_object_update(answer, o) == 0 ? 0 : -ENOMEM;

	json_decref(o);
	return ret;
}

static int run_check(struct control_call *call, struct check *c, struct err *err)
{
	struct cas_fsck_options opts = {
		.repair = control_has(call->req, "repair"),
		.fault = on_fault,
		.note = on_note,
		.lost = on_lost,
		.ctx = c,
		.progress = &c->progress,
	};
	struct meta_reconcile_result counts = {0};
	struct cas_fsck_result result = {0};
	int64_t nr_threads = 0;
	int ret = control_get_number(call->req, "threads", 1, THREADS_MAX, &nr_threads, err);

	opts.nr_threads = (int)nr_threads;
	if (ret == 0)
		ret = check_watched(c, &opts, &result, err);
	if (ret == 0)
		ret = restore_lost(c, call->answer);
	if (ret == 0) {
		(void)recount(call->env, &result, &counts);
		ret = add_sums(call->answer, &result, &counts);
	}
	if (ret == 0)
		fs_event(call->env->events, "fsck", "{s:I, s:I, s:I, s:I}", "blobs",
			 (json_int_t)result.blobs, "bytes", (json_int_t)result.bytes, "faults",
			 (json_int_t)result.faults, "repaired", (json_int_t)result.repaired);
	if (ret == 0)
		ret = control_add(call->answer, "fault_lines", json_incref(c->faults));
	if (ret == 0)
		ret = control_add(call->answer, "note_lines", json_incref(c->notes));
	return ret;
}

NO_LOCK_CHECK int control_fsck(struct control_call *call, struct err *err)
{
	struct check c = {.env = call->env, .faults = json_array(), .notes = json_array()};
	int ret = -ENOMEM;

	lock_init(&c.lock, LOCK_RANK_LEAF, "fsck");
	lock_cond_init(&c.changed);
	if (c.faults && c.notes)
		ret = run_check(call, &c, err);
	(void)pthread_cond_destroy(&c.changed);
	lock_fini(&c.lock);
	json_decref(c.faults);
	json_decref(c.notes);
	buf_fini(&c.lost);
	return ret;
}
