/* fs/engine/meter.h - how much lies in a filesystem that is a sandbox's alone, at its most */
#ifndef FS_ENGINE_METER_H
#define FS_ENGINE_METER_H

#include <stdint.h>

struct err;

struct fs_usage {
	uint64_t bytes;
	uint64_t files;
};

/* What is in use at @fd, of a filesystem or of the project that its directory belongs to. */
int fs_usage_get(int fd, struct fs_usage *out, struct err *err);

/*
 * Nothing tells how much there was at most: a thread looks every ten milliseconds, while
 * there is anything to look at.
 */
struct fs_meters; /* any thread */
struct fs_meter;

int fs_meters_new(struct fs_meters **out);
/* No meter is left. NULL is fine. */
void fs_meters_free(struct fs_meters *meters);

/* Watch @fd, which is taken over in any case; what was there @before does not count. */
int fs_meter_new(struct fs_meters *meters, int fd, const struct fs_usage *before,
		 struct fs_meter **out, struct err *err);
/* Look a last time. */
void fs_meter_read(struct fs_meters *meters, struct fs_meter *meter, struct fs_usage *peak);
void fs_meter_free(struct fs_meters *meters, struct fs_meter *meter);

#endif
