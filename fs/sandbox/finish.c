/* fs/sandbox/finish.c - freeze a sandbox, capture its outputs, keep the result */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/fetch/outbox.h"
#include "cas/landing/landing.h"
#include "cas/reapi/action.h"
#include "cas/store/store.h"
#include "fs/capture/capture.h"
#include "fs/capture/crew.h"
#include "fs/capture/early.h"
#include "fs/capture/foreign.h"
#include "fs/capture/missing.h"
#include "fs/capture/result.h"
#include "fs/capture/syncer.h"
#include "fs/learn/learn.h"
#include "fs/sandbox/journal.h"
#include "fs/sandbox/land.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/sandbox/times.h"

/*
 * In this order, so that a crash anywhere leaves a sandbox that can go on:
 *
 *   freeze           nobody writes any more
 *   capture          each move to the store noted in the journal before it happens
 *   manifest         of files that are too many to be moved now
 *   result           the binary ActionResult
 *   record           FINISHED: the result counts, the journal no longer does
 *   land             what the manifest names is in the store, where it lies
 *
 * A capture that fails, or that a restart finds cut, is undone from the journal, which may
 * fail itself: files are copied out of the store, and the disk may be full. Then it is
 * done before the next capture, and eviction keeps what the journal wants. With
 * full durability each step is on disk before the next; else blobs and their rows are
 * synced soon after the answer.
 *
 * Whoever wants the sandbox gone as well needs no record of the result: his capture ends
 * with the sandbox's directory losing its name.
 *
 * To freeze takes the mount helper as long as to capture a few small files. When somebody
 * vouched that nobody is inside, the outputs are read meanwhile, and taken if the layers
 * then came off as idle; else they are captured again, in the order above.
 */

#define RESULT_MAX (256 << 20)

/* What one finish works with. */
struct finish {
	struct fs_sandboxes *all;
	struct fs_sandbox *sb;
	const struct fs_finish_spec *spec;
	int dir_fd;
	struct fs_derived *view;     /* what it shows, or showed */
	struct fs_derived *own_view; /* owned; NULL: it is the sandbox's */
	struct fs_merge merge;
	struct fs_changes changes;
	struct fs_capture capture;
	struct fs_result_times times;
	struct cas_landing_list *landing; /* NULL: no file is to land */
	struct buf result;		  /* binary */
	bool removed;			  /* its files are gone */
	struct fs_crew_loan *loan;	  /* asks whether anybody is inside; NULL: nobody does */
	int proof;			  /* the answer */
	bool begun;			  /* fs_sandboxes_capture_begin */
	bool hurried;			  /* captured while it is being frozen */
	bool captured;
	int freeze_code; /* hurried: what freezing came to, and why */
	struct err freeze_err;
	struct err *err;
};

static void finish_fini(struct finish *f)
{
	fs_capture_fini(&f->capture);
	fs_changes_fini(&f->changes);
	fs_layers_close(&f->merge);
	fs_derived_free(f->own_view);
	cas_landing_list_free(f->landing);
	buf_fini(&f->result);
}

int fs_sandbox_read_result(struct fs_sandbox *sb, int dir_fd, struct buf *out, struct err *err)
{
	int ret = io_read_file(dir_fd, FS_RESULT_NAME, RESULT_MAX, out);

	return ret < 0 ? err_set(err, ret, "cannot read the result of sandbox %s: %s", sb->rec.id,
				 strerrordesc_np(-ret))
		       : 0;
}

int fs_sandbox_show_result(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	auto_close int dir_fd = fs_sandbox_open_dir(all, sb->rec.id, err);
	auto_buf struct buf data = {0};
	struct fs_derived *view = NULL;
	struct fs_graft *grafts;
	size_t nr;
	int ret = dir_fd < 0 ? dir_fd : fs_sandbox_read_result(sb, dir_fd, &data, err);

	/* It is being removed: its files go first. */
	if (dir_fd == -ENOENT)
		return 0;
	if (ret == 0)
		ret = fs_result_grafts(buf_str(&data), data.len, &sb->outputs, &grafts, &nr, err);
	if (ret < 0)
		return ret;
	ret = fs_derive(all->meta, &sb->rec.root, grafts, nr, &view, err);
	fs_result_grafts_free(grafts, nr);
	return ret < 0 ? ret : fs_sandbox_show_lazy(all, sb, view, err);
}

/*
 * May files leave the uppers for the store as they are? A process in a mount namespace of
 * its own that reads an output keeps no mount of ours busy, and could open it again for
 * writing, by its descriptor, when it is a blob. Only the end of the control group says
 * that there is none.
 */
