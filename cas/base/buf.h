/* cas/base/buf.h - growable bytes */
#ifndef CAS_BASE_BUF_H
#define CAS_BASE_BUF_H

#include <stddef.h>

/*
 * @data holds @len bytes and, once anything was appended, a NUL after them that
 * @len does not count. Zero-initialize; one thread owns it.
 */
struct buf {
	char *data;
	size_t len;
	size_t cap;
};

void buf_fini(struct buf *b);
#define auto_buf __attribute__((cleanup(buf_fini)))

/* Forget the content, keep the memory. */
void buf_reset(struct buf *b);

/* All return 0 or -ENOMEM, and leave the content as it was on failure. */
int buf_reserve(struct buf *b, size_t extra);
int buf_append(struct buf *b, const void *data, size_t len);
int buf_append_str(struct buf *b, const char *s);
int buf_append_char(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The content as a string ("" when empty); valid until the next change. */
const char *buf_str(const struct buf *b);

/* Hand the memory over (NULL when nothing was appended); the buffer is empty afterwards. */
char *buf_steal(struct buf *b);

#endif
