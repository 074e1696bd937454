/* fs/view/fixed.h - directories and files that are always there */
#ifndef FS_VIEW_FIXED_H
#define FS_VIEW_FIXED_H

#include "fs/view/view.h"

/* One name of a fixed directory; @tag is what the view tells its nodes apart by. */
struct fs_fixed {
	const char *name;
	uint64_t tag;
	uint16_t mode;
	uint8_t kind;
};

/* The entry of @fixed, identified by @label. */
int fs_fixed_entry(const struct fs_view *view, const struct fs_fixed *fixed, const char *label,
		   struct fs_entry *out);

#endif
