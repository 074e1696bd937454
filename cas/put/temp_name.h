/* cas/put/temp_name.h - names of what grows beside its place in a user's directory */
#ifndef CAS_PUT_TEMP_NAME_H
#define CAS_PUT_TEMP_NAME_H

#include <stdbool.h>

#define CAS_TEMP_NAME_SZ 64

/*
 * `.casbox-BODY-CHECK`: the check, 16 digits of a hash over the body, tells such a name
 * from one of the user's own. A killed process leaves what is under it behind; ingest
 * leaves that out. @body is at most 38 bytes without a slash. 0 or negative errno.
 */
int cas_temp_name(const char *body, char out[CAS_TEMP_NAME_SZ]);

/* `.casbox-KIND-RANDOM-CHECK` with 16 random digits. */
int cas_temp_name_random(const char *kind, char out[CAS_TEMP_NAME_SZ]);

bool cas_temp_name_is(const char *name);

#endif
