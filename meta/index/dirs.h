/* meta/index/dirs.h - directories by digest, ready to be searched */
#ifndef META_INDEX_DIRS_H
#define META_INDEX_DIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "cas/reapi/directory.h"

struct err;
struct meta;

/*
 * One entry, copied out. @target is set for symlinks and owned by the entry: end it
 * with meta_dirent_fini. Node properties beyond mtime and mode are not kept here.
 */
struct meta_dirent {
	enum cas_node_kind kind;
	bool executable;
	bool has_mtime;
	bool has_mode;
	int32_t mtime_nsec;
	int64_t mtime_sec;
	uint32_t mode;
	struct cas_digest digest;
	uint32_t name_len;
	char name[CAS_NAME_MAX + 1];
	char *target;
};

void meta_dirent_fini(struct meta_dirent *entry);

struct meta_dirinfo {
	uint64_t nr_entries;
	uint64_t nr_subdirs;
	uint8_t file_bits; /* its files are all below 2^(file_bits - 1) bytes; 0: not known */
	struct cas_properties props; /* of the directory itself; without others */
};

/*
 * All of these answer from memory or from the index in place; a directory seen for the
 * first time is read from the store, validated, packed and queued for the index. They
 * may block on reading the store, never on a writer. Any thread.
 * -ENOENT: the Directory blob is in no tier. -EUCLEAN: it is not a canonical Directory.
 */

/* 1 and *out, or 0: no such name. */
int meta_dir_find(struct meta *meta, const struct cas_digest *dir, const char *name,
		  struct meta_dirent *out, struct err *err);

int meta_dir_info(struct meta *meta, const struct cas_digest *dir, struct meta_dirinfo *out,
		  struct err *err);

/*
 * Call @each for the entries from index @start on, in order of name; an index is stable
 * for ever, since a directory never changes. @each returns 0 to go on, else it stops;
 * its value is returned when negative, 0 otherwise. @entry is only valid in the call.
 */
int meta_dir_list(struct meta *meta, const struct cas_digest *dir, uint64_t start,
		  int (*each)(void *ctx, uint64_t index, const struct meta_dirent *entry),
		  void *ctx, struct err *err);

/*
 * Call @each for every name that @old and @new do not have in common with all that is
 * kept of it, in order of name: with both entries, or NULL for the one that is missing.
 * @each returns 0 to go on, else it stops; its value is returned when negative, 0
 * otherwise. *nr_same (may be NULL) counts the entries in common that were passed.
 */
int meta_dir_diff(struct meta *meta, const struct cas_digest *old, const struct cas_digest *new,
		  int (*each)(void *ctx, const struct meta_dirent *old,
			      const struct meta_dirent *new),
		  void *ctx, uint64_t *nr_same, struct err *err);

/*
 * The Directory itself, with all its properties: the one that a question above made meta read
 * last, which is then the caller's, or as cas_directory_load. *out is freed by the caller.
 */
int meta_dir_load(struct meta *meta, const struct cas_digest *digest, struct cas_directory **out,
		  struct err *err);

/*
 * Keep a directory that is in no store (an input root with the parents of outputs
 * added) answerable by its digest, in memory, until as many releases as holds.
 * @dir must be built with cas_directory_new and is encoded here; *digest names it.
 */
int meta_dir_hold(struct meta *meta, struct cas_directory *dir, struct cas_digest *digest,
		  struct err *err);
void meta_dir_release(struct meta *meta, const struct cas_digest *digest);

#endif
