/* cas/store/store_place.c - a blob directory of its own: who it belongs to, finding it again */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/store/store_i.h"

/*
 * DIR may be shared with other hosts, and only one of their stores may unlink in it: the
 * one whose id stands in DIR/owner, written by the store that makes DIR/cas, before. A directory
 * that was there before and has no owner file belongs to whoever uses it, as ever.
 */

#define ID_MAX 512

/* Make @dir_fd/@name with this content unless it is there; never seen half-written. */
static int publish_text(int dir_fd, const char *name, const char *text)
{
	char tmp[64];
	char rnd[17];
	int ret = io_random_hex(rnd, 8);

	if (ret < 0)
		return ret;
	(void)snprintf(tmp, sizeof(tmp), CAS_TMP_PREFIX "%s", rnd);
	ret = io_replace_file(dir_fd, tmp, text, strlen(text), 0444, true);
	if (ret < 0)
		return ret;
	if (linkat(dir_fd, tmp, dir_fd, name, 0) < 0 && errno != EEXIST)
		ret = -errno;
	(void)unlinkat(dir_fd, tmp, 0);
	return ret;
}

static bool is_id(const char *s)
{
	return strlen(s) >= CAS_STORE_ID_LEN && strspn(s, "0123456789abcdef") == CAS_STORE_ID_LEN;
}

/* Sixteen digits and whatever follows; -EUCLEAN when it is something else. */
static int read_id(int dir_fd, const char *name, char id[CAS_STORE_ID_LEN + 1])
{
	auto_buf struct buf b = {0};
	int ret = io_read_file(dir_fd, name, ID_MAX, &b);

	if (ret < 0)
		return ret;
	if (!is_id(buf_str(&b)))
		return -EUCLEAN;
	memcpy(id, b.data, CAS_STORE_ID_LEN);
	id[CAS_STORE_ID_LEN] = '\0';
	return 0;
}

static int settle_id(struct cas_store *store, struct err *err)
{
	char text[CAS_STORE_ID_LEN + 2];
	int ret = read_id(store->dir_fd, "id", store->id);

	if (ret == -ENOENT && !store->read_only) {
		ret = io_random_hex(text, CAS_STORE_ID_LEN / 2);
		if (ret == 0) {
			(void)strcat(text, "\n");
			ret = publish_text(store->dir_fd, "id", text);
		}
		if (ret == 0)
			ret = read_id(store->dir_fd, "id", store->id);
	}
	if (ret < 0 && !(ret == -ENOENT && store->read_only))
		return err_set(err, ret, "cannot settle %s/id: %s", store->path,
			       strerrordesc_np(-ret));
	return 0;
}

static int claim(struct cas_store *store, int blobs_fd)
{
	char text[ID_MAX];
	char host[128] = "";

	(void)gethostname(host, sizeof(host) - 1);
	(void)snprintf(text, sizeof(text), "%s %s:%.300s\n", store->id, host, store->path);
	return publish_text(blobs_fd, "owner", text);
}

int cas_store_settle_owner(struct cas_store *store, int blobs_fd, struct err *err)
{
	char id[CAS_STORE_ID_LEN + 1];
	int ret = settle_id(store, err);

	if (ret < 0)
		return ret;
	store->may_unlink = true;
	if (!store->read_only && faccessat(blobs_fd, "cas", F_OK, 0) < 0 && errno == ENOENT) {
		ret = claim(store, blobs_fd);
		/* Where nothing can be made there will be no cas/ either, which is told then. */
		if (ret < 0 && ret != -EROFS && ret != -EACCES && ret != -EPERM)
			return err_set(err, ret, "cannot write %s/owner: %s", store->blobs_path,
				       strerrordesc_np(-ret));
	}
	ret = read_id(blobs_fd, "owner", id);
	if (ret == -ENOENT)
		return 0;
	if (ret < 0 && ret != -EUCLEAN)
		return err_set(err, ret, "cannot read %s/owner: %s", store->blobs_path,
			       strerrordesc_np(-ret));
	store->owned = true;
	store->may_unlink = ret == 0 && strcmp(id, store->id) == 0;
	return 0;
}

/* Put another directory under the number of the old one, which others may be using. */
static void reopen(const struct cas_store *store, const char *name, int old_fd)
{
	char path[PATH_MAX];
	auto_close int fd = -1;
	struct stat was;
	struct stat is;

	(void)snprintf(path, sizeof(path), "%s/%s", store->blobs_path, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &is) < 0)
		return;
	if (fstat(old_fd, &was) == 0 && was.st_dev == is.st_dev && was.st_ino == is.st_ino &&
	    was.st_nlink > 0)
		return;
	if (dup3(fd, old_fd, O_CLOEXEC) >= 0)
		log_info("found %s again", path);
}

void cas_store_reopen_blobs(struct cas_store *store)
{
	struct stat st;

	reopen(store, "cas", store->cas_fd);
	if (store->ac_fd >= 0)
		reopen(store, "ac", store->ac_fd);
	if (fstat(store->cas_fd, &st) == 0 && st.st_dev != store->cas_dev)
		store->cas_dev = st.st_dev;
}
