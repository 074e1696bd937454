/* fs/sandbox/sandbox_i.h - the table of sandboxes, for the files that share it */
#ifndef FS_SANDBOX_SANDBOX_I_H
#define FS_SANDBOX_SANDBOX_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
/* Out of memory is an error to return, not the end of the process. */
#define HASH_NONFATAL_OOM 1
/* Its default hash falls through switch labels, which we do not allow. */
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>

#include "cas/base/lock.h"
#include "fs/capture/capture.h"
#include "fs/capture/derive.h"
#include "fs/capture/merge.h"
#include "fs/helper/helper.h"
#include "fs/sandbox/outputs.h"
#include "fs/sandbox/record.h"
#include "fs/sandbox/sandbox.h"
#include "fs/slot/large.h"
#include "fs/trace/hooks_i.h"
#include "fs/upper/upper.h"

struct buf;
struct fs_crew;
struct fs_early;
struct fs_meter;
struct fs_meters;
struct fs_pooled;
struct fs_slot;
struct fs_syncer;
struct fs_upper;

/*
 * Whoever works on a sandbox claims it: @busy is set and others wait for their turn, so
 * that nothing long happens under the table's lock. The claimant alone touches the
 * fields marked so; what lookups and listings read changes under the lock as well.
 */
struct fs_sandbox {
	UT_hash_handle hh; /* table lock */
	struct fs_sandbox *prev, *next;
	bool busy;	   /* table lock */
	bool gone;	   /* table lock: out of the table, freed with the last waiter */
	bool visible;	   /* table lock: @view_root and @serial are shown */
	bool covered;	   /* table lock: but not to who looks just now */
	bool result_shown; /* table lock: what is visible is its result */
	bool lazy;	   /* table lock: not visible, its result is when somebody looks */
	unsigned nr_refs;  /* table lock: waiters, and who looks */
	uint64_t pos;	   /* constant */
	uint64_t serial;   /* table lock */
	struct cas_digest view_root; /* table lock */
	struct fs_derived *view;     /* table lock; held in meta; NULL: none */

	struct fs_trace *trace; /* table lock; NULL: none (any more: it is in a file) */

	struct fs_record rec; /* written by the claimant under the lock, read by either */

	/* The claimant's. */
	struct fs_box_counts counts; /* when it was answered */
	struct fs_outputs outputs;
	int dir_fd;		      /* STORE/sandboxes/ID, -1: not open; see fs_sandbox_dir */
	struct fs_large_inputs large; /* what is bound, or to be */
	bool mounted;		      /* layers may be mounted */
	bool bound;		      /* its directory is bound over itself */
	struct fs_mount_key bind;     /* bound: by this mount, if it is known */
	struct fs_meter *meter;	      /* of what it writes; NULL: no limit, or none kept yet */
	struct fs_slot *parking;      /* covered: where its root goes, or is; NULL: nowhere */
	bool frozen;		      /* layers were unmounted for good */
	bool leftover;		      /* somebody may still write to the uppers */
	bool cut;		      /* a capture failed that could not be undone so far */
	bool vouched;		      /* somebody said that nobody is inside, or will be */
	bool layers_idle;	      /* frozen: nobody was on a layer, and all are off */
	bool proving;		      /* frozen: whether anybody is inside is still to be asked */
	bool idle_proven;	      /* frozen: nobody of this mount namespace was inside */
	bool group_ended;	      /* frozen: it had a control group, in which nobody is left */
	struct fs_upper *upper;	      /* its layer, while it is served */
	struct fs_upper_usage usage;  /* of a layer that was served, with a limit */
	bool *moved;		      /* frozen: layer N had left its place (rec.plan.nr_layers) */
	/* Of the bind and the layers, in the order of layers.c; NULL: not mounted. */
	struct fs_mount_key *keys;
	struct fs_findings foreign; /* frozen: what else was mounted in it, by path */
};

struct fs_sandboxes {
	struct cas_store *store;
	struct meta *meta;
	struct fs_helper *helper;
	struct fs_slots *slots;
	struct fs_large *large;
	struct fs_tap *tap_one;
	struct fs_tap *tap_two;
	struct fs_learn *learn;
	struct fs_dirs *dirs;
	struct fs_opens *opens;
	struct fs_sandbox_events events;
	char *base;
	char *traced; /* NULL: no exact traces */
	bool in_userns;
	bool no_mounts;
	struct fs_uppers *uppers;
	bool serve_always;
	bool durable;
	char *boot_id;
	int dir_fd; /* STORE/sandboxes */
	bool give;  /* we are root, and it is somebody else's: */
	uid_t uid;
	gid_t gid;