static bool may_move(const struct fs_sandbox *sb)
{
	/* What we served nobody else has ever had open. */
	if (fs_plan_is_served(&sb->rec.plan))
		return true;
	return sb->layers_idle && sb->group_ended && !sb->leftover &&
	       sb->rec.allowance.keeper == FS_KEEPER_NONE;
}

/* Many files are not moved while somebody waits: their directories land, as a whole. */
static void begin_landing(struct finish *f)
{
	const struct fs_sandbox *sb = f->sb;
	auto_close int fd = -1;

	/* What we serve ourselves may be open still. */
	if (fs_plan_is_served(&sb->rec.plan) || sb->foreign.nr > 0 || f->all->durable ||
	    !cas_landing_is_on(f->all->store))
		return;
	fd = openat(f->dir_fd, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && cas_landing_list_new(f->all->store, fd, &f->landing) < 0)
		f->landing = NULL;
}

/* All that is to land is known; the capture is over. */
static int note_landing(struct finish *f)
{
	if (f->landing && cas_landing_list_count(f->landing) == 0) {
		cas_landing_list_free(f->landing);
		f->landing = NULL;
	}
	return f->landing ? fs_land_begin(f->dir_fd, f->landing, f->err) : 0;
}

static void ask(void *ctx)
{
	struct finish *f = ctx;

	f->proof = fs_layers_ask(f->all, f->sb);
}

/* Have somebody ask whether anybody is inside, while outputs are captured. */
static void begin_proof(struct finish *f)
{
	if (f->sb->proving)
		f->loan = fs_crew_lend(f->all->crew, ask, f);
}

static void end_proof(struct finish *f)
{
	if (!f->sb->proving)
		return;
	if (!fs_crew_return(f->all->crew, steal_ptr(&f->loan)))
		ask(f);
	fs_layers_settle(f->all, f->sb, f->proof);
}

static void begin_capture(struct finish *f)
{
	if (!f->begun) {
		fs_early_pause(f->all->early);
		fs_sandboxes_capture_begin(f->all);
	}
	f->begun = true;
}

static void end_capture(struct finish *f)
{
	if (f->begun) {
		fs_sandboxes_capture_end(f->all);
		fs_early_resume(f->all->early);
	}
	f->begun = false;
}

static int capture(struct finish *f)
{
	struct fs_capture_options opts = {.may_move = !f->hurried && may_move(f->sb),
					  .foreign = f->hurried ? NULL : &f->sb->foreign,
					  .crew = f->all->crew,
					  .left = f->spec->left,
					  .early = f->all->early};
	struct fs_journal *journal = NULL;
	int ret =
		fs_changes_find(&f->merge, &f->sb->outputs, f->sb->rec.writable,
				f->sb->rec.plan.dirs, f->sb->rec.plan.nr_dirs, &f->changes, f->err);

	if (ret == 0 && opts.may_move)
		ret = fs_journal_open(f->dir_fd, &journal, f->err);
	if (ret < 0)
		return ret;
	if (journal) {
		fs_sandbox_give(f->all, f->dir_fd, FS_JOURNAL_NAME);
		opts.moving = fs_journal_moving;
		opts.moving_ctx = journal;
		begin_landing(f);
		opts.landing = f->landing;
	}
	f->times.upload_start_ns = fs_sandbox_now_ns();
	ret = fs_capture_run(&f->merge, f->view, &f->sb->outputs, &opts, &f->capture, f->err);
	fs_journal_close(journal);
	if (ret == 0)
		ret = note_landing(f);
	/* SIGKILL costs no blob that has its name; only a power cut could. */
	if (ret == 0 && f->all->durable)
		ret = cas_store_sync(f->all->store, f->err);
	else if (ret == 0)
		fs_syncer_want(f->all->syncer);
	f->times.upload_end_ns = fs_sandbox_now_ns();
	return ret;
}

static int make_answer(struct finish *f, json_t **answer)
{
	return fs_result_answer(buf_str(&f->result), f->result.len, &f->sb->outputs,
				f->sb->rec.notes, answer, f->err);
}

static int note_missing(struct finish *f, json_t **notes)
{
	json_t *missing = fs_missing_list(f->all->store, f->all->meta, &f->sb->rec.root,
					  f->sb->rec.created_ns);
	int ret = missing ? 0 : -ENOMEM;

	if (ret == 0 && json_array_size(missing) > 0) {
		if (*notes == NULL)
			*notes = json_object();
		ret = json_object_set(*notes, "missing", missing) == 0 ? 0 : -ENOMEM;
	}
	json_decref(missing);
	return ret < 0 ? err_set(f->err, ret, "no memory for a result") : 0;
}

