/* fs/upper/disk.c - a layer's files: what they mean, where they are, opening them */
#include "fs/upper/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/upper/upper_i.h"

#define MODE_BITS 07777
/* Apart from hashes of 60 bits, nearly. */
#define OWN_INO (UINT64_C(1) << 59)

uint64_t fs_disk_ino(ino_t ino)
{
	return OWN_INO | ((uint64_t)ino & (OWN_INO - 1));
}

static int open_at(int dir_fd, const char *name, mode_t type)
{
	int flags = S_ISDIR(type) ? O_RDONLY | O_DIRECTORY : O_RDWR | O_NONBLOCK;
	int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool may_be_odd(mode_t mode)
{
	return (mode & S_ISVTX) && (S_ISREG(mode) || S_ISDIR(mode));
}

static int read_odd(int dir_fd, const char *name, struct fs_disk *disk)
{
	auto_close int fd = open_at(dir_fd, name, disk->st.st_mode);
	char text[64];
	unsigned mode;
	ssize_t len;

	if (fd < 0)
		return fd;
	disk->odd = true;
	if (disk->st.st_size == 0 && S_ISREG(disk->st.st_mode))
		disk->whiteout = fgetxattr(fd, FS_XATTR_WHITEOUT, NULL, 0) >= 0;
	len = fgetxattr(fd, FS_XATTR_STAT, text, sizeof(text) - 1);
	if (len <= 0)
		return 0;
	text[len] = '\0';
	disk->has_stat = sscanf(text, "%o %" SCNx64, &mode, &disk->ino) == 2;
	disk->mode = mode & MODE_BITS;
	return 0;
}

int fs_disk_look(int dir_fd, const char *name, struct fs_disk *out)
{
	int ret;

	*out = (struct fs_disk){0};
	if (fstatat(dir_fd, name, &out->st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	ret = may_be_odd(out->st.st_mode) ? read_odd(dir_fd, name, out) : 0;
	return ret < 0 ? ret : 1;
}

/* By one of its names, or in w. */
int fs_disk_place(struct fs_unode *node, struct fs_place *out)
{
	*out = (struct fs_place){.dir_fd = -1};
	if (node->names) {
		int fd = fs_disk_dir(node->names->dir);

		if (fd < 0)
			return fd;
		out->dir = node->names->dir;
		out->dir_fd = fd;
		out->name = node->names->name;
		return 0;
	}
	if (!node->orphan)
		return -ENOENT;
	fs_disk_orphan_name(node, out->buf);
	out->name = out->buf;
	out->dir_fd = node->upper->work_fd;
	return 0;
}

void fs_disk_place_end(struct fs_place *place)
{
	if (place->dir)
		fs_ufd_unref(place->dir);
	place->dir = NULL;
}

int fs_disk_open(struct fs_unode *node)
{
	struct fs_place place;
	int fd = fs_ufd_ref(node);
	int ret;

	if (fd >= 0)
		return fd;
	ret = fs_disk_place(node, &place);
	if (ret < 0)
		return ret;
	fd = open_at(place.dir_fd, place.name, node->type);
	fs_disk_place_end(&place);
	if (fd >= 0)
		fs_ufd_add(node, fd);
	return fd;
}

int fs_disk_dir(struct fs_unode *dir)
{
	return fs_disk_open(dir);
}

void fs_disk_tmp_name(struct fs_upper *upper, char out[FS_WORK_NAME_SZ])
{
	(void)snprintf(out, FS_WORK_NAME_SZ, "t%" PRIu64, ++upper->next_tmp);
}

void fs_disk_orphan_name(const struct fs_unode *node, char out[FS_WORK_NAME_SZ])
{
	(void)snprintf(out, FS_WORK_NAME_SZ, "o%" PRIu64, node->number);
}

int fs_disk_whiteout(struct fs_upper *upper, const char *name)
{
	auto_close int fd = openat(upper->work_fd, name,
				   O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (fsetxattr(fd, FS_XATTR_WHITEOUT, "y", 1, 0) < 0 || fchmod(fd, S_ISVTX | 0600) < 0)
		ret = -errno;
	if (ret < 0)
		fs_disk_drop(upper, name);
	upper->any_odd = true;
	return ret;
}

mode_t fs_disk_mode(mode_t mode)
{
	return (mode & MODE_BITS) | (S_ISDIR(mode) ? 0700 : 0600);
}

/* What stat shows where it is not what the file has by itself. */
static int set_stat(struct fs_unode *node, int fd, mode_t mode)
{
	char text[64];
	int len = snprintf(text, sizeof(text), "%o %" PRIx64, mode & MODE_BITS, node->ino);

	if (fsetxattr(fd, FS_XATTR_STAT, text, (size_t)len, 0) < 0)
		return -errno;
	node->shown_mode = true;
	node->mode = mode & MODE_BITS;
	return 0;
}

int fs_disk_set_mode(struct fs_unode *node, int fd, mode_t mode)
{
	mode_t kept;
	int ret = 0;

	mode = (mode & MODE_BITS) | node->type;
	kept = fs_disk_mode(mode);
	if (node->odd || kept != (mode & MODE_BITS) || (mode & S_ISVTX)) {
		ret = set_stat(node, fd, mode);
		node->odd = node->upper->any_odd = true;
		kept |= S_ISVTX;
	}
	if (ret == 0 && fchmod(fd, kept) < 0)
		ret = -errno;
	return ret;
}

/* Mark the directory as one to be looked at. */
static int set_odd(struct fs_unode *dir, int fd)
{
	struct stat st;

	if (dir->odd)
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	dir->odd = true;
	return fs_disk_set_mode(dir, fd, dir->shown_mode ? dir->mode : st.st_mode);
}

int fs_disk_set_opaque(struct fs_unode *dir, int fd)
{
	int ret = fsetxattr(fd, FS_XATTR_OPAQUE, "y", 1, 0) < 0 ? -errno : 0;

	return ret < 0 ? ret : set_odd(dir, fd);
}

int fs_disk_set_redirect(struct fs_unode *dir, int fd, const char *path)
{
	auto_free char *value = NULL;
	int ret;

	if (asprintf(&value, "/%s", path) < 0) {
		value = NULL;
		return -ENOMEM;
	}
	ret = fsetxattr(fd, FS_XATTR_REDIRECT, value, strlen(value), 0) < 0 ? -errno : 0;
	return ret < 0 ? ret : set_odd(dir, fd);
}

int fs_disk_is_opaque(int fd)
{
	return fgetxattr(fd, FS_XATTR_OPAQUE, NULL, 0) >= 0;
}

int fs_disk_redirect(int fd, char **path)
{
	auto_free char *value = malloc(PATH_MAX + 1);
	ssize_t len = value ? fgetxattr(fd, FS_XATTR_REDIRECT, value, PATH_MAX) : -1;

	if (!value)
		return -ENOMEM;
	if (len <= 0 || value[0] != '/')
		return 0;
	value[len] = '\0';
	*path = strdup(value + 1);
	return *path ? 1 : -ENOMEM;
}

void fs_disk_drop(struct fs_upper *upper, const char *name)
{
	struct err err = {0};

	if (unlinkat(upper->work_fd, name, 0) == 0 || errno == ENOENT)
		return;
	if (io_remove_tree(upper->work_fd, name, &err) < 0)
		log_warn("cannot remove what an action removed: %s", err.msg);
}

int fs_disk_note_rename(struct fs_upper *upper, const char *path, ino_t ino, bool hide)
{
	auto_free char *text = NULL;

	if (asprintf(&text, "/%c%" PRIx64 " %s", hide ? '+' : '-', (uint64_t)ino, path) < 0) {
		text = NULL;
		return -ENOMEM;
	}
	if (symlinkat(text, upper->work_fd, FS_WORK_RENAME) == 0)
		return 0;
	/* One that could not be removed, of a rename that is over. */
	if (errno != EEXIST)
		return -errno;
	fs_disk_drop(upper, FS_WORK_RENAME);
	return symlinkat(text, upper->work_fd, FS_WORK_RENAME) < 0 ? -errno : 0;
}

/* What fs_disk_note_rename wrote, or the path alone, as it once was; *ino is 0 then. */
static const char *parse_rename(const char *text, uint64_t *ino, bool *hide)
{
	char *end;

	*ino = 0;
	*hide = true;
	if (text[0] != '/' || (text[1] != '+' && text[1] != '-'))
		return text;
	*hide = text[1] == '+';
	*ino = strtoull(text + 2, &end, 16);
	return *end == ' ' ? end + 1 : end;
}

/* Something is at the old name still: what was to leave it, or what that changed places with. */
static int clear_old(struct fs_upper *upper, int dir_fd, const char *name, uint64_t ino)
{
	char tmp[FS_WORK_NAME_SZ];
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 1 : -errno;
	if (ino == 0 || st.st_ino == ino)
		return 0;
	fs_disk_tmp_name(upper, tmp);
	if (renameat(dir_fd, name, upper->work_fd, tmp) < 0)
		return -errno;
	fs_disk_drop(upper, tmp);
	return 1;
}

/* What a rename left must not show again what the tree has there, nor what it replaced. */
static int finish_rename(struct fs_upper *upper, const char *text)
{
	uint64_t ino;
	bool hide;
	const char *path = parse_rename(text, &ino, &hide);
	auto_free char *above = strdup(path);
	char *slash = above ? strrchr(above, '/') : NULL;
	const char *name = path + (slash ? slash - above + 1 : 0);
	auto_close int dir_fd = -1;
	int ret;

	if (!above)
		return -ENOMEM;
	if (slash)
		*slash = '\0';
	dir_fd = openat(upper->root_fd, slash ? above : ".",
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	ret = clear_old(upper, dir_fd, name, ino);
	return ret > 0 && hide ? fs_upper_put_whiteout(upper, dir_fd, name) : ret < 0 ? ret : 0;
}

/* Drop all that lies in w, but what tells of a rename. */
static int clear_work(struct fs_upper *upper)
{
	int fd = openat(upper->work_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *de;

	if (!dir)
		return -errno;
	while ((errno = 0, de = readdir(dir)) != NULL) {
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
		    strcmp(de->d_name, FS_WORK_RENAME) != 0)
			fs_disk_drop(upper, de->d_name);
	}
	return -errno;
}

/* What an earlier recovery began goes first: its names are those of this one. */
int fs_disk_recover(struct fs_upper *upper, struct err *err)
{
	char path[PATH_MAX];
	ssize_t len = readlinkat(upper->work_fd, FS_WORK_RENAME, path, sizeof(path) - 1);
	int ret = clear_work(upper);

	if (ret < 0)
		return err_set(err, ret, "cannot look for what a crash left: %s",
			       strerrordesc_np(-ret));
	if (len <= 0)
		return 0;
	path[len] = '\0';
	ret = finish_rename(upper, path);
	if (ret < 0)
		return err_set(err, ret, "cannot finish a rename of %s: %s", path,
			       strerrordesc_np(-ret));
	fs_disk_drop(upper, FS_WORK_RENAME);
	return 0;
}
