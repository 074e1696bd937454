/* meta/index/large.h - the large files of a tree, by its root digest */
#ifndef META_INDEX_LARGE_H
#define META_INDEX_LARGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct cas_digest;
struct err;
struct meta;

#define META_LARGE_MAX 16 /* files of one tree; the largest are taken */

/*
 * Each directory's list is made of those of the directories in it, and remembered by
 * digest: a tree that shares most directories with one seen before costs what is new in
 * it. What is remembered is bounded, the least recently used goes first. Any thread.
 */
struct meta_large;

struct meta_large_file {
	uint64_t size;
	const char *path; /* relative to the root */
};

/* The largest first, equal sizes by path. Immutable and counted. */
struct meta_large_list {
	_Atomic unsigned refs;
	size_t nr;
	struct meta_large_file files[];
};
void meta_large_unref(struct meta_large_list *list); /* NULL is fine */

/* @meta outlives it. Files are large from @min_size on. */
int meta_large_new(struct meta *meta, uint64_t min_size, struct meta_large **out);
void meta_large_free(struct meta_large *large); /* NULL is fine */

/*
 * KNOWN looks at what is in memory or indexed, QUICK reads a few directories from the
 * store as well; both give up with -EAGAIN after some 100 us, but what they found helps the
 * next one. THOROUGH reads all directories, and rests most of the time: nobody waits for it.
 */
enum meta_large_effort { META_LARGE_KNOWN, META_LARGE_QUICK, META_LARGE_THOROUGH };

/*
 * *out is counted, and may be empty. Errors as meta_dir_find, -ENOMEM, -ECANCELED after
 * meta_large_stop.
 */
int meta_large_find(struct meta_large *large, const struct cas_digest *root,
		    enum meta_large_effort effort, struct meta_large_list **out, struct err *err);

/* Whoever searches stops soon, and all that come. */
void meta_large_stop(struct meta_large *large);

#endif
