/* meta/index/files_owner.c - whose the files of index and ledger are */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/index/files.h"

int meta_give_to_owner(int dir_fd, const char *name)
{
	struct stat st;

	if (geteuid() != 0)
		return 0;
	if (fstat(dir_fd, &st) < 0)
		return -errno;
	if (st.st_uid != 0 && fchownat(dir_fd, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}
