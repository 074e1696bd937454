/* fs/backing/probe.h - what kernel, libfuse and privileges allow here */
#ifndef FS_BACKING_PROBE_H
#define FS_BACKING_PROBE_H

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct err;

/*
 * Everything that casbox uses when it is there and can do without. Whoever depends on
 * one finds out once, at mount, and says so with fs_probes_set; the way to do without is
 * taken wherever fs_probes_has is false. A feature nobody looked for is not there.
 */
enum fs_feature {
	FS_FEATURE_NO_OPENS,	/* session one without OPEN and OPENDIR */
	FS_FEATURE_READDIRPLUS, /* entries come with a listing */
	FS_FEATURE_REUSE,	/* roots serve one sandbox after the other */
	FS_FEATURE_ADOPT,	/* directories move from ended sandboxes to live ones */
	FS_FEATURE_PUSH,	/* what is likely to be asked for is given before */
	FS_FEATURE_PASSTHROUGH, /* session two hands files to the kernel */
	FS_FEATURE_READAHEAD,	/* more than the kernel's 128 KiB at a time */
	FS_FEATURE_BIND,	/* outputs as bind mounts */
	FS_FEATURE_OVERLAY,	/* writable layers by the kernel's overlayfs */
	FS_FEATURE_CGROUP,	/* actions end with their control group */
	FS_FEATURE_LARGE,	/* large inputs as mounts of their own, read by passthrough */
	FS_FEATURE_FANOTIFY,	/* writers that close are heard of */
	FS_FEATURE_SEAT,	/* serving where it is asked from: fs/serve/seat.h */
	FS_FEATURE_SEAT_HEEDS,	/* only while a processor is free; never a finding */
	FS_NR_FEATURES,
};

struct fs_probes; /* any thread */

/*
 * @without: names of features, separated by commas, that are never there, for tests; or
 * NULL. -EINVAL: not a name.
 */
int fs_probes_new(const char *without, struct fs_probes **out, struct err *err);
void fs_probes_free(struct fs_probes *probes);

const char *fs_feature_name(enum fs_feature feature);

/* Must be done without, whatever is found: no need to look. */
bool fs_probes_is_off(const struct fs_probes *probes, enum fs_feature feature);

/*
 * What was found, and why in words (@fmt, may be NULL when @yes); logged when it is new.
 * A later finding replaces an earlier one; what is off stays so.
 */
void fs_probes_set(struct fs_probes *probes, enum fs_feature feature, bool yes, const char *fmt,
		   ...) __attribute__((format(printf, 4, 5)));

bool fs_probes_has(struct fs_probes *probes, enum fs_feature feature);

/* Add "NAME": "yes" or "no (reason)" to @out for every feature looked for. -ENOMEM. */
int fs_probes_report(struct fs_probes *probes, json_t *out);

#endif
