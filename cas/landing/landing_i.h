/* cas/landing/landing_i.h - what the files of the landing share */
#ifndef CAS_LANDING_LANDING_I_H
#define CAS_LANDING_LANDING_I_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "cas/base/buf.h"
#include "cas/base/lock.h"
#include "cas/landing/landing.h"

#define HASH_NONFATAL_OOM 1
/* A SHA-256 needs no further hashing. */
#define HASH_FUNCTION(key, len, out) memcpy(&(out), (key), sizeof(out))
#include <uthash.h>

#define CAS_LANDING_DIR	     "landing"
#define CAS_LANDING_MANIFEST "manifest"
#define CAS_LANDING_UPPER    "upper"

/* A file: what it holds, and what it looked like. */
struct cas_landing_row {
	struct cas_digest digest;
	uint64_t dev;
	uint64_t ino;
	int64_t mtime_ns;
	int64_t ctime_ns;
	const char *path; /* below upper/ */
};

/* --- the manifest (manifest.c) --- */

struct cas_manifest {
	size_t nr;
	struct cas_landing_row *rows; /* owned; paths are in @text */
	bool same_boot;		      /* it was written since the machine was booted */
	struct buf text;
};

/* -ENOMEM. */
int cas_manifest_format(const struct cas_landing_row *rows, size_t nr, struct buf *out);
/* Takes @text over. -EUCLEAN: it is no whole manifest; -ENOMEM. */
int cas_manifest_parse(struct buf *text, struct cas_manifest *out);
/* From the descriptor of one. As above, and what reading fails with. */
int cas_manifest_read(int fd, struct cas_manifest *out);
void cas_manifest_fini(struct cas_manifest *m);

/* --- moving (landing_move.c) --- */

/* The directory of the file before, to be found at once for the next. */
struct cas_landing_place {
	int fd; /* -1: none yet */
	char dir[4096];
};

/*
 * One file into its shard. 0: its blob is there (or what the manifest promises is lost, which
 * is logged). Else why it could not be moved; it is where it was.
 */
int cas_landing_move(struct cas_store *store, int landing_fd, const struct cas_landing_row *row,
		     bool same_boot, struct cas_landing_place *place, struct err *err);

/* All of @landing_fd, which is STORE/landing/@name and locked by us, and that itself. */
int cas_landing_remove(struct cas_store *store, int landing_fd, const char *name, struct err *err);

/* Lock its manifest, so that no other process moves its files; *fd is that. -EAGAIN: one does. */
int cas_landing_lock(int landing_fd, bool wait, int *fd);

/* Those that are there, whoever made them, by us alone. As cas_landing_settle. */
int cas_landing_settle_all(struct cas_store *store, struct err *err);

/* STORE/landing; made if @make. Negative errno. */
int cas_landing_open(const struct cas_store *store, bool make);

/* --- the service (landing_serve.c) --- */

enum cas_landing_state { CAS_LANDING_WAITING, CAS_LANDING_MOVING, CAS_LANDING_DONE };

struct cas_landed_row {
	UT_hash_handle hh; /* while it is not DONE; by hash */
	struct cas_landed *landed;
	const struct cas_landing_row *row;
	enum cas_landing_state state;
	bool failed; /* when it was tried last */
};

/* One that has landed, and is not moved yet. */
struct cas_landed {
	struct cas_landed *prev, *next;
	char name[33];
	int dir_fd;
	int lock_fd; /* -1: another process has it */
	struct cas_manifest manifest;
	struct cas_landed_row *rows;
	size_t nr_left; /* not DONE */
	unsigned nr_users;
};

struct cas_landings {
	struct cas_store *store;
	struct lock lock; /* a leaf; guards the rest */
	pthread_cond_t work;
	pthread_cond_t moved; /* a row is DONE or has failed, or one is gone */
	struct cas_landed *all;
	struct cas_landed_row *by_hash;
	uint64_t blobs;
	uint64_t bytes;
	uint64_t nr_landed;
	unsigned nr_removing; /* that are in no list any more, and on disk still */
	bool stop;
	pthread_t thread;
	bool runs;
};

#endif