static int note_limits(struct finish *f, json_t **notes)
{
	struct cas_limit limits[FS_ALLOWANCE_LIMITS];
	size_t nr = fs_allowance_tell(f->all, f->sb, limits);
	json_t *list = json_array();
	int ret = list ? cas_result_add_limits(&f->result, limits, nr, f->err)
		       : err_set(f->err, -ENOMEM, "no memory for a result");

	for (size_t i = 0; i < nr; i++)
		(void)json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:b}", "limit",
							    limits[i].name, "value",
							    (json_int_t)limits[i].value, "peak",
							    (json_int_t)limits[i].peak, "reached",
							    (int)limits[i].reached));
	if (nr > 0 && *notes == NULL)
		*notes = json_object();
	if (nr > 0)
		(void)json_object_set(*notes, "limits", list);
	json_decref(list);
	return ret;
}

static int make_result(struct finish *f)
{
	struct fs_record *rec = &f->sb->rec;
	json_t *notes = NULL;
	int ret;

	f->times.created_ns = rec->created_ns;
	f->times.completed_ns = fs_sandbox_now_ns();
	ret = fs_result_make(&f->sb->outputs, &f->capture, &f->changes, f->spec, &f->times,
			     &f->result, &notes, f->err);
	if (ret == 0)
		ret = note_missing(f, &notes);
	if (ret == 0)
		ret = note_limits(f, &notes);
	if (ret < 0) {
		json_decref(notes);
		return ret;
	}
	lock_take(&f->all->lock);
	json_decref(rec->notes);
	rec->notes = notes;
	rec->finished_ns = f->times.completed_ns;
	rec->times.capture_ns = f->times.upload_end_ns - f->times.upload_start_ns;
	rec->exit_code = f->spec->exit_code;
	lock_drop(&f->all->lock);
	return 0;
}

/* Write the result, then the record that makes it count. */
static int keep_result(struct finish *f)
{
	struct fs_record *rec = &f->sb->rec;
	int ret = io_overwrite_file(f->dir_fd, FS_RESULT_NAME, buf_str(&f->result), f->result.len,
				    0600, f->all->durable);

	fs_sandbox_give(f->all, f->dir_fd, FS_RESULT_NAME);
	if (ret < 0)
		return err_set(f->err, ret, "sandbox %s: cannot write its result: %s", rec->id,
			       strerrordesc_np(-ret));
	fs_sandbox_set_state(f->all, f->sb, FS_SANDBOX_FINISHED);
	ret = fs_record_write(rec, f->dir_fd, f->all->durable, f->err);
	if (ret < 0)
		fs_sandbox_set_state(f->all, f->sb, FS_SANDBOX_FINISHING);
	else
		fs_sandbox_give(f->all, f->dir_fd, FS_RECORD_NAME);
	return ret;
}

/*
 * What was changed against the policy is kept, for whoever wants to know why it failed. Files
 * land when the result counts, and not before.
 */
static int settle_result(struct finish *f)
{
	bool drop = f->spec->remove && f->changes.changed.nr == 0;
	int ret = drop && f->landing == NULL ? 0 : keep_result(f);

	if (ret == 0 && f->landing)
		ret = fs_land(f->all->store, f->dir_fd, f->err);
	if (ret < 0 || !drop)
		return ret;
	ret = fs_sandbox_drop_files(f->all, f->sb, f->err);
	f->removed = ret == 0;
	return ret;
}

/* The capture failed: every file is where it was. */
static void undo(struct finish *f)
{
	struct err err = {0};
	int dir_fd = fs_sandbox_dir(f->all, f->sb, &err);

	f->sb->cut = dir_fd < 0 || fs_land_undo(dir_fd, &err) < 0 ||
		     fs_journal_undo(f->all->store, dir_fd, &err) < 0;
	if (f->sb->cut)
		log_error("sandbox %s: its outputs are given back when it is finished again: %s",
			  f->sb->rec.id, err.msg);
}

/* What an undo could not do before. */
static int undo_cut(struct finish *f)
{
	int ret = fs_land_undo(f->dir_fd, f->err);

	if (ret == 0)
		ret = fs_journal_undo(f->all->store, f->dir_fd, f->err);
	if (ret < 0)
		return err_context(f->err, ret,
				   "sandbox %s: cannot give back what its last finish moved",
				   f->sb->rec.id);
	f->sb->cut = false;
	return 0;
}

/* Off to the tiers, when any takes it. The capture stands, whatever comes of that. */
static void publish(struct finish *f)
{
	struct err err = {0};

	if (cas_outbox_add_outputs(cas_outbox_of(f->all->store), f->result.data, f->result.len,
				   &err) < 0)
		log_error("sandbox %s: its outputs will not reach the tiers: %s", f->sb->rec.id,
			  err.msg);
}

