/* fs/slot/pool.h - directories prepared for sandboxes that are to come */
#ifndef FS_SLOT_POOL_H
#define FS_SLOT_POOL_H

#include <stddef.h>

struct err;

/*
 * A directory of STORE/sandboxes that has what every sandbox needs: upper/0 with an empty
 * u and w, both new, mode 0755. It may hold `record`, `record.new`, `result` and `moved`
 * of a sandbox that is no more, the last two empty: making and deleting files is dear
 * (ext4 looks at each inode freed within the last minute before it gives one out), so
 * they are written over.
 *
 * Nothing that an action could reach is used again: its u is deleted and made anew, so
 * that a watch, a descriptor or a working directory left in it sees nothing more.
 * Names start with a dot, as no id does; what is found at the start is deleted.
 */
struct fs_pooled {
	struct fs_pooled *next;
	int dir_fd;
	size_t nr_layers; /* of the sandbox that had it */
	char *cgroup;	  /* its control group; NULL: none. Owned */
	char name[48];	  /* in STORE/sandboxes */
};

#define FS_POOL_PREFIX ".pool-"
#define FS_GONE_PREFIX ".gone-" /* to be deleted, or made ready again */

/* A new name with @prefix for @dir. */
int fs_pool_name(const char *prefix, struct fs_pooled *dir, struct err *err);

/* Make one in @top_fd. */
int fs_pool_make(int top_fd, struct fs_pooled **out, struct err *err);

/*
 * Make @dir, of a sandbox that ended, ready again, and give it a pool name. On failure
 * what is left of it is to be deleted.
 */
int fs_pool_recycle(int top_fd, struct fs_pooled *dir, struct err *err);

/* Delete all of it, and @dir; NULL is fine. */
int fs_pool_delete(int top_fd, struct fs_pooled *dir, struct err *err);

/* Only the memory and the descriptor. */
void fs_pooled_free(struct fs_pooled *dir);

#endif
