/* cas/landing/list.c - files that are to land, as a capture meets them */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/arena_i.h"
#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/landing/landing_i.h"
#include "cas/put/put.h"
#include "cas/store/store_i.h"

struct cas_landing_list {
	struct cas_store *store;
	char top[PATH_MAX]; /* of upper_fd, as the kernel names it */
	struct lock lock;   /* a leaf */
	struct cas_arena paths GUARDED_BY(lock);
	struct cas_landing_row *rows GUARDED_BY(lock);
	size_t nr GUARDED_BY(lock);
	size_t cap GUARDED_BY(lock);
};

static int fd_path(int fd, char out[PATH_MAX])
{
	char proc[64];
	ssize_t len;

	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	len = readlink(proc, out, PATH_MAX - 1);
	if (len < 0)
		return -errno;
	out[len] = '\0';
	return len == PATH_MAX - 1 ? -ENAMETOOLONG : 0;
}

int cas_landing_list_new(struct cas_store *store, int upper_fd, struct cas_landing_list **out)
{
	struct cas_landing_list *list;
	struct stat st;
	int ret;

	if (fstat(upper_fd, &st) < 0)
		return -errno;
	if (st.st_dev != store->cas_dev)
		return -EXDEV;
	list = calloc(1, sizeof(*list));
	if (list == NULL)
		return -ENOMEM;
	list->store = store;
	lock_init(&list->lock, LOCK_RANK_LEAF, "cas_landing_list.lock");
	ret = fd_path(upper_fd, list->top);
	if (ret < 0)
		cas_landing_list_free(list);
	else
		*out = list;
	return ret;
}

NO_LOCK_CHECK void cas_landing_list_free(struct cas_landing_list *list)
{
	if (list == NULL)
		return;
	cas_arena_fini(&list->paths);
	lock_fini(&list->lock);
	free(list->rows);
	free(list);
}

char *cas_landing_list_path(const struct cas_landing_list *list, int dir_fd)
{
	size_t len = strlen(list->top);
	char path[PATH_MAX];

	if (faccessat(dir_fd, ".", W_OK | X_OK, AT_EACCESS) < 0 || fd_path(dir_fd, path) < 0 ||
	    strncmp(path, list->top, len) != 0 || path[len] != '/')
		return NULL;
	return strdup(path + len + 1);
}

static int add_locked(struct cas_landing_list *list, const struct cas_landing_row *row,
		      const char *dir, const char *name) REQUIRES(list->lock)
{
	size_t sz = strlen(dir) + strlen(name) + 2;
	char *path;

	if (list->nr == list->cap) {
		size_t cap = list->cap ? 2 * list->cap : 256;
		struct cas_landing_row *rows = reallocarray(list->rows, cap, sizeof(*rows));

		if (rows == NULL)
			return -ENOMEM;
		list->rows = rows;
		list->cap = cap;
	}
	path = cas_arena_alloc(&list->paths, sz);
	if (path == NULL)
		return -ENOMEM;
	(void)snprintf(path, sz, "%s/%s", dir, name);
	list->rows[list->nr] = *row;
	list->rows[list->nr++].path = path;
	return 0;
}

static int64_t to_ns(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

int cas_landing_offer(struct cas_landing_list *list, int dir_fd, const char *dir, const char *name,
		      const struct cas_put_known *known, struct cas_digest *out, struct err *err)
{
	struct cas_put_known now;
	struct cas_landing_row row;
	enum cas_put_outlook outlook;
	int ret = cas_put_look(list->store, dir_fd, name, known, &now, &outlook, err);

	if (ret < 0 || outlook == CAS_PUT_NOT_MOVABLE)
		return ret;
	*out = now.digest;
	if (outlook == CAS_PUT_IS_BLOB)
		return 1;
	row = (struct cas_landing_row){
		.digest = now.digest,
		.dev = now.st.st_dev,
		.ino = now.st.st_ino,
		.mtime_ns = to_ns(&now.st.st_mtim),
		.ctime_ns = to_ns(&now.st.st_ctim),
	};
	lock_take(&list->lock);
	ret = add_locked(list, &row, dir, name);
	lock_drop(&list->lock);
	return ret < 0 ? err_set(err, ret, "no memory to capture %s", name) : 1;
}

NO_LOCK_CHECK size_t cas_landing_list_count(const struct cas_landing_list *list)
{
	return list ? list->nr : 0;
}

NO_LOCK_CHECK int cas_landing_list_write(const struct cas_landing_list *list, int dir_fd,
					 struct err *err)
{
	auto_buf struct buf text = {0};
	int ret = cas_manifest_format(list->rows, list->nr, &text);

	if (ret == 0)
		ret = io_replace_file(dir_fd, CAS_LANDING_MANIFEST, text.data, text.len, 0600,
				      false);
	return ret < 0 ? err_set(err, ret, "cannot write the manifest of %zu outputs: %s", list->nr,
				 strerrordesc_np(-ret))
		       : 0;
}
