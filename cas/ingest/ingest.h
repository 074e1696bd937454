/* cas/ingest/ingest.h - a tree on disk becomes a root digest */
#ifndef CAS_INGEST_INGEST_H
#define CAS_INGEST_INGEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cas/digest.h"

struct cas_store;
struct err;

/* Counted while it runs; read with relaxed loads from any thread. */
struct cas_ingest_progress {
	_Atomic uint64_t files; /* regular files done */
	_Atomic uint64_t directories;
	_Atomic uint64_t symlinks;
	_Atomic uint64_t bytes;	 /* of files done, hashed or known */
	_Atomic uint64_t hashed; /* files that were opened and read */
	_Atomic bool cancel;	 /* set by anyone: stop soon with -ECANCELED */
};

struct cas_ingest_options {
	int nr_threads;	 /* 0: one per processor */
	bool preserve;	 /* record mtime and unix_mode as node properties */
	bool follow_top; /* the path itself may be a symlink (never followed below it) */
	/*
	 * Return true to leave @path (relative to the top, / separated) out. Called from
	 * several threads at once. May be NULL.
	 */
	bool (*skip)(void *ctx, const char *path, bool is_dir);
	void *skip_ctx;
	struct cas_ingest_progress *progress; /* may be NULL */
};

struct cas_ingest_result {
	struct cas_digest digest; /* of the Directory, or of the blob for a file */
	bool is_directory;
	bool executable;
};

/*
 * Ingest a directory or a regular file; blobs are published, durability is the caller's
 * (cas_store_sync). Below @path everything is reached by directory descriptor and no
 * symlink is followed; mount points are crossed except into the store itself and into
 * a casbox mount, which is an error. Names that cas/put/temp_name.h knows are left out.
 * -ELOOP: @path is a symlink and follow_top is off. -ENOENT, -EACCES: with the path.
 * -EAGAIN: a file changed while it was read, each time we tried; named.
 * -EINVAL: a name or file type that no Directory can hold (socket, FIFO, device); named.
 */
int cas_ingest(struct cas_store *store, const char *path, const struct cas_ingest_options *opts,
	       struct cas_ingest_result *out, struct err *err);

#endif
