/* cas/store/action_newest.c - the results that were stored last */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/store/layout.h"
#include "cas/store/store_i.h"

/* The @nr newest so far: a heap with the oldest of them in front. */
struct newest {
	struct cas_action_age *at;
	size_t nr;
	size_t max;
};

static bool is_older(const struct cas_action_age *a, const struct cas_action_age *b)
{
	if (a->mtime_ns != b->mtime_ns)
		return a->mtime_ns < b->mtime_ns;
	return memcmp(a->hash, b->hash, CAS_HASH_SZ) > 0;
}

static void swap(struct cas_action_age *a, struct cas_action_age *b)
{
	struct cas_action_age t = *a;

	*a = *b;
	*b = t;
}

static void sift_up(struct newest *n, size_t i)
{
	for (; i > 0 && is_older(&n->at[i], &n->at[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&n->at[i], &n->at[(i - 1) / 2]);
}

static void sift_down(struct newest *n)
{
	for (size_t i = 0;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < n->nr && is_older(&n->at[child + 1], &n->at[child]))
			child++;
		if (child >= n->nr || !is_older(&n->at[child], &n->at[i]))
			return;
		swap(&n->at[i], &n->at[child]);
		i = child;
	}
}

static void consider(struct newest *n, const struct cas_action_age *age)
{
	if (n->nr < n->max) {
		n->at[n->nr] = *age;
		sift_up(n, n->nr++);
	} else if (is_older(&n->at[0], age)) {
		n->at[0] = *age;
		sift_down(n);
	}
}

static int walk_shard(int ac_fd, const char *shard, struct newest *n)
{
	int fd = openat(ac_fd, shard, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_closedir DIR *dir = NULL;
	struct dirent *de;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
	dir = fdopendir(fd);
	if (dir == NULL) {
		(void)close(fd);
		return -ENOMEM;
	}
	while ((de = readdir(dir)) != NULL) {
		struct cas_action_age age;
		struct stat st;

		if (cas_hash_parse(de->d_name, strlen(de->d_name), age.hash) < 0 ||
		    fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
		    st.st_size == 0)
			continue;
		age.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
		consider(n, &age);
	}
	return 0;
}

static int newest_first(const void *a, const void *b)
{
	return is_older(a, b) ? 1 : is_older(b, a) ? -1 : 0;
}

int cas_store_action_newest(struct cas_store *store, struct cas_action_age *out, size_t max,
			    size_t *nr, struct err *err)
{
	struct newest n = {.at = out, .max = max};
	int ret = 0;

	*nr = 0;
	if (store->ac_fd < 0 || max == 0)
		return 0;
	for (unsigned shard = 0; ret == 0 && shard < CAS_LAYOUT_NR_SHARDS; shard++) {
		char name[3] = {"0123456789abcdef"[shard / 16], "0123456789abcdef"[shard % 16], 0};

		ret = walk_shard(store->ac_fd, name, &n);
	}
	if (ret < 0)
		return err_set(err, ret, "cannot list the results in %s: %s", store->path,
			       strerrordesc_np(-ret));
	if (n.nr > 1)
		qsort(out, n.nr, sizeof(*out), newest_first);
	*nr = n.nr;
	return 0;
}
