/* fs/serve/detach.c - get rid of mounts whose daemon died */

/*
 * The mount point itself cannot be resolved while its mount is dead, so paths are
 * compared as text: the parent resolved, the last component as given. A lazy detach
 * takes everything mounted below along, so only the mounts at the path are looked at.
 */
#include "fs/serve/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cas/cas.h"
#include "fs/fs.h"
#include "fs/serve/mountfd.h"

#define DETACH_MAX 1000

/* Undo mountinfo's \ooo in place. */
static void unescape(char *s)
{
	char *out = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

/* ID PARENT DEV ROOT MOUNTPOINT OPTIONS [FIELDS]... - TYPE SOURCE OPTIONS */
static bool line_matches(char *line, const char *path, dev_t dev)
{
	char *sep = strstr(line, " - ");
	char *save = NULL;
	char *word = strtok_r(line, " ", &save);
	unsigned maj = 0;
	unsigned min = 0;

	for (int i = 0; word && i < 4; i++) {
		word = strtok_r(NULL, " ", &save);
		if (word && i == 1 && sscanf(word, "%u:%u", &maj, &min) != 2)
			return false;
	}
	if (!word || !sep)
		return false;
	unescape(word);
	return (dev == 0 || makedev(maj, min) == dev) && strcmp(word, path) == 0 &&
	       strncmp(sep + 3, FS_MOUNT_TYPE " ", strlen(FS_MOUNT_TYPE) + 1) == 0;
}

int fs_mounts_at(const char *path, dev_t dev)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	auto_free char *line = NULL;
	size_t cap = 0;
	int nr = 0;

	if (!f)
		return -errno;
	while (getline(&line, &cap, f) > 0)
		nr += line_matches(line, path, dev);
	(void)fclose(f);
	return nr;
}

/* The parent resolved, the last component as it is; -ENOENT and the like. */
static int resolve_parent(const char *path, char out[PATH_MAX])
{
	auto_free char *copy = strdup(path);
	auto_free char *parent = NULL;
	char *slash;
	size_t len;

	if (!copy)
		return -ENOMEM;
	len = strlen(copy);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	parent = realpath(!slash ? "." : slash == copy ? "/" : copy, NULL);
	if (!parent)
		return -errno;
	if (snprintf(out, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
		     slash ? slash + 1 : copy) >= PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

/* Asks the daemon (attributes may be cached for ever), and sees when there is none. */
static bool is_dead(const char *path)
{
	struct statx stx;

	return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC | AT_SYMLINK_NOFOLLOW, STATX_MODE, &stx) <
		       0 &&
	       (errno == ENOTCONN || errno == ECONNABORTED);
}

int fs_detach_dead(const char *mountpoint, struct err *err)
{
	char path[PATH_MAX];
	int ret = resolve_parent(mountpoint, path);
	int nr = 0;

	if (ret < 0)
		return ret == -ENOENT || ret == -ENOTDIR
			       ? 0
			       : err_set(err, ret, "cannot resolve %s: %s", mountpoint,
					 strerror(-ret));
	while (nr < DETACH_MAX && fs_mounts_at(path, 0) > 0 && is_dead(path)) {
		if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
			return err_set(err, -errno, "cannot detach the dead mount at %s: %s", path,
				       strerror(errno));
		nr++;
	}
	return nr;
}
