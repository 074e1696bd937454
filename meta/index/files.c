/* meta/index/files.c - the files of index and ledger: whose they are, and out of the way */
#include "meta/index/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cas/base/err.h"
#include "cas/base/log.h"

#define ASIDE_MAX 10000

static int move(int dir_fd, const char *path, const char *suffix, int nr)
{
	char from[128], to[128];

	(void)snprintf(from, sizeof(from), "%s%s", path, suffix);
	(void)snprintf(to, sizeof(to), "%s.bad-%d%s", path, nr, suffix);
	return renameat2(dir_fd, from, dir_fd, to, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

int meta_set_aside(int store_fd, const char *path, const char *const *suffixes, struct err *err)
{
	int nr = 1, ret;

	while ((ret = move(store_fd, path, "", nr)) == -EEXIST && nr < ASIDE_MAX)
		nr++;
	if (ret == -ENOENT)
		ret = 0;
	for (; ret == 0 && suffixes && *suffixes; suffixes++) {
		ret = move(store_fd, path, *suffixes, nr);
		if (ret == -ENOENT)
			ret = 0;
	}
	if (ret < 0)
		return err_set(err, ret, "cannot set %s aside: %s", path, strerror(-ret));
	log_warn("%s cannot be used; set aside as %s.bad-%d and made anew", path, path, nr);
	return 0;
}
