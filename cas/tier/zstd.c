/* cas/tier/zstd.c - blobs that travel compressed */
#include "cas/tier/zstd.h"

#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/tier.h"

/* More memory than this is not given to a stream, whatever it asks for. */
#define WINDOW_LOG_MAX 25
#define LEVEL	       1

struct tier_unzstd {
	ZSTD_DCtx *ctx;
	size_t room;
	char *out; /* [room] */
};

struct tier_zstd {
	ZSTD_CCtx *ctx;
};

int tier_unzstd_new(struct tier_unzstd **out)
{
	struct tier_unzstd *z = calloc(1, sizeof(*z));

	if (z == NULL)
		return -ENOMEM;
	z->ctx = ZSTD_createDCtx();
	z->room = ZSTD_DStreamOutSize();
	z->out = malloc(z->room);
	if (z->ctx == NULL || z->out == NULL ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(z->ctx, ZSTD_d_windowLogMax, WINDOW_LOG_MAX))) {
		tier_unzstd_free(z);
		return -ENOMEM;
	}
	*out = z;
	return 0;
}

void tier_unzstd_free(struct tier_unzstd *z)
{
	if (z == NULL)
		return;
	(void)ZSTD_freeDCtx(z->ctx);
	free(z->out);
	free(z);
}

int tier_unzstd_feed(struct tier_unzstd *z, const void *data, size_t len,
		     const struct cas_sink *sink, struct err *err)
{
	ZSTD_inBuffer in = {data, len, 0};
	bool full;

	do {
		ZSTD_outBuffer out = {z->out, z->room, 0};
		size_t got = ZSTD_decompressStream(z->ctx, &out, &in);
		int ret;

		if (ZSTD_isError(got))
			return err_set(err, -EUCLEAN, "cannot decompress it: %s",
				       ZSTD_getErrorName(got));
		ret = out.pos > 0 ? sink->write(sink->ctx, z->out, out.pos, err) : 0;
		if (ret != 0)
			return ret;
		full = out.pos == out.size;
	} while (in.pos < in.size || full);
	return 0;
}

int tier_unzstd_bytes(const void *data, size_t len, size_t size, struct buf *out)
{
	size_t got;
	int ret = buf_reserve(out, size);

	if (ret < 0)
		return ret;
	got = ZSTD_decompress(out->data + out->len, size, data, len);
	if (ZSTD_isError(got) || got != size)
		return -EBADMSG;
	out->len += size;
	out->data[out->len] = '\0';
	return 0;
}

int tier_zstd_new(struct tier_zstd **out)
{
	struct tier_zstd *z = calloc(1, sizeof(*z));

	if (z == NULL)
		return -ENOMEM;
	z->ctx = ZSTD_createCCtx();
	if (z->ctx == NULL ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(z->ctx, ZSTD_c_compressionLevel, LEVEL))) {
		tier_zstd_free(z);
		return -ENOMEM;
	}
	*out = z;
	return 0;
}

void tier_zstd_free(struct tier_zstd *z)
{
	if (z == NULL)
		return;
	(void)ZSTD_freeCCtx(z->ctx);
	free(z);
}

int tier_zstd_feed(struct tier_zstd *z, const void *data, size_t len, bool end, struct buf *to)
{
	ZSTD_inBuffer in = {data, len, 0};
	size_t left;

	do {
		ZSTD_outBuffer out;
		int ret = buf_reserve(to, ZSTD_CStreamOutSize());

		if (ret < 0)
			return ret;
		out = (ZSTD_outBuffer){to->data + to->len, ZSTD_CStreamOutSize(), 0};
		left = ZSTD_compressStream2(z->ctx, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return -EIO;
		to->len += out.pos;
		to->data[to->len] = '\0';
	} while (in.pos < in.size || (end && left > 0));
	return 0;
}
