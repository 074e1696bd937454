/* fs/sandbox/land.h - the outputs of a finished sandbox land, if they are many */
#ifndef FS_SANDBOX_LAND_H
#define FS_SANDBOX_LAND_H

struct cas_landing_list;
struct cas_store;
struct err;

#define FS_LAND_NAME "landing" /* beside the record; never for long */

/*
 * In the sandbox's directory @dir_fd. The manifest comes before the record that says FINISHED:
 * up to there a crash leaves something to be undone, from there on something to be done.
 */

/* Write the manifest of @list. */
int fs_land_begin(int dir_fd, const struct cas_landing_list *list, struct err *err);
/* The sandbox is FINISHED: its files land, unless they have. 0 also when there is nothing. */
int fs_land(struct cas_store *store, int dir_fd, struct err *err);
/* It is not finished after all. 0 also when there is nothing. */
int fs_land_undo(int dir_fd, struct err *err);

#endif
