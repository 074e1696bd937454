/* fs/serve/daemon_i.h - all that a daemon is made of */
#ifndef FS_SERVE_DAEMON_I_H
#define FS_SERVE_DAEMON_I_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "fs/control/control.h"
#include "fs/control/quota.h"
#include "fs/mount/mountfd.h"
#include "fs/mount/way.h"

struct buf;
struct err;
struct fs_options;

/* Made and unmade by serve.c, in the order that is told there. */
struct daemon {
	const struct fs_options *opts;
	char *mountpoint;
	char *base; /* of session one: MOUNTPOINT/sandboxes, or opts->beside */
	enum fs_way way;
	bool beside;  /* fusermount3 mounts for us: session one is not in session two */
	char *traced; /* of session two, exact traces: MOUNTPOINT/traced */
	struct fs_tap *tap_one;
	struct fs_tap *tap_two;
	struct fs_dirs *dirs;
	struct fs_opens *opens;
	int nr_threads;
	bool in_userns;
	struct cas_store *store;
	struct fs_helper *helper;
	struct meta *meta;
	struct fs_slots *slots;
	struct fs_large *large;
	struct fs_pusher *_Atomic pusher; /* NULL until started, or not wanted */
	struct fs_missed *missed;
	struct fs_sandboxes *sandboxes;
	struct fs_backing_table *backing;
	struct fs_uppers *uppers;	  /* NULL: layers are mounted */
	struct fs_executor *executor;	  /* runs commands */
	struct fs_executor *patient;	  /* those that may take minutes */
	struct cas_fetch *fetch;	  /* NULL: no tiers */
	struct fs_prefetches *prefetches; /* NULL with it */
	struct fs_learn *learn;		  /* NULL with it */
	struct cas_outbox *outbox;
	struct fs_awaits *awaits;
	struct fs_executor *opener; /* of its own: a command may wait for a read */
	struct fs_events *events;
	struct fs_teller *teller;
	struct fs_metrics *metrics;
	struct control_env env;
	struct control_quota quota;
	struct control_guard guard;
	_Atomic bool ending; /* commands that take long give up */
	struct fs_channels *channels;
	struct fs_view_top *top;
	struct fs_view_boxes *boxes;
	struct fs_view_sandboxes *traces;
	struct fs_mount mount_one;
	struct fs_mount mount_two;
	/* NULL until started: session two shows .casbox/config before there is one. */
	struct fs_session *_Atomic one;
	struct fs_session *_Atomic two;
	struct fs_watchdog *watchdog;
	struct fs_upkeep *upkeep;
	struct fs_probes *probes;
	int signal_fd;
	int wake_fd;
	_Atomic bool stop;   /* somebody asked for the end */
	_Atomic bool hurry;  /* and will not wait for others */
	_Atomic bool wedged; /* the watchdog broke a connection */
	bool attached;	     /* session two is at the mount point */
	bool mounted_one;    /* beside: session one is at the base */
};

/* The main thread looks at what it waits for. */
void fs_daemon_wake(struct daemon *d);

/* --- answers.c --- */

/* Refuse new commands if none but @nr run and there are no sandboxes. */
bool fs_daemon_shut_if_idle(struct daemon *d, size_t nr);

/* For struct control_env; @ctx is the daemon. */
int fs_daemon_stop(void *ctx, bool if_idle, bool force, struct err *err);
int fs_daemon_config(void *ctx, json_t *out);
int fs_daemon_stats(void *ctx, json_t *out);

/* For struct fs_views_options. */
int fs_daemon_text_config(void *ctx, struct buf *out);
int fs_daemon_text_metrics(void *ctx, struct buf *out);
int fs_daemon_set_log_level(void *ctx, const char *data, size_t len);

#endif
