/* cas/store/store_reach.c - where a store is, whose it is, and of which format */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/store/store_i.h"

/*
 * The program's front links this file (tools/front) and little else: what it calls is to stay
 * small.
 */

#define VERSION_MAX 200

int cas_store_check_version(struct cas_store *store, struct err *err)
{
	auto_buf struct buf b = {0};
	struct stat st;
	int ret;

	if (fstatat(store->dir_fd, "VERSION", &st, 0) < 0)
		return errno == ENOENT
			       ? -ENOENT
			       : err_set(err, -errno, "cannot read %s/VERSION: %m", store->path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EPROTONOSUPPORT, "%s/VERSION is no regular file", store->path);
	ret = io_read_file(store->dir_fd, "VERSION", VERSION_MAX, &b);
	if (ret < 0 && ret != -EFBIG)
		return err_set(err, ret, "cannot read %s/VERSION: %s", store->path,
			       strerrordesc_np(-ret));
	if (ret == 0 && strcmp(buf_str(&b), CAS_LAYOUT_VERSION_LINE) == 0 &&
	    b.len == strlen(CAS_LAYOUT_VERSION_LINE))
		return 0;
	for (size_t i = 0; i < b.len; i++) {
		if (b.data[i] == '\n' || b.data[i] == '\0')
			b.data[i] = '\0';
		else if (b.data[i] < ' ' || b.data[i] > '~')
			b.data[i] = '?';
	}
	return err_set(err, -EPROTONOSUPPORT,
		       "store %s has VERSION \"%.80s\", this casbox knows \"%.*s\"; use the casbox "
		       "that made it",
		       store->path, buf_str(&b), (int)strlen(CAS_LAYOUT_VERSION_LINE) - 1,
		       CAS_LAYOUT_VERSION_LINE);
}

int cas_store_open_dir(const char *path, bool create, char **real, int *fd, struct err *err)
{
	auto_free char *got = realpath(path, NULL);
	int ret = got ? 0 : -errno;

	if (ret == -ENOENT && create) {
		struct stat st;

		ret = io_mkdir_parents(AT_FDCWD, path, 0755);
		got = ret == 0 ? realpath(path, NULL) : NULL;
		if (ret == 0 && got == NULL)
			ret = -errno;
		/* We made it a moment ago, empty: its mode is ours to set, not the umask's. */
		if (ret == 0 && stat(got, &st) == 0 && st.st_uid == geteuid() &&
		    chmod(got, 0755) < 0)
			ret = -errno;
	}
	if (ret < 0)
		return err_set(err, ret, "cannot open store %s: %s", path, strerrordesc_np(-ret));
	*fd = open(got, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0)
		return err_set(err, -errno, "cannot open store %s: %m", got);
	*real = steal_ptr(&got);
	return 0;
}

int cas_store_check_owner(struct cas_store *store, struct err *err)
{
	struct stat st;

	if (fstat(store->dir_fd, &st) < 0)
		return err_set(err, -errno, "cannot stat %s: %m", store->path);
	store->owner = st.st_uid;
	store->group = st.st_gid;
	if (geteuid() == 0 || st.st_uid == geteuid())
		return 0;
	if (st.st_uid != 0)
		return err_set(err, -EPERM,
			       "store %s belongs to user %u; name one of your own with --store",
			       store->path, st.st_uid);
	store->read_only = true;
	return 0;
}

bool cas_store_is_read_only(const struct cas_store *store)
{
	return store->read_only;
}

const char *cas_store_path(const struct cas_store *store)
{
	return store->path;
}

int cas_store_dir_fd(const struct cas_store *store)
{
	return store->dir_fd;
}

int cas_store_reach(const char *path, struct cas_store **out, struct err *err)
{
	struct cas_store *store = calloc(1, sizeof(*store));
	int ret;

	if (store == NULL)
		return err_set(err, -ENOMEM, "cannot reach store %s: out of memory", path);
	store->dir_fd = store->cas_fd = store->ac_fd = store->lock_fd = store->spool_fd = -1;
	store->link_fd[0] = store->link_fd[1] = -1;
	ret = cas_store_open_dir(path, false, &store->path, &store->dir_fd, err);
	if (ret == 0)
		ret = cas_store_check_owner(store, err);
	if (ret == 0)
		ret = cas_store_check_version(store, err);
	if (ret == -ENOENT && store->path)
		(void)err_set(err, ret, "%s is no store: it has no VERSION", store->path);
	if (ret < 0) {
		cas_store_unreach(store);
		return ret;
	}
	*out = store;
	return 0;
}

void cas_store_unreach(struct cas_store *store)
{
	if (store == NULL)
		return;
	if (store->dir_fd >= 0)
		(void)close(store->dir_fd);
	free(store->path);
	free(store);
}
