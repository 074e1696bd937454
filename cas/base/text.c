/* cas/base/text.c - names as they may be printed, UTF-8, and a quick hash */
#include "cas/base/text_i.h"

#include <stdio.h>
#include <string.h>

/* The length of the character at @s, 0 when there is no valid one. */
static size_t utf8_char(const unsigned char *s, size_t len)
{
	unsigned char lead = s[0];
	uint32_t low = 0x80;
	uint32_t high = 0xbf;
	size_t need;

	if (lead < 0x80)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		need = 2;
	else if ((lead & 0xf0) == 0xe0)
		need = 3;
	else if (lead >= 0xf0 && lead <= 0xf4)
		need = 4;
	else
		return 0;
	if (need > len)
		return 0;
	/* The second byte's range is what keeps out overlong forms and surrogates. */
	if (lead == 0xe0)
		low = 0xa0;
	else if (lead == 0xed)
		high = 0x9f;
	else if (lead == 0xf0)
		low = 0x90;
	else if (lead == 0xf4)
		high = 0x8f;
	if (s[1] < low || s[1] > high)
		return 0;
	for (size_t i = 2; i < need; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	return need;
}

bool cas_utf8_valid(const char *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t got = utf8_char((const unsigned char *)s + i, len - i);

		if (got == 0)
			return false;
		i += got;
	}
	return true;
}

struct cas_text cas_text_escape(const char *s, size_t len)
{
	struct cas_text out = {0};
	/* Every byte may become four, and the dots and the NUL need room. */
	size_t keep = (sizeof(out.s) - 4) / 4;
	size_t pos = 0;
	size_t i = 0;

	if (len > keep) {
		i = len - keep;
		while (i < len && ((unsigned char)s[i] & 0xc0) == 0x80)
			i++;
		memcpy(out.s, "...", 3);
		pos = 3;
	}
	while (i < len) {
		unsigned char c = (unsigned char)s[i];
		size_t got = utf8_char((const unsigned char *)s + i, len - i);

		if (got == 0 || c < 0x20 || c == 0x7f || c == '\\') {
			pos += (size_t)snprintf(out.s + pos, sizeof(out.s) - pos, "\\x%02x", c);
			i++;
			continue;
		}
		memcpy(out.s + pos, s + i, got);
		pos += got;
		i += got;
	}
	return out;
}

/* FNV-1a, and a last mix that spreads short names over all digits. */
uint64_t cas_text_hash(const char *s, size_t len)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
	h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
	h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
	return h ^ (h >> 32);
}
