/* meta/aside.h - take files that cannot be used out of the way */
#ifndef META_ASIDE_H
#define META_ASIDE_H

struct err;

/*
 * Rename @path (relative to @store_fd) to @path.bad-N with the first free N, and the
 * files @path + each of @suffixes (NULL-terminated; NULL: none) along with it. Logged.
 * Missing names are fine.
 */
int meta_set_aside(int store_fd, const char *path, const char *const *suffixes, struct err *err);

#endif
