/* cas/checkout/checkout_temp.c - the name under which a checkout grows, beside its destination */
#include "cas/checkout/checkout_i.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/base/text_i.h"

/*
 * Names (cas/put/temp_name.h) have the body `HHHHHHHHHHHHHHHH-N`, H from a hash of the
 * destination's name, N counting up from 0. Whoever uses one holds flock on the directory, and a
 * lock that can be had proves its user dead (killed before the rename). So a later checkout to the
 * same destination meets the leftover without searching the parent, and removes it.
 *
 * The maker locks only after mkdir, and somebody may find the new directory unlocked in
 * between and remove it. Therefore a lock counts only when the name still leads to the
 * locked inode; only the holder of a lock removes, and only what it locked. Where flock does not
 * work (NFS refuses it on a directory) nothing is ever proven dead and nothing removed.
 */

#define SLOTS 64

enum slot { SLOT_MINE, SLOT_TAKEN, SLOT_AGAIN };

/* Lock @name as @fd has it: 1 locked and still there, 0 not, negative when locks do not work. */
static int slot_lock(int parent_fd, const char *name, int fd)
{
	struct stat by_fd;
	struct stat by_name;
	int ret;

	do
		ret = flock(fd, LOCK_EX | LOCK_NB);
	while (ret < 0 && errno == EINTR);
	if (ret < 0)
		return errno == EWOULDBLOCK ? 0 : -errno;
	return fstat(fd, &by_fd) == 0 &&
	       fstatat(parent_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
	       by_fd.st_dev == by_name.st_dev && by_fd.st_ino == by_name.st_ino;
}

/* Somebody's: remove it when it is ours and dead. */
static enum slot slot_clean(int parent_fd, const char *name)
{
	auto_close int fd =
		openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? SLOT_AGAIN : SLOT_TAKEN;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || slot_lock(parent_fd, name, fd) != 1)
		return SLOT_TAKEN;
	checkout_snapshot_remove(fd);
	return io_remove_tree(parent_fd, name, NULL) == 0 ? SLOT_AGAIN : SLOT_TAKEN;
}

/* SLOT_* or a negative errno; *fd is set for SLOT_MINE. */
static int slot_try(int parent_fd, const char *name, int *out)
{
	auto_close int fd = -1;
	struct stat st;

	if (mkdirat(parent_fd, name, 0755) < 0)
		return errno == EEXIST ? (int)slot_clean(parent_fd, name) : -errno;
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? SLOT_AGAIN : -errno;
	if (slot_lock(parent_fd, name, fd) == 0)
		return SLOT_AGAIN;
	if (fstat(fd, &st) < 0 || ((st.st_mode & 0777) != 0755 && fchmod(fd, 0755) < 0)) {
		int code = -errno;

		(void)unlinkat(parent_fd, name, AT_REMOVEDIR);
		return code;
	}
	*out = steal_fd(&fd);
	return SLOT_MINE;
}

int checkout_temp_make(int parent_fd, const char *dest_name, char name[CAS_TEMP_NAME_SZ], int *fd,
		       struct err *err)
{
	uint64_t hash = cas_text_hash(dest_name, strlen(dest_name));
	char body[32];
	int ret = SLOT_TAKEN;

	/* The tries bound the dance of several checkouts around one slot. */
	for (int n = 0, tries = 0; n < SLOTS && tries < 4 * SLOTS; tries++) {
		(void)snprintf(body, sizeof(body), "%016" PRIx64 "-%d", hash, n);
		ret = cas_temp_name(body, name);
		if (ret == 0)
			ret = slot_try(parent_fd, name, fd);
		if (ret < 0)
			return err_set(err, ret, "cannot create a directory beside it: %s",
				       strerrordesc_np(-ret));
		if (ret == SLOT_MINE)
			return 0;
		n += ret == SLOT_TAKEN;
	}
	return err_set(err, -EBUSY, "%d other checkouts to it are under way or left %s behind",
		       SLOTS, name);
}
