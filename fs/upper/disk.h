/* fs/upper/disk.h - a layer's files: what they mean, where they are, opening them */
#ifndef FS_UPPER_DISK_H
#define FS_UPPER_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct err;
struct fs_unode;
struct fs_upper;

/*
 * A layer on disk, below upper/0:
 *
 *   u/   what was written, by its names. An entry is looked at more closely only when it
 *        has the sticky bit, which files do not need and directories rarely have; then
 *        its user.casbox.* attributes tell:
 *          whiteout   an empty file: the name is gone
 *          opaque     a directory that shows nothing of the tree's
 *          redirect   "/PATH": what of the tree a directory shows instead
 *          stat       "MODE INO": what stat shows, where it is not the file's own
 *        Files keep u+rw and directories u+rwx, lest we lock ourselves out.
 *   w/   oN: what lost its last name and may be in use; tN: being made; rename: a link
 *        that tells of a rename, until all of it is done: "/+INO PATH", what has the number
 *        INO leaves PATH, where a whiteout is to be; with "-", nothing is. All of it goes
 *        when the layer is served anew.
 *
 * All functions are called with the layer's lock held.
 */

#define FS_XATTR_PREFIX	  "user.casbox."
#define FS_XATTR_WHITEOUT "user.casbox.whiteout"
#define FS_XATTR_OPAQUE	  "user.casbox.opaque"
#define FS_XATTR_REDIRECT "user.casbox.redirect"
#define FS_XATTR_STAT	  "user.casbox.stat"

#define FS_WORK_NAME_SZ 32
#define FS_WORK_RENAME	"rename"

/* What an entry of a layer is. */
struct fs_disk {
	struct stat st;
	bool whiteout;
	bool odd;
	bool has_stat;
	mode_t mode;  /* has_stat */
	uint64_t ino; /* has_stat */
};

/* 1: *out; 0: no such name. */
int fs_disk_look(int dir_fd, const char *name, struct fs_disk *out);
/* Counted descriptor of a directory that has one; end with fs_ufd_unref, the root too. */
int fs_disk_dir(struct fs_unode *dir);
/* Counted descriptor of a file or directory. */
int fs_disk_open(struct fs_unode *node);
/* Where its name is: a directory that is released with fs_disk_place_end. -ENOENT: nowhere. */
struct fs_place {
	struct fs_unode *dir; /* NULL: w */
	int dir_fd;
	const char *name;
	char buf[FS_WORK_NAME_SZ];
};
int fs_disk_place(struct fs_unode *node, struct fs_place *out);
void fs_disk_place_end(struct fs_place *place);
void fs_disk_tmp_name(struct fs_upper *upper, char out[FS_WORK_NAME_SZ]);
void fs_disk_orphan_name(const struct fs_unode *node, char out[FS_WORK_NAME_SZ]);
/* An entry w/@name that hides a name where it is moved. */
int fs_disk_whiteout(struct fs_upper *upper, const char *name);
/* The number that stat shows of a file that is not the tree's. */
uint64_t fs_disk_ino(ino_t ino);
/* The mode with which @mode is kept on disk. */
mode_t fs_disk_mode(mode_t mode);
/* Set what stat shows of the open file: mode, and the number where it is not its own. */
int fs_disk_set_mode(struct fs_unode *node, int fd, mode_t mode);
/* The directory at @fd shows nothing of the tree's, or what is at @path there. */
int fs_disk_set_opaque(struct fs_unode *dir, int fd);
int fs_disk_set_redirect(struct fs_unode *dir, int fd, const char *path);
/* 1: as set; 0: not set. *path is malloc'ed. */
int fs_disk_is_opaque(int fd);
int fs_disk_redirect(int fd, char **path);
/* A rename of what has the number @ino, at @path, is about to be; whether to hide @path then. */
int fs_disk_note_rename(struct fs_upper *upper, const char *path, ino_t ino, bool hide);
/* Delete w/@name, whatever it is. */
void fs_disk_drop(struct fs_upper *upper, const char *name);
/* Clear w of what an earlier daemon left, finishing a rename. */
int fs_disk_recover(struct fs_upper *upper, struct err *err);

#endif
