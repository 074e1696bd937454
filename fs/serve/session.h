/* fs/serve/session.h - one FUSE connection with its threads */
#ifndef FS_SERVE_SESSION_H
#define FS_SERVE_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "fs/mount/mountfd.h"
#include "fs/serve/wire.h"
#include "fs/view/view.h"

struct cas_digest;
struct cas_store;
struct err;
struct fs_backing_table;
struct fs_channels;
struct fs_events;
struct fs_executor;
struct fs_awaits;
struct fs_inode;
struct fs_inode_table;
struct fs_job;
struct fs_iobufs;
struct fs_passthrough;
struct fs_probes;
struct fs_seat;
struct fs_tap;
struct fs_uppers;
struct fuse_session;

struct fs_session_options {
	const char *name; /* for messages and threads: "one" or "two" */
	const struct fs_entry *root;
	struct cas_store *store; /* for statfs */
	struct fs_backing_table *backing;
	struct fs_awaits *awaits;     /* NULL: no tiers to wait for */
	struct fs_executor *opener;   /* opens blobs that may take long */
	struct fs_channels *channels; /* NULL: no control file here */
	struct fs_executor *executor; /* runs commands; NULL with it */
	struct fs_events *events;     /* NULL: nobody follows them here */
	struct fs_probes *probes;
	/*
	 * Session one: OPEN and OPENDIR are answered with ENOSYS once and never asked
	 * again; nothing may rely on OPEN, RELEASE, FLUSH or a handle.
	 */
	bool no_opens;
	/* Hand files to the kernel where it takes them; @probe_fd as fs_passthrough_new. */
	bool passthrough;
	int probe_fd; /* borrowed */
	bool xattr;   /* files tell their checksum as an extended attribute, layers have user.* */
	int nr_threads;
	uid_t uid; /* owner of everything in it */
	gid_t gid;
	/*
	 * Files and symlinks of trees are shown as root's: whoever may write to everything of
	 * the owner's, as in a user namespace of his, may not to these (design 6.3).
	 */
	bool inputs_of_root;
	/* Layers that are served here, so that something can be written; NULL: nothing can. */
	struct fs_uppers *uppers;
	/* A thread found the connection gone. Called by it; must not block. */
	void (*ended)(void *ctx);
	/*
	 * Names of the directory @dir are looked up one by one: it may be worth while to list
	 * it. Called by a thread that serves; must not block. NULL: never.
	 */
	void (*want)(void *ctx, uint64_t dir);
	/* @name was looked for in @dir in vain. As want. */
	void (*missed)(void *ctx, uint64_t dir, const char *name);
	/* The beginning of @file is read; @waited: it came from a tier just now. As want. */
	void (*read)(void *ctx, const struct fs_inode *file, bool waited);
	/* The kernel was given the bytes of a blob unasked. As want. */
	void (*pushed)(void *ctx, const struct cas_digest *digest);
	void *ctx;
	struct fs_tap *tap; /* hears what traced sandboxes ask for; NULL: nobody does */
};

/*
 * NEW until start, SERVING until its connection is gone or stop, then STOPPED. The
 * operations (ops_*.c) get it as libfuse's userdata and only read it.
 */
struct fs_session {
	struct fs_session_options opts;
	struct fuse_session *se;
	struct fs_inode_table *table;
	struct fs_iobufs *iobufs;
	struct fs_wire wire;
	struct fs_passthrough *passthrough; /* from start on; NULL when not wanted */
	struct fs_seat *seat;		    /* the same */
	uint32_t caps;			    /* FUSE_CAP_* in force, after INIT */
	dev_t dev;
	pthread_t *threads;
	int nr_started;
	_Atomic int nr_waiting; /* threads that wait for a request */
	_Atomic int nr_running; /* threads that run a command */
	_Atomic bool stopping;
	_Atomic bool gone; /* the connection is: unmounted or aborted */
	/*
	 * The process that looks ahead (fs/slot/push.h); 0: none. It learns of nothing
	 * below the root by asking for it.
	 */
	_Atomic pid_t walker;
};

/* Takes over mount->dev_fd, also when it fails. */
int fs_session_new(const struct fs_session_options *opts, struct fs_mount *mount,
		   struct fs_session **out, struct err *err);
/* Answer INIT, find out what the connection can do, start the threads. */
int fs_session_start(struct fs_session *session, struct err *err);

/*
 * Run @job, on the thread of the session that calls, after its reply: as many as two of
 * them do so at a time, if others wait for requests, since the way to another thread is a
 * good part of what a short command takes. Else the executor does.
 */
void fs_session_run(struct fs_session *session, struct fs_job *job);

/*
 * Join the threads, of which none may run a job: at once when the connection is gone, else they are
 * told to leave. Requests that nobody takes any more fail when the session is freed.
 */
void fs_session_stop(struct fs_session *session);
void fs_session_free(struct fs_session *session);

#endif
