/* fs/capture/capture_i.h - between the walk over outputs and the files it puts */
#ifndef FS_CAPTURE_CAPTURE_I_H
#define FS_CAPTURE_CAPTURE_I_H

#include "cas/base/buf.h"
#include "fs/capture/blobs.h"
#include "fs/capture/capture.h"

/* One capture. Its own thread's, but for what the comment of a function says. */
struct fs_capture_walk {
	const struct fs_merge *m;
	struct fs_derived *derived;
	const struct fs_outputs *outputs;
	const struct fs_capture_options *opts;
	struct fs_capture *out;
	struct buf path; /* of the entry at hand, relative to the root */
	int depth;
	size_t nr_moving;      /* files that were to move so far */
	char *landing_dir;     /* of the files at hand, below the landing's top; NULL: they move */
	struct fs_blobs blobs; /* Directories and Trees that are still to be put */
	struct err *err;
	char target[CAS_TARGET_MAX + 2]; /* of the symlink at hand */
};

/* capture.c: go to one name of the directory at hand, and back to it. */
int fs_capture_push(struct fs_capture_walk *w, const char *name);
void fs_capture_pop(struct fs_capture_walk *w, size_t len);
int fs_capture_no_memory(struct fs_capture_walk *w);

/* A file and what became of it. */
struct fs_put_file {
	const char *name; /* in its directory */
	char *path;	  /* owned */
	struct stat st;
	struct cas_digest digest;
	bool may_move; /* fs_put_announce */
	int ret;       /* 0: put; negative: why not */
	bool fatal;    /* no other output would be spared */
	char *why;     /* owned; NULL: not even memory for words */
};

/* Of one directory; others may be at it while the walk waits. */
struct fs_put_files {
	struct fs_capture_walk *w;
	int dir_fd;
	size_t nr;
	struct fs_put_file *files;
};

/* capture_files.c */

/* Before they are put: which of the @nr files may leave their directory, and note that. */
int fs_put_announce(struct fs_capture_walk *w, int dir_fd, struct fs_put_file *files, size_t nr);
/* Put @f into the store: any thread, changes nothing else. */
void fs_put_file(const struct fs_capture_walk *w, int dir_fd, struct fs_put_file *f);

/*
 * Put the files of the upper among the names @from to @to of @dir, whose path is at hand, by
 * several threads. @files is zero but for w and dir_fd; it is ended with fs_put_files_fini
 * whatever this returns, and lists them in order.
 */
int fs_put_files(struct fs_put_files *files, const struct fs_merge_dir *dir,
		 const struct fs_listing *list, size_t from, size_t to);
void fs_put_files_fini(struct fs_put_files *files);

#endif
