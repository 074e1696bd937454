/* cas/ingest/ingest_i.h - what the parts of ingest share */
#ifndef CAS_INGEST_INGEST_I_H
#define CAS_INGEST_INGEST_I_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/base/pool_i.h"
#include "cas/digest.h"
#include "cas/ingest/ingest.h"

struct cas_directory;
struct cas_properties;

/* What a filesystem's inode numbers and times are worth. */
struct ingest_traits {
	bool stable_ids;   /* a file's identity names its content */
	int64_t margin_ns; /* a change may go unseen when younger than this */
};

#define INGEST_GUARDS 3

/* Where ingest must not go: (dev, ino) of directories of the store that hold databases. */
struct ingest_guard {
	int nr;
	dev_t dev[INGEST_GUARDS];
	ino_t ino[INGEST_GUARDS];
};

struct ingest {
	struct cas_store *store;
	const struct cas_catalog *catalog;
	const struct cas_ingest_options *opts;
	struct cas_ingest_progress *progress; /* never NULL */
	const char *top;		      /* as the caller spelled it */
	struct ingest_guard guard;
	struct cas_pool pool;
	struct cas_digest root; /* of the top directory, when all went well */
	_Atomic bool stop;	/* something failed: finish without further work */
	struct lock lock;
	int code;	/* guarded by lock: the first fault */
	struct err err; /* guarded by lock */
};

/*
 * A directory that is being ingested. @uses counts who still needs @fd: itself while it
 * scans, each child directory until it is open, each chunk of files; @pending counts the
 * same until they are complete. At 0 uses the descriptor goes; at 0 pending the
 * Directory is stored, and its digest lands in parent->dir->nodes[index].
 */
struct ingest_dir {
	struct cas_job job;
	struct ingest *in;
	struct ingest_dir *parent; /* NULL at the top */
	size_t index;
	int fd;
	dev_t dev;
	struct ingest_traits traits;
	_Atomic unsigned long uses;
	_Atomic unsigned long pending;
	struct cas_directory *dir;
};

/* One regular file; @dir_fd/@name is not followed unless @follow. */
struct ingest_file {
	int dir_fd;
	const char *name;
	bool follow;
	const struct ingest_traits *traits;
	struct buf *scratch; /* memory kept from one file to the next */
	/* Filled in. */
	struct stat st;
	struct cas_digest digest;
	bool counted; /* in progress->bytes, while it was copied */
};

/* ingest.c: stop the whole ingest; the first fault is the one reported. All return @code. */

/* "'PATH': cannot WHAT: text of @code". @name NULL: the directory itself. */
int ingest_fail(struct ingest *in, const struct ingest_dir *dir, const char *name, int code,
		const char *what);
/* "'PATH' WHY". */
int ingest_fail_why(struct ingest *in, const struct ingest_dir *dir, const char *name, int code,
		    const char *why);
/* "'PATH': message of @err". */
int ingest_fail_err(struct ingest *in, const struct ingest_dir *dir, const char *name, int code,
		    struct err *err);
/* True when work should end: a fault, or the caller's cancel (which becomes the fault). */
bool ingest_stopped(struct ingest *in);
/* The path below the top, "" for the top itself; appended to @out. */
int ingest_rel_path(const struct ingest_dir *dir, const char *name, struct buf *out);

/* ingest_walk.c: run the top directory; takes @fd. */
int ingest_tree(struct ingest *in, int fd, const struct stat *st);

/*
 * ingest_file.c. 0, -EAGAIN: it changed each time, or is no regular file any more; else
 * what failed. The words are in @err.
 */
int ingest_file(struct ingest *in, struct ingest_file *file, struct err *err);
void ingest_props(const struct stat *st, struct cas_properties *props);

/* ingest_guard.c */
int ingest_guard_init(struct ingest_guard *guard, struct cas_store *store, struct err *err);
bool ingest_guard_hits(const struct ingest_guard *guard, dev_t dev, ino_t ino);
/* Does the open @fd (O_PATH will do) lie in the store's STORE/meta? */
bool ingest_guard_in_meta(struct cas_store *store, int fd);
/* Is @dev that of a mounted casbox? *where then gets its mount point. */
bool ingest_guard_casbox(dev_t dev, struct buf *where);
void ingest_traits_get(int fd, struct ingest_traits *out);

#endif
