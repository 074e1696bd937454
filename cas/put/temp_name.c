/* cas/put/temp_name.c - names of what grows beside its place in a user's directory */
#include "cas/put/temp_name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cas/base/io.h"
#include "cas/base/text_i.h"

#define PREFIX	 ".casbox-"
#define SALT	 "casbox temporary "
#define CHECK_SZ 16 /* digits */
#define BODY_MAX (CAS_TEMP_NAME_SZ - sizeof(PREFIX) - CHECK_SZ - 1)

static void check_of(const char *body, size_t len, char check[CHECK_SZ + 1])
{
	char text[sizeof(SALT) + BODY_MAX];

	(void)snprintf(text, sizeof(text), SALT "%.*s", (int)len, body);
	(void)snprintf(check, CHECK_SZ + 1, "%016" PRIx64, cas_text_hash(text, strlen(text)));
}

int cas_temp_name(const char *body, char out[CAS_TEMP_NAME_SZ])
{
	char check[CHECK_SZ + 1];

	if (strlen(body) > BODY_MAX)
		return -ENAMETOOLONG;
	check_of(body, strlen(body), check);
	(void)snprintf(out, CAS_TEMP_NAME_SZ, PREFIX "%.*s-%s", (int)BODY_MAX, body, check);
	return 0;
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
	check_of(body, len, check);
	return body[len] == '-' && strcmp(body + len + 1, check) == 0;
}
