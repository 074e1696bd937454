/* fs/control/pins.c - blobs and trees that gc leaves alone */
#include "fs/control/pins.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/control/roots.h"

/*
 * 1, 0, or negative: a Directory that cannot be read just now must not pass for a blob,
 * or its files would go.
 */
static int is_directory(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	struct cas_directory *dir = NULL;
	int ret = -EUCLEAN;

	if (digest->size <= CAS_DIRECTORY_MAX)
		ret = cas_directory_load(store, digest, &dir, err);
	cas_directory_free(dir);
	return ret == 0 ? 1 : ret == -EUCLEAN ? 0 : ret;
}

static int write_pin(struct cas_store *store, const struct cas_digest *digest, bool is_dir,
		     struct err *err)
{
	const char *text = is_dir ? CONTROL_PIN_DIRECTORY : CONTROL_PIN_BLOB;
	char name[CAS_DIGEST_STR_SZ];
	auto_close int fd = -1;
	int ret = io_mkdir_parents(cas_store_dir_fd(store), "pins", 0700);

	if (ret == 0) {
		fd = openat(cas_store_dir_fd(store), "pins", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ret = fd < 0 ? -errno : 0;
	}
	if (ret == 0)
		ret = io_replace_file(fd, cas_digest_format(digest, '-', name), text, strlen(text),
				      0600, true);
	return ret ? err_set(err, ret, "cannot pin %s: %s", CAS_DIGEST_TEXT(digest), strerror(-ret))
		   : 0;
}

static int check_there(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	int ret = cas_store_has(store, digest);

	if (ret == 1)
		return 0;
	return err_set(err, ret ? ret : -ENOENT, "no blob %s in %s", CAS_DIGEST_TEXT(digest),
		       cas_store_path(store));
}

int control_pin_add(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	int ret = check_there(store, digest, err);

	if (ret == 0)
		ret = is_directory(store, digest, err);
	return ret >= 0 ? write_pin(store, digest, ret, err) : ret;
}

int control_pin_drop(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	char path[CAS_DIGEST_STR_SZ + 5] = "pins/";

	(void)cas_digest_format(digest, '-', path + 5);
	if (unlinkat(cas_store_dir_fd(store), path, 0) == 0)
		return 0;
	if (errno == ENOENT)
		return err_set(err, -ENOENT, "%s is not pinned", CAS_DIGEST_TEXT(digest));
	return err_set(err, -errno, "cannot unpin %s in store %s: %s", CAS_DIGEST_TEXT(digest),
		       cas_store_path(store), strerror(errno));
}
