/* meta/index/packed_dir.h - a directory as bytes that are searched in place */
#ifndef META_INDEX_PACKED_DIR_H
#define META_INDEX_PACKED_DIR_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/index/dirs.h"

struct cas_directory;

/* Packed bytes in memory, shared by count. Immutable. */
struct meta_packed {
	_Atomic unsigned refs;
	size_t len;
	uint8_t data[];
};

/* Pack @dir, which is sorted (after decode or encode), under its digest. -ENOMEM, -EFBIG. */
int meta_packed_new(const struct cas_directory *dir, const struct cas_digest *digest,
		    struct meta_packed **out);
struct meta_packed *meta_packed_ref(struct meta_packed *packed);
/* NULL is fine. */
void meta_packed_unref(struct meta_packed *packed);

/*
 * A look at packed bytes, which must outlive it. The bytes may come from a damaged
 * disk: every function checks what it reads, at any alignment, and answers -EUCLEAN.
 */
struct meta_packed_view {
	const uint8_t *entries;
	const uint8_t *props; /* NULL: no entry has any */
	const uint8_t *strings;
	size_t strings_len;
	uint64_t seed;
	uint32_t nr_entries;
	struct meta_dirinfo info;
};

/* -EUCLEAN: not the packed form, in this version, of the directory @digest. */
int meta_packed_view_init(struct meta_packed_view *view, const struct cas_digest *digest,
			  const void *data, size_t len);

/* Look at every entry, as the functions below do at some: 0 or -EUCLEAN. */
int meta_packed_view_check(const struct meta_packed_view *view);

/* 1 and *out, 0: no such name; -EUCLEAN, -ENOMEM. End *out with meta_dirent_fini. */
int meta_packed_view_find(const struct meta_packed_view *view, const char *name,
			  struct meta_dirent *out);

/*
 * How entry @i of @a and entry @j of @b compare: *order below, above or 0 as their names
 * do; *same when names and all else are equal. -EUCLEAN.
 */
int meta_packed_view_compare(const struct meta_packed_view *a, uint32_t i,
			     const struct meta_packed_view *b, uint32_t j, int *order, bool *same);

/* Entry @index, which is below nr_entries. 0 and *out; -EUCLEAN, -ENOMEM. */
int meta_packed_view_get(const struct meta_packed_view *view, uint32_t index,
			 struct meta_dirent *out);

#endif
