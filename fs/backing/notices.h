/* fs/backing/notices.h - what fanotify tells of names in directories */
#ifndef FS_BACKING_NOTICES_H
#define FS_BACKING_NOTICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_handle;

/*
 * Bytes that were read from a group with FAN_REPORT_DFID_NAME. The kernel aligns each event
 * to 4 bytes, for names take what room they need: less than the 8 that struct
 * fanotify_event_metadata wants, so that one is never to be read in place.
 */
struct fs_notices {
	const char *at; /* aligned to 4 bytes, as the buffer has to be */
	size_t left;
};

/* What it points to is in the bytes. */
struct fs_notice {
	uint64_t mask;
	const struct file_handle *dir; /* NULL: it names nothing, as an overflow does */
	const char *name;	       /* in @dir; NULL with it */
};

/* The next one; false: there is none, or the rest is no event. */
bool fs_notices_next(struct fs_notices *notices, struct fs_notice *out);

#endif
