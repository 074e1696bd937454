/* fs/sandbox/land.c - the outputs of a finished sandbox land, if they are many */
#include "fs/sandbox/land.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/landing/landing.h"

#define LAND_UPPER FS_LAND_NAME "/upper"

int fs_land_begin(int dir_fd, const struct cas_landing_list *list, struct err *err)
{
	auto_close int fd = -1;
	int ret = fs_land_undo(dir_fd, err);

	if (ret < 0)
		return ret;
	if (mkdirat(dir_fd, FS_LAND_NAME, 0700) < 0)
		return err_set(err, -errno, "cannot make a directory for outputs that land: %m");
	fd = openat(dir_fd, FS_LAND_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, -errno, "cannot open the directory of outputs that land: %m");
	return cas_landing_list_write(list, fd, err);
}

int fs_land(struct cas_store *store, int dir_fd, struct err *err)
{
	if (faccessat(dir_fd, FS_LAND_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? 0
			       : err_set(err, -errno, "cannot look at outputs that land: %m");
	/* A crash may have come between this and the rest. */
	if (renameat2(dir_fd, "upper", dir_fd, LAND_UPPER, RENAME_NOREPLACE) < 0 &&
	    errno != ENOENT && errno != EEXIST)
		return err_set(err, -errno, "cannot move outputs that land: %m");
	return cas_landing_take(store, dir_fd, FS_LAND_NAME, err);
}

int fs_land_undo(int dir_fd, struct err *err)
{
	if (faccessat(dir_fd, LAND_UPPER, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_set(err, -EUCLEAN,
			       "outputs have landed of a sandbox that is not finished");
	if (faccessat(dir_fd, FS_LAND_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return io_remove_tree(dir_fd, FS_LAND_NAME, err);
}
