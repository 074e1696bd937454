/* cas/base/err.h - what went wrong, in words */
#ifndef CAS_BASE_ERR_H
#define CAS_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

#define ERR_MSG_SZ  1024
#define ERR_BLOB_SZ 40

/*
 * Filled in at the place that knows, passed on by everybody else. Callers put it
 * on the stack as `struct err err = {0};`. @code is a negative errno, or 0 when
 * nothing was reported; @msg is empty then. One thread owns it.
 */
struct err {
	int code;
	/* The blob that was missing, for whoever can get it: see cas_err_missing. */
	bool names_blob;
	unsigned char blob[ERR_BLOB_SZ];
	char msg[ERR_MSG_SZ];
};

/* Record @code (a negative errno) and the message; returns @code. @err may be NULL. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put "context: " before a message that is already there; returns the recorded code. */
int err_context(struct err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * The message of @err, or the text of @code when nobody wrote one. The result lives
 * as long as @err.
 */
const char *err_text(struct err *err, int code);

/* The symbol of a negative or positive errno, as "ENOENT"; never NULL. */
const char *err_name(int code);

#endif
