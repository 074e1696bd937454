/* cas/reapi/directory_store.c - Directories in and out of the store */
#include "cas/reapi/directory.h"

#include <errno.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/put/put.h"
#include "cas/reapi/directory_i.h"
#include "cas/store/store.h"

int cas_directory_load_raw(struct cas_store *store, const struct cas_digest *digest,
			   struct buf *raw, struct cas_directory **out, struct err *err)
{
	int ret = 0;

	buf_reset(raw);
	if (!cas_digest_is_empty(digest))
		ret = cas_store_read_blob(store, digest, CAS_DIRECTORY_MAX, raw, err);
	if (ret == -EFBIG)
		return err_set(err, -EUCLEAN, "%s is too large for a Directory",
			       CAS_DIGEST_TEXT(digest));
	if (ret < 0)
		return ret;
	ret = cas_directory_decode(raw->data, raw->len, out, err);
	if (ret == -EUCLEAN)
		return err_context(err, ret, "%s is no Directory", CAS_DIGEST_TEXT(digest));
	return ret;
}

int cas_directory_load(struct cas_store *store, const struct cas_digest *digest,
		       struct cas_directory **out, struct err *err)
{
	auto_buf struct buf raw = {0};

	return cas_directory_load_raw(store, digest, &raw, out, err);
}

int cas_directory_put(struct cas_store *store, struct cas_directory *dir, struct cas_digest *out,
		      struct err *err)
{
	auto_buf struct buf raw = {0};
	int ret = cas_directory_encode(dir, &raw, out, err);

	/* Never written: every store has the empty blob. */
	if (ret < 0 || raw.len == 0)
		return ret;
	return cas_put_bytes(store, raw.data, raw.len, out, err);
}
