/* cas/store/lease.c - is anybody able to write to this file? */
#include "cas/store/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

int cas_lease_take(int fd)
{
	/*
	 * A broken lease raises SIGIO, which kills by default: ask for SIGURG, which is
	 * ignored by default, and then for nobody to be told.
	 */
	if (fcntl(fd, F_SETSIG, SIGURG) < 0)
		return -errno;
	if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0) {
		int code = errno;

		return code == EINVAL || code == ENOLCK || code == ENOSYS ? -EOPNOTSUPP : -code;
	}
	(void)fcntl(fd, F_SETOWN, 0);
	return 0;
}

int cas_lease_held(int fd)
{
	return fcntl(fd, F_GETLEASE) == F_RDLCK;
}

void cas_lease_drop(int fd)
{
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
}