	struct lock lock; /* rank SANDBOX */
	pthread_cond_t idle;
	struct fs_sandbox *by_id GUARDED_BY(lock);
	struct fs_sandbox *in_order GUARDED_BY(lock);
	uint64_t next_serial GUARDED_BY(lock);
	uint64_t next_pos GUARDED_BY(lock);
	unsigned nr_freezes GUARDED_BY(lock);  /* above 0: none enters, none is captured */
	unsigned nr_captures GUARDED_BY(lock); /* blobs that no result names yet */
	uint64_t nr_captured GUARDED_BY(lock);

	struct fs_syncer *syncer;
	struct fs_crew *crew; /* helps to capture */
	struct fs_meters *meters;
	struct fs_early *early; /* NULL: nothing is hashed before finish */
	pthread_t reaper;
	bool reaper_runs;
	struct lock reap_lock; /* rank QUEUE */
	pthread_cond_t reap_wake;
	bool reaper_inited;
	bool reap_stop GUARDED_BY(reap_lock);
	bool reap_dozing GUARDED_BY(reap_lock); /* it looks for work soon, unasked */
	struct fs_pooled *going GUARDED_BY(reap_lock);
	size_t nr_going GUARDED_BY(reap_lock);
	struct fs_pooled *ready GUARDED_BY(reap_lock);
	size_t nr_ready GUARDED_BY(reap_lock);
	_Atomic int nr_dirs;	  /* dir_fd of sandboxes that are open */
	_Atomic unsigned nr_away; /* layers that are off and still to be unmounted */
};

/* table: sandbox.c */

/* Wait for and take the sandbox; -ENOENT. Release with fs_sandbox_unclaim. */
int fs_sandbox_claim(struct fs_sandboxes *all, const char *id, struct fs_sandbox **out,
		     struct err *err);
void fs_sandbox_unclaim(struct fs_sandboxes *all, struct fs_sandbox *sb);
/* Around a capture, until its result is recorded: eviction waits for it, and it for thaw. */
void fs_sandboxes_capture_begin(struct fs_sandboxes *all);
void fs_sandboxes_capture_end(struct fs_sandboxes *all);
/* Enter @sb, claimed; waits for thaw. -EEXIST, -ENOMEM. */
int fs_sandbox_enter(struct fs_sandboxes *all, struct fs_sandbox *sb);
/* Take a claimed sandbox out of the table; freed when unclaimed. */
void fs_sandbox_leave(struct fs_sandboxes *all, struct fs_sandbox *sb);
void fs_sandbox_free(struct fs_sandbox *sb);
/* Show @view's root at the name of @sb, which shows nothing, from now on. */
int fs_sandbox_show_view(struct fs_sandboxes *all, struct fs_sandbox *sb, struct fs_derived *view,
			 struct err *err);
/*
 * Show nothing at its name any more, or, with @lazy, its result when somebody looks. What
 * it showed is retired when nobody can be in there, else given up.
 */
void fs_sandbox_hide(struct fs_sandboxes *all, struct fs_sandbox *sb, bool lazy);
/* The same as show_view if @sb is still lazy; any thread. @view is taken over. */
int fs_sandbox_show_lazy(struct fs_sandboxes *all, struct fs_sandbox *sb, struct fs_derived *view,
			 struct err *err);
/*
 * Who looks finds nothing at its name, until it shows something else, or this is undone.
 * With slots its root may be parked from now on.
 */
void fs_sandbox_cover(struct fs_sandboxes *all, struct fs_sandbox *sb);
void fs_sandbox_uncover(struct fs_sandboxes *all, struct fs_sandbox *sb);
/* The listing has it from now on. */
void fs_sandbox_tell_added(struct fs_sandboxes *all, const struct fs_sandbox *sb);
/* Set the state under the lock. */
void fs_sandbox_set_state(struct fs_sandboxes *all, struct fs_sandbox *sb,
			  enum fs_sandbox_state state);
/*
 * Of a claimed sandbox: its directory, opened once and kept while it is in use, and after
 * that when not too many are (dir_settle). The descriptor stays the sandbox's.
 */
int fs_sandbox_dir(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err);
void fs_sandbox_dir_settle(struct fs_sandboxes *all, struct fs_sandbox *sb);
/* Take it from the sandbox; -1: it was not open. */
int fs_sandbox_dir_steal(struct fs_sandboxes *all, struct fs_sandbox *sb);
/* Open STORE/sandboxes/ID. */
int fs_sandbox_open_dir(struct fs_sandboxes *all, const char *id, struct err *err);
/* As root in somebody's store: @name is his, or he could not even tell what we need. */
void fs_sandbox_give(const struct fs_sandboxes *all, int dir_fd, const char *name);
/* Write the record as it stands. */
int fs_sandbox_save(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err);
/* A row of history. */
void fs_sandbox_history(struct fs_sandboxes *all, const struct fs_sandbox *sb, const char *state);
int64_t fs_sandbox_now_ns(void); /* CLOCK_REALTIME */

