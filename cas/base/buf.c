/* cas/base/buf.c - growable bytes */
#include "cas/base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_fini(struct buf *b)
{
	if (b == NULL)
		return;
	free(b->data);
	*b = (struct buf){0};
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	if (b->data)
		b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t extra)
{
	size_t need;
	size_t cap = b->cap ? b->cap : 64;
	char *data;

	if (__builtin_add_overflow(b->len, extra, &need) || __builtin_add_overflow(need, 1, &need))
		return -ENOMEM;
	if (need <= b->cap)
		return 0;
	while (cap < need) {
		if (__builtin_mul_overflow(cap, 2, &cap))
			return -ENOMEM;
	}
	data = realloc(b->data, cap);
	if (data == NULL)
		return -ENOMEM;
	b->data = data;
	b->cap = cap;
	return 0;
}

int buf_append(struct buf *b, const void *data, size_t len)
{
	int ret = buf_reserve(b, len);

	if (ret < 0)
		return ret;
	if (len > 0)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
	return 0;
}

int buf_append_str(struct buf *b, const char *s)
{
	return buf_append(b, s, strlen(s));
}

int buf_append_char(struct buf *b, char c)
{
	return buf_append(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_list again;
	int len;
	int ret;

	va_start(ap, fmt);
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	ret = len < 0 ? -EINVAL : buf_reserve(b, (size_t)len);
	if (ret == 0) {
		(void)vsnprintf(b->data + b->len, (size_t)len + 1, fmt, again);
		b->len += (size_t)len;
	}
	va_end(again);
	return ret;
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_steal(struct buf *b)
{
	char *data = b->data;

	*b = (struct buf){0};
	return data;
}
