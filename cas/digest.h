/* cas/digest.h - the name of a blob: hash and size */
#ifndef CAS_DIGEST_H
#define CAS_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAS_HASH_SZ	32 /* SHA-256, the only function of store version 1 */
#define CAS_HASH_HEX_SZ (2 * CAS_HASH_SZ)
/* 64 digits, a separator, at most 19 digits of size, NUL */
#define CAS_DIGEST_STR_SZ (CAS_HASH_HEX_SZ + 1 + 19 + 1)

/* Plain value; @size is in bytes and never above INT64_MAX (REAPI: int64 size_bytes). */
struct cas_digest {
	uint8_t hash[CAS_HASH_SZ];
	uint64_t size;
};

/* The digest of no bytes: the empty blob and the empty Directory. */
extern const struct cas_digest cas_digest_empty;

/*
 * Parse all of @text as HASH/SIZE, HASH-SIZE or HASH:SIZE: 64 lower-case hexadecimal
 * digits, then a decimal size without sign or leading zeros.
 * -EINVAL: anything else, and the empty hash with a size or a size 0 with another hash.
 */
int cas_digest_parse(const char *text, struct cas_digest *out);

/* Parse exactly @len bytes of lower-case hexadecimal; -EINVAL unless they are 64 digits. */
int cas_hash_parse(const char *text, size_t len, uint8_t out[CAS_HASH_SZ]);

/* Print as HASH<sep>SIZE; returns @out. */
const char *cas_digest_format(const struct cas_digest *d, char sep, char out[CAS_DIGEST_STR_SZ]);

/* Print the 64 digits and a NUL. */
void cas_hash_format(const uint8_t hash[CAS_HASH_SZ], char out[CAS_HASH_HEX_SZ + 1]);

/* For messages: HASH/SIZE in a buffer of the caller's expression (valid in that statement). */
struct cas_digest_str {
	char s[CAS_DIGEST_STR_SZ];
};
struct cas_digest_str cas_digest_str(const struct cas_digest *d);
#define CAS_DIGEST_TEXT(d) (cas_digest_str(d).s)

bool cas_digest_equal(const struct cas_digest *a, const struct cas_digest *b);
int cas_digest_compare(const struct cas_digest *a, const struct cas_digest *b);
bool cas_digest_is_empty(const struct cas_digest *d);

#endif
