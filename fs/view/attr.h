/* fs/view/attr.h - what stat shows of an entry without asking anybody */
#ifndef FS_VIEW_ATTR_H
#define FS_VIEW_ATTR_H

#include <sys/stat.h>
#include <time.h>

struct fs_entry;

/* Type and permissions; of a node of a layer or a part of a listing, only the type. */
mode_t fs_attr_mode(const struct fs_entry *entry);
/* When it was changed: as recorded, else in 2000. */
struct timespec fs_attr_mtime(const struct fs_entry *entry);

#endif