/* served.c */
/* Serve its layer, if that is how it is written, for the slot @serial. */
int fs_sandbox_begin_upper(struct fs_sandboxes *all, struct fs_sandbox *sb, uint64_t serial,
			   const struct cas_digest *root, struct err *err);
/* Serve it no more. False: the kernel may still know something of it where it was shown. */
bool fs_sandbox_end_upper(struct fs_sandboxes *all, struct fs_sandbox *sb);
/* Will it be shown so that nothing of it can be reused? */
bool fs_sandbox_is_apart(const struct fs_sandboxes *all, const struct fs_sandbox *sb);

/* view: create.c */
/* Plan the outputs over the input tree; fills sb->rec.plan with layers and dirs. */
int fs_sandbox_plan(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err);
/* The input root with the directories that the plan wants. */
int fs_sandbox_derive(struct fs_sandboxes *all, const struct fs_sandbox *sb,
		      struct fs_derived **out, struct err *err);

/*
 * create.c: a frozen sandbox goes. First its files, which may fail; it is none from then
 * on, whatever happens. Then the rest: nobody finds it any more.
 */
int fs_sandbox_drop_files(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err);
void fs_sandbox_drop(struct fs_sandboxes *all, struct fs_sandbox *sb);

/* layers.c */

/* Make upper/N for every layer, in a prepared directory. */
int fs_layers_prepare(struct fs_sandbox *sb, int dir_fd, struct err *err);
/*
 * Bind the sandbox's directory over itself where we may, mount all layers, and bind large
 * inputs over their places; @again: in the same boot as before. Nothing stays mounted on
 * failure.
 */
int fs_layers_mount(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, bool again,
		    struct err *err);
/* The same, with @meanwhile called while the helper is at it, or not at all. */
int fs_layers_mount_while(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, bool again,
			  void (*meanwhile)(void *ctx), void *ctx, struct err *err);
/* Unmount all, detaching what is busy; notes leftovers and moved layers. */
void fs_layers_unmount(struct fs_sandboxes *all, struct fs_sandbox *sb);
/*
 * Kill the control group, take the layers off, and never mount again; it is covered. Sets
 * foreign, and layers_idle: no layer was found in use, and the control group, if there is
 * one, is empty. Then what is left is to be asked of the bind, while something else is done.
 * Negative: what is mounted could not be told, and is still; to be tried again.
 */
int fs_layers_freeze(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err);
/*
 * The same, and fs_layers_ask at once: one exchange with the helper instead of two. *answer is
 * set when it is proving then.
 */
int fs_layers_freeze_and_ask(struct fs_sandboxes *all, struct fs_sandbox *sb, int *answer,
			     struct err *err);
/*
 * While proving: ask whether anybody is on the bind, which is parked, or unmounted too. Any
 * thread, once; changes nothing of the sandbox.
 */
int fs_layers_ask(struct fs_sandboxes *all, const struct fs_sandbox *sb);
/* The claimant, with what that returned. Sets idle_proven. */
void fs_layers_settle(struct fs_sandboxes *all, struct fs_sandbox *sb, int answer);
/* Unmount what was taken off. Blocks; one thread at a time. */
void fs_layers_sweep(struct fs_sandboxes *all);
/* Open the uppers of a frozen sandbox; end with fs_layers_close. */
int fs_layers_open(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
		   struct fs_merge *out, struct err *err);
void fs_layers_close(struct fs_merge *m);

/* finish.c */

/* The binary result of a finished sandbox, from its directory. */
int fs_sandbox_read_result(struct fs_sandbox *sb, int dir_fd, struct buf *out, struct err *err);
/*
 * Show a finished sandbox, which is lazy: its inputs with the outputs in place, from its
 * result. Any thread that keeps @sb from going; reads only what does not change.
 */
int fs_sandbox_show_result(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err);

/* reaper.c */
int fs_reaper_start(struct fs_sandboxes *all, struct err *err);
void fs_reaper_stop(struct fs_sandboxes *all);
/* A directory that is ready for a sandbox; one is made if none is. The caller's. */
int fs_reaper_prepared(struct fs_sandboxes *all, struct fs_pooled **out, struct err *err);
/*
 * Move STORE/sandboxes/@name out of the way; its files go in the background. With @dir_fd,
 * which is taken over (-1: none), it may be made ready for another sandbox instead: nobody
 * has a layer of it mounted any more, and it has @nr_layers of them. A missing name is fine.
 * @cgroup (NULL: none), whose processes have ended, goes too.
 */
int fs_reaper_take(struct fs_sandboxes *all, const char *name, int dir_fd, size_t nr_layers,
		   const char *cgroup, struct err *err);

#endif
