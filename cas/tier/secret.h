/* cas/tier/secret.h - credentials, which come from files only */
#ifndef CAS_TIER_SECRET_H
#define CAS_TIER_SECRET_H

#include "cas/base/buf.h"

struct err;
struct tier_url;

/*
 * The value of the URL's option @name, when it is there, is the path of a file whose first
 * line is a secret. Copies the path to *path (malloc'ed, NULL when there is no such
 * option), makes sure that it can be read, and from here on the process leaves no core
 * and cannot be looked into by others of its user (PR_SET_DUMPABLE).
 * -ENOENT, -EACCES; -EINVAL: empty, or holds what is no printable ASCII.
 */
int tier_secret_open(const struct tier_url *url, const char *name, char **path, struct err *err);

/*
 * The first line, read anew each time, so that a file may be replaced when its secret is
 * renewed. End it with tier_secret_wipe, whatever the result.
 */
int tier_secret_read(const char *path, struct buf *out, struct err *err);
/* The value after "name" and '=' on a line of its own (blanks around each are fine). -ENOENT. */
int tier_secret_read_key(const char *path, const char *name, struct buf *out, struct err *err);

void tier_secret_wipe(struct buf *secret);
#define auto_secret __attribute__((cleanup(tier_secret_wipe)))

#endif
