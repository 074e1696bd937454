/* cas/fsck/fsck.h - compare every blob with its name */
#ifndef CAS_FSCK_FSCK_H
#define CAS_FSCK_FSCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cas_digest;
struct cas_store;
struct err;

struct cas_fsck_progress {
	_Atomic uint64_t blobs;
	_Atomic uint64_t bytes;
	_Atomic bool cancel;
};

struct cas_fsck_options {
	bool repair; /* quarantine wrong blobs, mend modes, remake variants */
	int nr_threads;
	/* One line a fault, naming the file; any thread, one call at a time. */
	void (*fault)(void *ctx, const char *line);
	/* One line for what is no fault but no blob: foreign and set-aside names. May be NULL. */
	void (*note)(void *ctx, const char *line);
	/*
	 * With @repair: a blob was moved aside, and is to be had from elsewhere. Its size is
	 * that of its last days where nobody recorded one. One call at a time; may be NULL.
	 */
	void (*lost)(void *ctx, const struct cas_digest *digest);
	void *ctx;
	struct cas_fsck_progress *progress; /* may be NULL */
};

struct cas_fsck_result {
	uint64_t blobs;
	uint64_t bytes;
	uint64_t disk; /* of their blocks */
	uint64_t faults;
	uint64_t repaired;
	uint64_t foreign;
};

/*
 * Re-hash all of cas/, check modes (0444), links/ variants against their stamp, ac/
 * entries for decoding, and VERSION. 0 even when faults were found.
 */
int cas_fsck(struct cas_store *store, const struct cas_fsck_options *opts,
	     struct cas_fsck_result *out, struct err *err);

#endif
