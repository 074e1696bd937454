/* fs/capture/blobs.c - small blobs that are put together */
#include "fs/capture/blobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/put/put.h"
#include "fs/capture/crew.h"

#define CREW_MIN 4

static void drop_all(struct fs_blobs *b)
{
	for (size_t i = 0; i < b->nr; i++)
		buf_fini(&b->blobs[i].raw);
	b->nr = 0;
	b->bytes = 0;
}

struct putting {
	struct fs_blobs *b;
	struct cas_store *store;
};

static void put_one(void *ctx, size_t i)
{
	const struct putting *p = ctx;
	struct fs_blob *blob = &p->b->blobs[i];
	struct err err = {0};

	blob->ret = cas_put_bytes(p->store, blob->raw.data, blob->raw.len, NULL, &err);
	blob->why = blob->ret < 0 ? strdup(err_text(&err, blob->ret)) : NULL;
}

int fs_blobs_put(struct fs_blobs *b, struct cas_store *store, struct fs_crew *crew, struct err *err)
{
	struct putting p = {b, store};
	int ret = 0;

	/* To wake somebody up takes as long as to put one. */
	fs_crew_run(b->nr >= CREW_MIN ? crew : NULL, b->nr, put_one, &p);
	for (size_t i = 0; i < b->nr; i++) {
		struct fs_blob *blob = &b->blobs[i];

		if (blob->ret < 0 && ret == 0)
			ret = err_set(err, blob->ret, "%s",
				      blob->why ? blob->why : strerrordesc_np(-blob->ret));
		free(blob->why);
	}
	drop_all(b);
	return ret;
}

int fs_blobs_add(struct fs_blobs *b, const struct cas_digest *digest, struct buf *raw)
{
	if (raw->len == 0 || fs_blobs_find(b, digest)) {
		buf_fini(raw);
		return 0;
	}
	if (b->nr == FS_BLOBS_MAX)
		return -ENOSPC;
	b->blobs[b->nr++] = (struct fs_blob){.digest = *digest, .raw = *raw};
	b->bytes += raw->len;
	*raw = (struct buf){0};
	return 0;
}

const struct buf *fs_blobs_find(const struct fs_blobs *b, const struct cas_digest *digest)
{
	for (size_t i = 0; i < b->nr; i++) {
		if (cas_digest_equal(&b->blobs[i].digest, digest))
			return &b->blobs[i].raw;
	}
	return NULL;
}

bool fs_blobs_are_full(const struct fs_blobs *b)
{
	return b->nr == FS_BLOBS_MAX || b->bytes >= FS_BLOBS_BYTES;
}

void fs_blobs_fini(struct fs_blobs *b)
{
	drop_all(b);
}
