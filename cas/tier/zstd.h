/* cas/tier/zstd.h - blobs that travel compressed */
#ifndef CAS_TIER_ZSTD_H
#define CAS_TIER_ZSTD_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct cas_sink;
struct err;

/* A stream that is being decompressed. One thread drives it. */
struct tier_unzstd;

int tier_unzstd_new(struct tier_unzstd **out);
void tier_unzstd_free(struct tier_unzstd *z);
/* What @data holds of the original, into @sink. -EUCLEAN: this is no zstd, or takes > 32 MiB. */
int tier_unzstd_feed(struct tier_unzstd *z, const void *data, size_t len,
		     const struct cas_sink *sink, struct err *err);

/* A whole frame of an original of @size bytes, which is appended. -EBADMSG: it is another. */
int tier_unzstd_bytes(const void *data, size_t len, size_t size, struct buf *out);

/* A stream that is being compressed. */
struct tier_zstd;

int tier_zstd_new(struct tier_zstd **out);
void tier_zstd_free(struct tier_zstd *z);
/* Append what is ready to @out; @end: all of it. */
int tier_zstd_feed(struct tier_zstd *z, const void *data, size_t len, bool end, struct buf *out);

#endif
