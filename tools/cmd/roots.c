/* tools/cmd/roots.c - what live sandboxes, their results and pins need */
#include "tools/cmd/roots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/control/roots.h"

static int each_and_more(void *ctx,
			 int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
			 void *arg, struct err *err)
{
	const struct roots_more *m = ctx;
	int ret = control_roots_each(m->store, root, arg, err);

	for (size_t i = 0; i < m->nr && ret == 0; i++)
		ret = root(arg, &m->more[i].digest, m->more[i].is_directory);
	return ret;
}

/* Nobody makes a sandbox without a daemon, but pins may come at any time, between batches. */
static int freeze(void *ctx, bool *changed)
{
	struct roots_more *m = ctx;
	int64_t pins_ns = control_roots_pins_ns(m->store);

	*changed = m->pins_ns != pins_ns;
	m->pins_ns = pins_ns;
	return 0;
}

static void thaw(void *ctx)
{
	(void)ctx;
}

struct cas_evict_roots roots_and_more(struct roots_more *more)
{
	more->pins_ns = -1;
	return (struct cas_evict_roots){each_and_more, freeze, thaw, more};
}

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

static int pin_there(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	int ret = check_there(store, digest, err);

	if (ret == 0)
		ret = is_directory(store, digest, err);
	return ret >= 0 ? write_pin(store, digest, ret, err) : ret;
}

int roots_pin(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	int ret;

	if (cas_store_is_read_only(store))
		return err_set(err, -EROFS, "cannot pin %s: store %s is read-only",
			       CAS_DIGEST_TEXT(digest), cas_store_path(store));
	/* Between two batches of an eviction: what is here then is seen by the next one. */
	ret = cas_evict_bar(store);
	if (ret < 0)
		return err_set(err, ret, "cannot pin %s while blobs are being evicted: %s",
			       CAS_DIGEST_TEXT(digest), strerror(-ret));
	ret = pin_there(store, digest, err);
	cas_evict_unbar(store);
	return ret;
}

int roots_unpin(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	char path[CAS_DIGEST_STR_SZ + 5] = "pins/";

	(void)cas_digest_format(digest, '-', path + 5);
	if (unlinkat(cas_store_dir_fd(store), path, 0) == 0)
		return 0;
	if (errno == ENOENT)
		return err_set(err, -ENOENT, "%s is not pinned", CAS_DIGEST_TEXT(digest));
	return err_set(err, -errno, "cannot unpin %s: %s", CAS_DIGEST_TEXT(digest),
		       strerror(errno));
}
