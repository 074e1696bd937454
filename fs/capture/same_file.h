/* fs/capture/same_file.h - has a file been touched between two looks? */
#ifndef FS_CAPTURE_SAME_FILE_H
#define FS_CAPTURE_SAME_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

/* The same inode with the same size and times. */
static inline bool fs_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

#endif
