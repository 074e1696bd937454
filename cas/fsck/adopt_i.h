/* cas/fsck/adopt_i.h - living in a disk cache that others use and clean up */
#ifndef CAS_FSCK_ADOPT_I_H
#define CAS_FSCK_ADOPT_I_H

#include <stdbool.h>

struct cas_digest;
struct cas_store;
struct err;
struct stat;

/* All do nothing unless cas_store_is_adopted. */

/* A blob was found and is right: move its file's time, which others go by. May block. */
void cas_adopt_hit(struct cas_store *store, const struct cas_digest *digest);
/* The same for an open result. */
void cas_adopt_hit_action(struct cas_store *store, int fd, const struct stat *st);

/* Is this file there another user's? One that is closed to us is no wrong file. */
bool cas_adopt_is_others(const struct cas_store *store, const struct stat *st);

/*
 * Keep other collectors out before anything is unlinked there; *lock_fd (-1: no need) is
 * to be closed afterwards. -EBUSY: one is at work, and stays so for seconds.
 */
int cas_adopt_lock(struct cas_store *store, int *lock_fd, struct err *err);

#endif
