/* cas/base/mountinfo.h - what is mounted where, as the kernel lists it */
#ifndef CAS_BASE_MOUNTINFO_H
#define CAS_BASE_MOUNTINFO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cas/base/buf.h"

/* One listing. Zero-initialize; end with mountinfo_fini. */
struct mountinfo {
	struct buf text;
	char *next;
};

/* One mount; the strings belong to the listing, and their \ooo are undone. */
struct mountinfo_entry {
	uint64_t id; /* as STATX_MNT_ID tells it */
	dev_t dev;
	const char *root; /* what of the filesystem is mounted */
	const char *path; /* where */
	const char *type;
};

/*
 * Read all of @fd, an open /proc/PID/mountinfo, which keeps that mount namespace and can be
 * read when the process is gone. No path is resolved, so nothing here waits for a mount.
 */
int mountinfo_read(int fd, struct mountinfo *out);
/* The same of our own. */
int mountinfo_read_self(struct mountinfo *out);
void mountinfo_fini(struct mountinfo *m);

/* The next one, in the order of mounting as a rule; false: that was the last. */
bool mountinfo_next(struct mountinfo *m, struct mountinfo_entry *out);

#endif
