/* cas/digest.c - the name of a blob: hash and size */
#include "cas/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct cas_digest cas_digest_empty = {
	.hash = {0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4,
		 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b,
		 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55},
	.size = 0,
};

/*
 * One more than the value of a lower-case hexadecimal digit, 0: it is none. Without branches:
 * what a hash has next no processor foresees.
 */
static const uint8_t hex_digit[256] = {
	['0'] = 1,  ['1'] = 2,	['2'] = 3,  ['3'] = 4,	['4'] = 5,  ['5'] = 6,
	['6'] = 7,  ['7'] = 8,	['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
	['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

int cas_hash_parse(const char *text, size_t len, uint8_t out[CAS_HASH_SZ])
{
	uint8_t hash[CAS_HASH_SZ];
	unsigned bad = 0;

	if (len != CAS_HASH_HEX_SZ)
		return -EINVAL;
	for (size_t i = 0; i < CAS_HASH_SZ; i++) {
		unsigned high = hex_digit[(unsigned char)text[2 * i]] - 1U;
		unsigned low = hex_digit[(unsigned char)text[2 * i + 1]] - 1U;

		bad |= high | low;
		hash[i] = (uint8_t)(high << 4 | low);
	}
	if (bad > 0xf)
		return -EINVAL;
	memcpy(out, hash, sizeof(hash));
	return 0;
}

/* All of @text as a decimal number up to INT64_MAX, without sign or leading zeros. */
static int parse_size(const char *text, uint64_t *out)
{
	uint64_t size = 0;

	if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0'))
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(size, 10, &size) ||
		    __builtin_add_overflow(size, (uint64_t)(*text - '0'), &size) ||
		    size > INT64_MAX)
			return -EINVAL;
	}
	*out = size;
	return 0;
}

int cas_digest_parse(const char *text, struct cas_digest *out)
{
	struct cas_digest d;
	size_t len = strcspn(text, "/-:");

	if (text[len] == '\0' || cas_hash_parse(text, len, d.hash) < 0 ||
	    parse_size(text + len + 1, &d.size) < 0)
		return -EINVAL;
	if ((d.size == 0) != (memcmp(d.hash, cas_digest_empty.hash, CAS_HASH_SZ) == 0))
		return -EINVAL;
	*out = d;
	return 0;
}

void cas_hash_format(const uint8_t hash[CAS_HASH_SZ], char out[CAS_HASH_HEX_SZ + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < CAS_HASH_SZ; i++) {
		out[2 * i] = digits[hash[i] >> 4];
		out[2 * i + 1] = digits[hash[i] & 15];
	}
	out[CAS_HASH_HEX_SZ] = '\0';
}

const char *cas_digest_format(const struct cas_digest *d, char sep, char out[CAS_DIGEST_STR_SZ])
{
	cas_hash_format(d->hash, out);
	(void)snprintf(out + CAS_HASH_HEX_SZ, CAS_DIGEST_STR_SZ - CAS_HASH_HEX_SZ, "%c%" PRIu64,
		       sep, d->size);
	return out;
}

struct cas_digest_str cas_digest_str(const struct cas_digest *d)
{
	struct cas_digest_str str;

	(void)cas_digest_format(d, '/', str.s);
	return str;
}

bool cas_digest_equal(const struct cas_digest *a, const struct cas_digest *b)
{
	return a->size == b->size && memcmp(a->hash, b->hash, CAS_HASH_SZ) == 0;
}

int cas_digest_compare(const struct cas_digest *a, const struct cas_digest *b)
{
	int order = memcmp(a->hash, b->hash, CAS_HASH_SZ);

	return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

bool cas_digest_is_empty(const struct cas_digest *d)
{
	return cas_digest_equal(d, &cas_digest_empty);
}
