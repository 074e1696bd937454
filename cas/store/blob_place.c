/* cas/store/blob_place.c - where a blob lies, for people */
#include "cas/store/blob_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "cas/store/store_i.h"

/* The path of @below/HH/HASH in @top if there is a file of that size; *out stays NULL if not. */
static int look(const char *top, const char *below, const struct cas_digest *digest, char **out)
{
	char hh_hash[CAS_LAYOUT_PATH_SZ];
	struct stat st;
	char *path;

	cas_layout_path(digest->hash, hh_hash);
	if (asprintf(&path, "%s/%s/%s", top, below, hh_hash) < 0)
		return -ENOMEM;
	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == digest->size)
		*out = path;
	else
		free(path);
	return 0;
}

static bool is_hashed(struct cas_store *store, const struct cas_digest *digest,
		      const struct cas_stamp *now)
{
	const struct cas_catalog *c = store->catalog;
	struct cas_stamp then;

	return c->ops->blob_find(c->ctx, digest, &then) == 1 && then.ino == now->ino &&
	       then.size == now->size && then.mtime_ns == now->mtime_ns &&
	       then.ctime_ns == now->ctime_ns;
}

int cas_store_place(struct cas_store *store, const struct cas_digest *digest,
		    struct cas_blob_place *out)
{
	const char *top = store->blobs_path ? store->blobs_path : store->path;
	struct cas_blob_place got = {0};
	struct cas_store_blob blob;
	int ret = cas_store_look(store, digest->hash, &blob);

	if (ret == 1 && blob.digest.size == digest->size) {
		ret = look(top, "cas", digest, &got.path);
		got.blocks = blob.blocks;
		got.mode = blob.mode;
		got.mtime_ns = blob.stamp.mtime_ns;
		got.hashed = is_hashed(store, digest, &blob.stamp);
	} else if (ret == 1) {
		ret = 0;
	}
	if (ret == 0)
		ret = look(store->path, "spool", digest, &got.spool);
	if (ret == 0)
		ret = look(store->path, "links/0444", digest, &got.link_0444);
	if (ret == 0)
		ret = look(store->path, "links/0555", digest, &got.link_0555);
	if (ret < 0)
		cas_blob_place_fini(&got);
	else
		*out = got;
	return ret;
}

void cas_blob_place_fini(struct cas_blob_place *place)
{
	free(place->path);
	free(place->spool);
	free(place->link_0444);
	free(place->link_0555);
	*place = (struct cas_blob_place){0};
}
