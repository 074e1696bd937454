/* fs/backing/notices.c - what fanotify tells of names in directories */
#include "fs/backing/notices.h"

#include <fcntl.h>
#include <string.h>
#include <sys/fanotify.h>

#define FID_SZ	  sizeof(struct fanotify_event_info_fid)
#define HANDLE_SZ sizeof(struct file_handle)

/* Headers of 4 bytes and less are aligned to those, in place. */
_Static_assert(_Alignof(struct fanotify_event_info_fid) <= 4, "a record may be read in place");
_Static_assert(_Alignof(struct file_handle) <= 4, "a handle may be read in place");

/* One record of an event, @len bytes. */
static bool take_record(const char *at, size_t len, struct fs_notice *out)
{
	const struct fanotify_event_info_fid *info = (const void *)at;
	const struct file_handle *dir = (const void *)info->handle;
	const char *name;

	if (info->hdr.info_type != FAN_EVENT_INFO_TYPE_DFID_NAME || len < FID_SZ + HANDLE_SZ ||
	    dir->handle_bytes >= len - FID_SZ - HANDLE_SZ)
		return false;
	name = (const char *)dir->f_handle + dir->handle_bytes;
	if (memchr(name, '\0', (size_t)(at + len - name)) == NULL)
		return false;
	out->dir = dir;
	out->name = name;
	return true;
}

static void take_records(const char *at, const char *end, struct fs_notice *out)
{
	while ((size_t)(end - at) >= sizeof(struct fanotify_event_info_header)) {
		const struct fanotify_event_info_header *hdr = (const void *)at;

		if (hdr->len < sizeof(*hdr) || hdr->len > end - at || hdr->len % 4 != 0 ||
		    take_record(at, hdr->len, out))
			return;
		at += hdr->len;
	}
}

bool fs_notices_next(struct fs_notices *notices, struct fs_notice *out)
{
	struct fanotify_event_metadata e;

	while (notices->left >= sizeof(e)) {
		const char *at = notices->at;

		memcpy(&e, at, sizeof(e));
		if (e.event_len < sizeof(e) || e.event_len > notices->left || e.event_len % 4 != 0)
			break;
		notices->at += e.event_len;
		notices->left -= e.event_len;
		if (e.vers != FANOTIFY_METADATA_VERSION || e.metadata_len < sizeof(e) ||
		    e.metadata_len > e.event_len || e.metadata_len % 4 != 0)
			continue;
		*out = (struct fs_notice){.mask = e.mask};
		take_records(at + e.metadata_len, at + e.event_len, out);
		return true;
	}
	return false;
}
