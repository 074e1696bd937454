/* cas/base/text_i.h - names as they may be printed, UTF-8, and a quick hash */
#ifndef CAS_BASE_TEXT_I_H
#define CAS_BASE_TEXT_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAS_TEXT_SZ 480

/* Strict: no surrogates, no overlong forms, nothing above U+10FFFF. */
bool cas_utf8_valid(const char *s, size_t len);

/*
 * A name or path for a message: control characters, backslashes and bytes that are no
 * UTF-8 become \xHH; of a long one the end is kept, after "...".
 */
struct cas_text {
	char s[CAS_TEXT_SZ];
};
struct cas_text cas_text_escape(const char *s, size_t len);
#define CAS_TEXT(str) (cas_text_escape((str), strlen(str)).s)

/* 64 bits that differ where names do, unless somebody meant them not to. */
uint64_t cas_text_hash(const char *s, size_t len);

#endif
