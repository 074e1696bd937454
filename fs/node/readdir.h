/* fs/node/readdir.h - directory buffers and stable offsets */
#ifndef FS_NODE_READDIR_H
#define FS_NODE_READDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/node/inode.h"

/*
 * Offset 0 starts at ".", 1 at "..", and 2 + N at the entry of position N; an item
 * carries the offset that continues after it. Positions never change meaning, so
 * neither do offsets.
 */
struct fs_diritem {
	uint64_t next_off;
	char *name;
	bool is_dot;	       /* "." or "..": entry has the key of the directory meant */
	struct fs_entry entry; /* target is owned; the taker clears it */
};

struct fs_dirlist {
	size_t nr;
	struct fs_diritem *items;
};

/*
 * The items from @off on of which the kernel's form fits into @size bytes: plain, or
 * with attributes when @plus. None at the end of the directory.
 */
int fs_dirlist_collect(const struct fs_inode *dir, uint64_t off, size_t size, bool plus,
		       struct fs_dirlist *out, struct err *err);
void fs_dirlist_fini(struct fs_dirlist *list);

#endif
