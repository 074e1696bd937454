/* tools/bench/bench_box.h - drive the product as any client does */
#ifndef TOOLS_BENCH_BENCH_BOX_H
#define TOOLS_BENCH_BENCH_BOX_H

#include <jansson.h>
#include <stddef.h>

#include "cas/base/buf.h"
#include "cas/digest.h"

struct bench_env;
struct err;

/* A store and its mount, below a directory of ours. Paths are absolute. */
struct bench_box {
	const struct bench_env *env;
	char *store;
	char *mnt;
	bool mounted;
};

/* Names DIR/store and DIR/mnt; makes the latter. Nothing runs yet: put works without a mount. */
int bench_box_new(const struct bench_env *env, const char *dir, struct bench_box **out,
		  struct err *err);
int bench_box_mount(struct bench_box *box, struct err *err);
/* With @lanes lanes warmed for @root. -EOPNOTSUPP: this casbox cannot. */
int bench_box_mount_warm(struct bench_box *box, size_t lanes, const char *root, struct err *err);
int bench_box_umount(struct bench_box *box, struct err *err);
/* Unmounts what is still mounted. */
void bench_box_free(struct bench_box *box);

/* `casbox put PATH`: its digest, HASH/SIZE. */
int bench_box_put(struct bench_box *box, const char *path, char out[CAS_DIGEST_STR_SZ],
		  struct err *err);

/* The same into a store that nobody serves. */
int bench_store_put(const struct bench_env *env, const char *store, const char *path,
		    char out[CAS_DIGEST_STR_SZ], struct err *err);

/* Absolute path below the mount, for a digest: "cas/file" and HASH-SIZE; caller frees. */
char *bench_box_path(const struct bench_box *box, const char *view,
		     const struct cas_digest *digest);

/*
 * A conversation over the control file: one descriptor, kept. One thread drives it.
 * Zero-initialize apart from @fd, which is -1 while closed.
 */
struct bench_channel {
	int fd;
	struct buf line;
	struct buf answer;
};

int bench_channel_open(const struct bench_box *box, struct bench_channel *ch, struct err *err);
void bench_channel_close(struct bench_channel *ch);

/*
 * Write one command line, read its answer. *answer (may be NULL) is a new object.
 * -EREMOTEIO: the answer is "ok": false; its words are in @err.
 */
int bench_ask(struct bench_channel *ch, json_t **answer, struct err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* create: @options are appended as they are ("--output out/"); *path (caller frees). */
int bench_create(struct bench_channel *ch, const char *root, const char *id, const char *options,
		 char **path, struct err *err);

/*
 * Freeze and capture, and let it go as well with @remove. *digest (may be NULL) is that of
 * the first output captured. -ENODATA: nothing was.
 */
int bench_finish(struct bench_channel *ch, const char *id, bool remove, struct cas_digest *digest,
		 struct err *err);
int bench_remove(struct bench_channel *ch, const char *id, struct err *err);

/* Read MNT/cas/file/HASH-SIZE whole and hash it: -EBADMSG unless it is @digest. */
int bench_box_check_blob(const struct bench_box *box, const struct cas_digest *digest,
			 struct err *err);

/* A sub-benchmark's directory with the product in it; @box is NULL without --casbox. */
struct bench_scene {
	const struct bench_env *env;
	char *dir;
	int dir_fd;
	struct bench_box *box;
	struct bench_channel channel;
};

/* Make WORK/@name. Close it whatever this returns. */
int bench_scene_open(struct bench_scene *scene, const struct bench_env *env, const char *name,
		     struct err *err);
/* Mount and open the conversation, where there is a product. */
int bench_scene_mount(struct bench_scene *scene, struct err *err);
/*
 * Unmount. Returns @ret, or its own failure when that is 0. The files stay until the run
 * is over: deleting them would disturb the next measurement.
 */
int bench_scene_close(struct bench_scene *scene, int ret, struct err *err);

#endif
