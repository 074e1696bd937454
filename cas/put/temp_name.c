/* cas/put/temp_name.c - names of what grows beside its place in a user's directory */
#include "cas/put/temp_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cas/base/io.h"
#include "cas/digest.h"
#include "cas/hash.h"

#define PREFIX	 ".casbox-"
#define SALT	 "casbox temporary "
#define CHECK_SZ 16 /* digits */
#define BODY_MAX (CAS_TEMP_NAME_SZ - sizeof(PREFIX) - CHECK_SZ - 1)

static int check_of(const char *body, size_t len, char check[CHECK_SZ + 1])
{
	char text[sizeof(SALT) + BODY_MAX];
	char hex[CAS_HASH_HEX_SZ + 1];
	struct cas_digest digest;
	int ret;

	(void)snprintf(text, sizeof(text), SALT "%.*s", (int)len, body);
	ret = cas_hash_bytes(text, strlen(text), &digest);
	if (ret < 0)
		return ret;
	cas_hash_format(digest.hash, hex);
	memcpy(check, hex, CHECK_SZ);
	check[CHECK_SZ] = '\0';
	return 0;
}

int cas_temp_name(const char *body, char out[CAS_TEMP_NAME_SZ])
{
	char check[CHECK_SZ + 1];
	int ret = strlen(body) > BODY_MAX ? -ENAMETOOLONG : check_of(body, strlen(body), check);

	if (ret == 0)
		(void)snprintf(out, CAS_TEMP_NAME_SZ, PREFIX "%.*s-%s", (int)BODY_MAX, body, check);
	return ret;
}

int cas_temp_name_random(const char *kind, char out[CAS_TEMP_NAME_SZ])
{
	char body[BODY_MAX + 1];
	char random[17];
	int ret = io_random_hex(random, 8);

	if (ret < 0)
		return ret;
	(void)snprintf(body, sizeof(body), "%.16s-%s", kind, random);
	return cas_temp_name(body, out);
}

bool cas_temp_name_is(const char *name)
{
	const char *body = name + sizeof(PREFIX) - 1;
	char check[CHECK_SZ + 1];
	size_t len;

	if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
		return false;
	len = strlen(body);
	if (len < CHECK_SZ + 2 || len - CHECK_SZ - 1 > BODY_MAX)
		return false;
	len -= CHECK_SZ + 1;
	return body[len] == '-' && check_of(body, len, check) == 0 &&
	       strcmp(body + len + 1, check) == 0;
}
