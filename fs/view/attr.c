/* fs/view/attr.c - what stat shows of an entry without asking anybody */
#include "fs/view/attr.h"

#include "fs/view/view.h"

#define DEFAULT_MTIME 946684800 /* 2000-01-01T00:00:00Z */

mode_t fs_attr_mode(const struct fs_entry *entry)
{
	switch ((enum fs_kind)entry->kind) {
	case FS_KIND_DIR:
		return S_IFDIR | (entry->has_mode ? entry->mode : 0755);
	case FS_KIND_SYMLINK:
		return S_IFLNK | 0777;
	case FS_KIND_UPPER:
		return entry->mode & S_IFMT;
	case FS_KIND_FILE:
	case FS_KIND_TEXT:
	case FS_KIND_CONTROL:
	case FS_KIND_EVENTS:
		break;
	}
	return S_IFREG | (entry->has_mode ? entry->mode : entry->executable ? 0555 : 0444);
}

struct timespec fs_attr_mtime(const struct fs_entry *entry)
{
	struct timespec mtime = {DEFAULT_MTIME, 0};

	if (entry->has_mtime)
		mtime = (struct timespec){entry->mtime_sec, entry->mtime_nsec};
	return mtime;
}
