/* fs/serve/session.h - one FUSE connection with its threads */
#ifndef FS_SERVE_SESSION_H
#define FS_SERVE_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "fs/serve/mountfd.h"
#include "fs/view/view.h"

struct cas_store;
struct err;
struct fs_backing_table;
struct fs_channels;
struct fs_executor;
struct fs_inode_table;
struct fuse_session;

struct fs_session_options {
	const char *name; /* for messages and threads: "one" or "two" */
	const struct fs_entry *root;
	struct cas_store *store; /* for statfs */
	struct fs_backing_table *backing;
	struct fs_executor *opener;   /* opens blobs that may take long */
	struct fs_channels *channels; /* NULL: no control file here */
	/*
	 * Session one: OPEN and OPENDIR are answered with ENOSYS once and never asked
	 * again; nothing may rely on OPEN, RELEASE, FLUSH or a handle.
	 */
	bool no_opens;
	bool no_expire; /* names of sandboxes are asked for each time */
	int nr_threads;
	uid_t uid; /* owner of everything in it */
	gid_t gid;
	/* A thread found the connection gone. Called by it; must not block. */
	void (*ended)(void *ctx);
	void *ctx;
};

/*
 * NEW until start, SERVING until its connection is gone or stop, then STOPPED. The
 * operations (ops_*.c) get it as libfuse's userdata and only read it.
 */
struct fs_session {
	struct fs_session_options opts;
	struct fuse_session *se;
	struct fs_inode_table *table;
	dev_t dev;
	pthread_t *threads;
	int nr_started;
	_Atomic bool tuned; /* INIT is done, and what it cannot say */
	_Atomic bool stopping;
	_Atomic bool gone; /* the connection is: unmounted or aborted */
};

/* Takes over mount->dev_fd, also when it fails. */
int fs_session_new(const struct fs_session_options *opts, struct fs_mount *mount,
		   struct fs_session **out, struct err *err);
int fs_session_start(struct fs_session *session, struct err *err);

/*
 * Join the threads: at once when the connection is gone, else they are told to leave.
 * Requests that nobody takes any more fail when the session is freed.
 */
void fs_session_stop(struct fs_session *session);
void fs_session_free(struct fs_session *session);

#endif