static int open_layers(struct finish *f)
{
	int ret = 0;

	/* Only who has claimed it makes it show something else. */
	f->view = f->sb->view;
	if (f->view == NULL) {
		ret = fs_sandbox_derive(f->all, f->sb, &f->own_view, f->err);
		f->view = f->own_view;
	}
	if (ret == 0)
		ret = fs_layers_open(f->all, f->sb, f->dir_fd, &f->merge, f->err);
	if (ret < 0)
		return ret;
	f->merge.derived = f->view;
	f->merge.root = *fs_derived_root(f->view);
	return 0;
}

static int finish_frozen(struct finish *f)
{
	struct fs_sandbox *sb = f->sb;
	int ret = 0;

	fs_sandbox_set_state(f->all, sb, FS_SANDBOX_FINISHING);
	if (!f->captured)
		ret = open_layers(f);
	if (ret < 0)
		return ret;
	begin_capture(f);
	if (!f->captured)
		ret = capture(f);
	end_proof(f);
	if (ret == 0)
		ret = make_result(f);
	if (ret == 0)
		ret = settle_result(f);
	if (ret == 0)
		publish(f);
	/*
	 * As long as no eviction may come between: no result names what has moved. Once it is
	 * FINISHED the result counts.
	 */
	if (ret < 0 && sb->rec.state != FS_SANDBOX_FINISHED)
		undo(f);
	end_capture(f);
	return ret;
}

/* --- while it is being frozen --- */

/* With a control group files may move, once it has ended. */
static bool may_hurry(const struct finish *f)
{
	const struct fs_sandbox *sb = f->sb;

	return sb->vouched && sb->mounted && !sb->frozen && sb->rec.cgroup == NULL &&
	       f->spec->nr_mounted == 0 && !fs_plan_is_served(&sb->rec.plan) &&
	       sb->rec.allowance.keeper == FS_KEEPER_NONE;
}

/* The crew's, while the claimant captures and looks at nothing that this changes. */
static void freeze_and_ask(void *ctx)
{
	struct finish *f = ctx;

	f->freeze_code = fs_layers_freeze_and_ask(f->all, f->sb, &f->proof, &f->freeze_err);
	if (f->freeze_code == 0)
		fs_sandbox_times_frozen(f->all, f->sb);
}

static void drop_captured(struct finish *f)
{
	fs_capture_fini(&f->capture);
	fs_changes_fini(&f->changes);
	fs_layers_close(&f->merge);
	f->capture = (struct fs_capture){0};
	f->changes = (struct fs_changes){0};
}

/* Freeze and capture at once, if somebody is there to help. */
static int hurry(struct finish *f)
{
	struct fs_crew_loan *loan = NULL;
	struct err unused = {0};
	struct err *err = f->err;
	int ret;

	f->err = &unused;
	ret = open_layers(f);
	if (ret == 0)
		loan = fs_crew_lend(f->all->crew, freeze_and_ask, f);
	if (loan) {
		f->hurried = true;
		begin_capture(f);
		ret = capture(f);
		if (!fs_crew_return(f->all->crew, loan))
			freeze_and_ask(f);
		f->hurried = false;
	}
	f->err = err;
	f->captured = loan && ret == 0 && f->freeze_code == 0 && f->sb->layers_idle;
	if (!f->captured)
		drop_captured(f);
	if (loan == NULL)
		return 0;
	if (f->freeze_code < 0)
		return err_set(err, f->freeze_code, "%s", err_text(&f->freeze_err, f->freeze_code));
	fs_layers_settle(f->all, f->sb, f->proof);
	return 0;
}

static int freeze(struct finish *f)
{
	int ret = may_hurry(f) ? hurry(f) : 0;

	if (ret < 0 || f->sb->frozen)
		return ret;
	ret = fs_layers_freeze(f->all, f->sb, f->err);
	if (ret < 0)
		return ret;
	fs_sandbox_times_frozen(f->all, f->sb);
	begin_proof(f);
	return 0;
}

/* -EROFS with the names when the stored answer says that inputs were changed. */
static int verdict(const struct fs_sandbox *sb, const json_t *answer, struct err *err)
{
	const json_t *changed = json_object_get(answer, "changed");
	size_t nr = json_array_size(changed);
	const char *first = json_string_value(json_array_get(changed, 0));

	if (nr == 0)
		return 0;
	return err_set(err, -EROFS,
		       "sandbox %s: %zu input%s changed or hidden, against --writable %s: "
		       "%s%s",
		       sb->rec.id, nr, nr == 1 ? " was" : "s were",
		       fs_writable_name(sb->rec.writable), first ? first : "?",
		       nr > 1 ? " and others" : "");
}

