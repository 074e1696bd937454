/* cas/base/err.c - what went wrong, in words */
#include "cas/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err == NULL)
		return code;
	err->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	return code;
}

int err_context(struct err *err, int code, const char *fmt, ...)
{
	char old[ERR_MSG_SZ];
	char head[ERR_MSG_SZ];
	va_list ap;

	if (err == NULL)
		return code;
	(void)snprintf(old, sizeof(old), "%s", err_text(err, code));
	va_start(ap, fmt);
	(void)vsnprintf(head, sizeof(head), fmt, ap);
	va_end(ap);
	err->code = code;
	/* Two bounded strings may not fit together; the end of the older one is cut. */
	(void)snprintf(err->msg, sizeof(err->msg), "%.500s: %.500s", head, old);
	return code;
}

const char *err_text(struct err *err, int code)
{
	if (err == NULL)
		return strerrordesc_np(code < 0 ? -code : code);
	if (err->msg[0] == '\0') {
		const char *text = strerrordesc_np(code < 0 ? -code : code);

		err->code = code;
		(void)snprintf(err->msg, sizeof(err->msg), "%s", text ? text : "unknown error");
	}
	return err->msg;
}
