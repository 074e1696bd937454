/* tests/lib/sigv4.c - is a request signed as AWS's services want it? */
#include "tests/lib/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * From the published description of the algorithm, step by step: the canonical request,
 * the string to sign, the key that is derived from the secret, the signature.
 */

#define SHA_SZ	      32
#define CANONICAL_MAX 16384
#define PARAMS_MAX    16

static void to_hex(const unsigned char *data, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++)
		(void)sprintf(out + 2 * i, "%02x", data[i]);
}

static void hmac(const void *key, size_t key_len, const char *text, unsigned char out[SHA_SZ])
{
	unsigned len = SHA_SZ;

	(void)HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), out,
		   &len);
}

const char *sigv4_header(const struct sigv4_request *request, const char *name, size_t len)
{
	for (size_t i = 0; i < request->nr_headers; i++) {
		const char *h = request->headers[i];

		if (strncasecmp(h, name, len) == 0 && h[len] == ':')
			return h + len + 1 + strspn(h + len + 1, " ");
	}
	return NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Parameters in order, each with its "=". */
static void add_query(const char *query, char *out)
{
	char copy[4096];
	char *params[PARAMS_MAX];
	char *save = NULL;
	size_t nr = 0;

	(void)snprintf(copy, sizeof(copy), "%s", query);
	for (char *p = strtok_r(copy, "&", &save); p && nr < PARAMS_MAX;
	     p = strtok_r(NULL, "&", &save))
		params[nr++] = p;
	qsort(params, nr, sizeof(params[0]), by_name);
	for (size_t i = 0; i < nr; i++) {
		(void)strcat(out, i ? "&" : "");
		(void)strcat(out, params[i]);
		if (!strchr(params[i], '='))
			(void)strcat(out, "=");
	}
}

static bool add_headers(const struct sigv4_request *request, const char *names, char *out)
{
	while (*names) {
		size_t len = strcspn(names, ";");
		const char *value = sigv4_header(request, names, len);

		if (value == NULL)
			return false;
		(void)strncat(out, names, len);
		(void)strcat(out, ":");
		(void)strcat(out, value);
		(void)strcat(out, "\n");
		names += len;
		names += *names == ';';
	}
	return true;
}

/* "Name=" up to a comma, from the Authorization header. */
static bool field(const char *auth, const char *name, char *out, size_t out_sz)
{
	const char *at = strstr(auth, name);
	size_t len;

	if (at == NULL)
		return false;
	at += strlen(name);
	len = strcspn(at, ", ");
	if (len >= out_sz)
		return false;
	memcpy(out, at, len);
	out[len] = '\0';
	return true;
}

static bool canonical(const struct sigv4_request *request, const char *signed_headers, char *out)
{
	const char *payload = sigv4_header(request, "x-amz-content-sha256", 20);

	(void)snprintf(out, CANONICAL_MAX, "%s\n%s\n", request->method, request->path);
	add_query(request->query, out);
	(void)strcat(out, "\n");
	if (!add_headers(request, signed_headers, out) || payload == NULL)
		return false;
	(void)strcat(out, "\n");
	(void)strcat(out, signed_headers);
	(void)strcat(out, "\n");
	(void)strcat(out, payload);
	return true;
}

static void sign(const char *secret, const char *date, const char *region, const char *text,
		 char hex[2 * SHA_SZ + 1])
{
	unsigned char one[SHA_SZ];
	unsigned char two[SHA_SZ];
	char start[300];

	(void)snprintf(start, sizeof(start), "AWS4%s", secret);
	hmac(start, strlen(start), date, one);
	hmac(one, SHA_SZ, region, two);
	hmac(two, SHA_SZ, "s3", one);
	hmac(one, SHA_SZ, "aws4_request", two);
	hmac(two, SHA_SZ, text, one);
	to_hex(one, SHA_SZ, hex);
}

bool sigv4_check(const struct sigv4_request *request, const char *key, const char *secret,
		 const char *region, const char **why)
{
	const char *auth = sigv4_header(request, "authorization", 13);
	const char *time = sigv4_header(request, "x-amz-date", 10);
	static _Thread_local char text[CANONICAL_MAX];
	unsigned char sum[SHA_SZ];
	char names[1024];
	char scope[300];
	char want[300];
	char got[2 * SHA_SZ + 1];
	char hex[2 * SHA_SZ + 1];
	char date[9] = "";

	*why = "no signature";
	if (!auth || !time || strncmp(auth, "AWS4-HMAC-SHA256 ", 17) != 0 ||
	    !field(auth, "Credential=", scope, sizeof(scope)) ||
	    !field(auth, "SignedHeaders=", names, sizeof(names)) ||
	    !field(auth, "Signature=", got, sizeof(got)))
		return false;
	memcpy(date, time, strlen(time) < 8 ? strlen(time) : 8);
	(void)snprintf(want, sizeof(want), "%s/%s/%s/s3/aws4_request", key, date, region);
	*why = "another scope";
	if (strcmp(scope, want) != 0)
		return false;
	*why = "a signed header is missing";
	if (!strstr(names, "host") || !strstr(names, "x-amz-date") ||
	    !canonical(request, names, text))
		return false;
	(void)EVP_Digest(text, strlen(text), sum, NULL, EVP_sha256(), NULL);
	to_hex(sum, SHA_SZ, hex);
	(void)snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", time,
		       strchr(scope, '/') + 1, hex);
	sign(secret, date, region, text, hex);
	*why = "another signature";
	return strcmp(hex, got) == 0;
}
