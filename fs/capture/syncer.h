/* fs/capture/syncer.h - sync what was captured, soon, and many captures at once */
#ifndef FS_CAPTURE_SYNCER_H
#define FS_CAPTURE_SYNCER_H

struct cas_store;
struct err;

/*
 * A thread that calls cas_store_sync within 200 ms of being asked, once for all who asked
 * meanwhile. A sync that fails is logged, and asked for again with the next.
 */
struct fs_syncer;

int fs_syncer_new(struct cas_store *store, struct fs_syncer **out, struct err *err);
/* Never waits. */
void fs_syncer_want(struct fs_syncer *s);
/* What was asked for is left to a last cas_store_sync of the caller. NULL is fine. */
void fs_syncer_free(struct fs_syncer *s);

#endif
