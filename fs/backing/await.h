/* fs/backing/await.h - requests that wait for a blob from a tier */
#ifndef FS_BACKING_AWAIT_H
#define FS_BACKING_AWAIT_H

/* Includers define FUSE_USE_VERSION first. */
#include <fuse_lowlevel.h>
#include <stdbool.h>

#include "cas/digest.h"
#include "cas/reapi/directory.h"
#include "fs/node/inode.h"

struct cas_fetch;
struct err;
struct fs_awaits;
struct fs_executor;

/*
 * A thread that answers the kernel does not wait for another machine: a request that finds
 * a blob missing is put aside, without a thread, until the blob is there, and then made
 * again by a thread of the executor. When it does not come the answer is EIO. A process
 * that is killed meanwhile leaves at once; a signal that it survives does not disturb it,
 * as on a disk.
 */
int fs_awaits_new(struct cas_fetch *fetch, struct fs_executor *executor, struct fs_awaits **out);
/* Nothing is waited for from now on: before the fetcher is closed. NULL is fine. */
void fs_awaits_stop(struct fs_awaits *awaits);
/* No request waits any more: the fetcher was closed, the executor ended. NULL is fine. */
void fs_awaits_free(struct fs_awaits *awaits);

/* Requests that waited so far, and how long, added up. NULL is fine: none. */
void fs_awaits_count(const struct fs_awaits *awaits, uint64_t *nr, uint64_t *ns);

/* A request as it must be made again: what of it is used is @run's own affair. */
struct fs_again {
	void (*run)(const struct fs_again *again);
	fuse_req_t req;
	const char *what; /* for messages: "lookup of" */
	struct fs_inode node;
	char name[CAS_NAME_MAX + 1];
	size_t size;
	off_t off;
	bool plus;
	struct fuse_file_info fi;
	bool may_be_absent; /* ENOENT when it is in no tier */
	unsigned rounds;    /* made anew so often */
};

/*
 * The request failed; if @err names a missing blob, take it over (true: it is not to be
 * answered here). False with @awaits NULL, or when a blob went missing again each time.
 */
bool fs_await(struct fs_awaits *awaits, const struct fs_again *again, const struct err *err);

#endif
