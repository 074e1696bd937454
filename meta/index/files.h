/* meta/index/files.h - the files of index and ledger: whose they are, and out of the way */
#ifndef META_INDEX_FILES_H
#define META_INDEX_FILES_H

struct err;

/*
 * Rename @path (relative to @store_fd) to @path.bad-N with the first free N, and the
 * files @path + each of @suffixes (NULL-terminated; NULL: none) along with it. Logged.
 * Missing names are fine.
 */
int meta_set_aside(int store_fd, const char *path, const char *const *suffixes, struct err *err);

/*
 * Give @dir_fd/@name, just made, to the owner of @dir_fd: root works in the stores of
 * others, and must leave nothing there that they cannot write. 0 or negative errno.
 */
int meta_give_to_owner(int dir_fd, const char *name);

#endif