static int take_mounted(struct fs_sandbox *sb, const struct fs_finish_spec *spec, struct err *err)
{
	for (size_t i = 0; i < spec->nr_mounted; i++) {
		const char *colon = strchr(spec->mounted[i], ':');
		auto_free char *type =
			colon ? strndup(spec->mounted[i], (size_t)(colon - spec->mounted[i]))
			      : NULL;

		if (colon == NULL)
			return err_set(err, -EINVAL, "--mounted wants TYPE:PATH, not \"%.128s\"",
				       spec->mounted[i]);
		if (type == NULL || fs_foreign_add(&sb->foreign, colon + 1, type) < 0)
			return err_set(err, -ENOMEM, "no memory to finish sandbox %s", sb->rec.id);
	}
	return 0;
}

static int finish_now(struct finish *f)
{
	struct fs_sandbox *sb = f->sb;
	int ret;

	if (sb->rec.state == FS_SANDBOX_LOST)
		return err_set(f->err, -ESTALE, "sandbox %s is lost: its outputs cannot be trusted",
			       sb->rec.id);
	ret = sb->cut ? undo_cut(f) : 0;
	if (ret < 0)
		return ret;
	fs_sandbox_times_ending(f->all, sb);
	ret = freeze(f);
	if (ret == 0 && !f->spec->remove)
		fs_sandbox_trace_keep(f->all, sb, f->dir_fd, true);
	if (ret == 0)
		ret = take_mounted(sb, f->spec, f->err);
	if (ret == 0)
		ret = finish_frozen(f);
	end_capture(f);
	end_proof(f);
	if (ret < 0) {
		fs_sandbox_uncover(f->all, sb);
		return ret;
	}
	if (f->removed) {
		fs_sandbox_drop(f->all, sb);
	} else {
		/* The result is for people who look: most often nobody does. */
		fs_sandbox_hide(f->all, sb, true);
		fs_early_forget(f->all->early, sb->rec.id);
		fs_sandbox_history(f->all, sb, "finished");
	}
	fs_learn_end(f->all->learn, sb->rec.id);
	log_info("sandbox %s: finished%s, exit code %d", sb->rec.id,
		 f->removed ? " and removed" : "", f->spec->exit_code);
	return 0;
}

/* It was finished before, and is to go as well now. */
static int drop_finished(struct finish *f)
{
	int ret = fs_sandbox_drop_files(f->all, f->sb, f->err);

	if (ret < 0)
		return ret;
	fs_sandbox_drop(f->all, f->sb);
	f->removed = true;
	return 0;
}

static int finish_claimed(struct fs_sandboxes *all, struct fs_sandbox *sb,
			  const struct fs_finish_spec *spec, json_t **answer, struct err *err)
{
	int dir_fd = fs_sandbox_dir(all, sb, err);
	struct finish f = {.all = all, .sb = sb, .spec = spec, .dir_fd = dir_fd, .err = err};
	json_t *got = NULL;
	int ret = dir_fd < 0 ? dir_fd : 0;

	if (ret == 0 && sb->rec.state == FS_SANDBOX_FINISHED)
		ret = fs_land(all->store, dir_fd, err);
	if (ret == 0 && sb->rec.state == FS_SANDBOX_FINISHED)
		ret = fs_sandbox_read_result(sb, dir_fd, &f.result, err);
	else if (ret == 0)
		ret = finish_now(&f);
	if (ret == 0)
		ret = make_answer(&f, &got);
	if (ret == 0)
		ret = verdict(sb, got, err);
	if (ret == 0 && spec->remove && !f.removed)
		ret = drop_finished(&f);
	if (got && !f.removed)
		(void)json_object_set_new(got, "result_file",
					  json_sprintf("%s/sandboxes/%s/%s",
						       cas_store_path(all->store), sb->rec.id,
						       FS_RESULT_NAME));
	if (got)
		*answer = got;
	finish_fini(&f);
	fs_sandbox_dir_settle(all, sb);
	return ret;
}

int fs_sandbox_finish(struct fs_sandboxes *all, const char *id, const struct fs_finish_spec *spec,
		      json_t **answer, struct err *err)
{
	struct fs_sandbox *sb;
	int ret = fs_sandbox_claim(all, id, &sb, err);

	if (ret < 0)
		return ret;
	ret = finish_claimed(all, sb, spec, answer, err);
	fs_sandbox_unclaim(all, sb);
	return ret;
}
