/* cas/evict/evict_i.h - what the files of the eviction share */
#ifndef CAS_EVICT_EVICT_I_H
#define CAS_EVICT_EVICT_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cas/catalog.h"
#include "cas/digest.h"
#include "cas/evict/evict.h"

/* A mark that could not be made would cost a live blob: every addition is checked. */
#define HASH_NONFATAL_OOM 1
/* A SHA-256 needs no further hashing. */
#define HASH_FUNCTION(key, len, out) memcpy(&(out), (key), sizeof(out))
#include <uthash.h>

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

/* @ino, @last_name and @hh only of those found by a walk; 0 else. */
struct cas_candidate {
	struct cas_digest digest;
	ino_t ino;
	uint64_t bytes;
	bool last_name; /* no other name keeps the blocks */
	int64_t last_use_ns;
	UT_hash_handle hh;
};

/* One run of an eviction, by the catalog (pages of it) or by a walk (all in @list). */
struct cas_eviction {
	struct cas_store *store;
	const struct cas_evict_options *opts;
	struct cas_evict_result result;
	struct err *err;
	time_t now;
	struct timespec began;
	uint64_t bytes; /* on disk as of now */
	uint64_t blobs;
	bool has_bad;
	bool told_full;
	bool ended; /* early: somebody was in the way */
	struct cas_marks live;
	struct cas_victim last; /* in order of use, of all that was looked at */
	int64_t last_tree_ns;	/* the same for trees */

	bool by_catalog;
	struct cas_victim *page;
	size_t page_nr;
	size_t page_at;

	struct cas_candidate *list;
	size_t nr;
	size_t cap;
	size_t at;
	struct cas_candidate *by_hash; /* uthash over list, while it is put in order */
};

/* Must this file stay for a reason of its own? */
bool cas_evict_keeps(const struct cas_eviction *e, const uint8_t hash[CAS_HASH_SZ],
		     const struct stat *st);

/* Spread the uses of trees over what is in them. */
int cas_evict_learn_trees(struct cas_eviction *e);
/* Take what was used since this was asked, or e->last, for needed: somebody may have found it. */
int cas_evict_spare_blobs(struct cas_eviction *e);
/* Trees used since this was asked before; negative, or how many. Free *out. */
int cas_evict_fresh_trees(struct cas_eviction *e, struct cas_victim **out);
int cas_evict_mark_trees(struct cas_eviction *e, const struct cas_victim *trees, int nr);

/* List and count every blob file; later put them in order of last use. */
int cas_evict_list(struct cas_eviction *e);
int cas_evict_sort(struct cas_eviction *e);
/* Count temporaries and variants, and remove stale temporaries. */
int cas_evict_count_extras(struct cas_eviction *e);
/* Make room from what was moved aside, and variants that nobody links. */
int cas_evict_sweep_extras(struct cas_eviction *e);

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
