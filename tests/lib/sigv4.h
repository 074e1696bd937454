/* tests/lib/sigv4.h - is a request signed as AWS's services want it? */
#ifndef TESTS_LIB_SIGV4_H
#define TESTS_LIB_SIGV4_H

#include <stdbool.h>
#include <stddef.h>

/* A request as it came; @headers are lines "Name: value". */
struct sigv4_request {
	const char *method;
	const char *path;
	const char *query; /* as sent, without '?'; "" when there is none */
	const char *const *headers;
	size_t nr_headers;
};

/* Signature version 4 of service "s3". *why says what is wrong. */
bool sigv4_check(const struct sigv4_request *request, const char *key, const char *secret,
		 const char *region, const char **why);

/* The value of a header, or NULL. */
const char *sigv4_header(const struct sigv4_request *request, const char *name, size_t len);

#endif
