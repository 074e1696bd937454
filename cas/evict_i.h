/* cas/evict_i.h - what the files of the eviction share */
#ifndef CAS_EVICT_I_H
#define CAS_EVICT_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"
#include "cas/evict.h"

struct cas_mark;
struct cas_store;
struct err;

/* A set of hashes; one thread. Zero-initialize, end with cas_marks_fini. */
struct cas_marks {
	struct cas_mark *head;
	size_t nr;
	/* Called for each hash when it comes in; may be NULL. */
	void (*fresh)(void *ctx, const uint8_t hash[CAS_HASH_SZ]);
	void *ctx;
};

void cas_marks_fini(struct cas_marks *m);
/* 0 or -ENOMEM. */
int cas_marks_add(struct cas_marks *m, const uint8_t hash[CAS_HASH_SZ]);
bool cas_marks_has(const struct cas_marks *m, const uint8_t hash[CAS_HASH_SZ]);
/* 1 when they have a hash in common, else 0. */
int cas_marks_meet(const struct cas_marks *a, const struct cas_marks *b);

/* Everything that @roots need, closures of directories included, as far as it is here. */
int cas_evict_mark(struct cas_store *store, const struct cas_evict_roots *roots,
		   struct cas_marks *live, struct err *err);

/*
 * Add a Directory and all below it. Missing and malformed ones end their branch, which is
 * logged where it is @needed.
 */
int cas_marks_add_tree(struct cas_marks *m, struct cas_store *store, const struct cas_digest *root,
		       bool needed, struct err *err);

/*
 * Remove each ActionResult that needs one of the blobs in @doomed: its files, output
 * streams, Trees and what these name. Nothing is removed when @dry_run.
 */
int cas_evict_actions(struct cas_store *store, const struct cas_marks *doomed, bool dry_run,
		      struct err *err);

#endif
