/* cas/reapi/tree_read.c - the Directories in a Tree, as they are */
/*
 * A Tree is a stream of records, a tag and a length before each Directory. Decoding it as a
 * message and encoding the parts anew might give them other digests than those by which they
 * are named, so the records are cut by hand.
 */
#include "cas/reapi/tree_read.h"

#include <errno.h>
#include <stdint.h>

#include "cas/base/err.h"

#define TAG_ROOT  0x0a
#define TAG_CHILD 0x12

/* One varint from *at; false: there is none. */
static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
		uint8_t byte = *(*at)++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*out = value;
			return true;
		}
	}
	return false;
}

int cas_tree_each(const void *data, size_t len,
		  int (*each)(void *ctx, bool is_root, const void *raw, size_t raw_len), void *ctx,
		  struct err *err)
{
	const uint8_t *at = data;
	const uint8_t *end = at + len;
	bool has_root = false;
	int ret = 0;

	while (ret == 0 && at < end) {
		uint8_t tag = *at++;
		uint64_t size;

		if (tag != TAG_ROOT && tag != TAG_CHILD)
			return err_set(err, -EUCLEAN, "a Tree with an unknown field");
		if (tag == TAG_ROOT && has_root)
			return err_set(err, -EUCLEAN, "a Tree with two roots");
		if (!read_varint(&at, end, &size) || size > (uint64_t)(end - at))
			return err_set(err, -EUCLEAN, "a Tree that is cut off");
		has_root = has_root || tag == TAG_ROOT;
		ret = each(ctx, tag == TAG_ROOT, at, (size_t)size);
		at += size;
	}
	return ret;
}
