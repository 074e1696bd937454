/* fs/backing/probe.c - what kernel, libfuse and privileges allow here */
#include "fs/backing/probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"

#define REASON_SZ 160

struct finding {
	bool off;   /* written once */
	bool known; /* the rest: lock */
	bool yes;
	char reason[REASON_SZ];
};

struct fs_probes {
	struct lock lock;
	struct finding found[FS_NR_FEATURES];
};

static const char *const names[FS_NR_FEATURES] = {
	[FS_FEATURE_NO_OPENS] = "no_opens",   [FS_FEATURE_READDIRPLUS] = "readdirplus",
	[FS_FEATURE_REUSE] = "reuse",	      [FS_FEATURE_ADOPT] = "adopt",
	[FS_FEATURE_PUSH] = "push",	      [FS_FEATURE_PASSTHROUGH] = "passthrough",
	[FS_FEATURE_READAHEAD] = "readahead", [FS_FEATURE_BIND] = "bind",
	[FS_FEATURE_OVERLAY] = "overlay",     [FS_FEATURE_CGROUP] = "cgroup",
	[FS_FEATURE_LARGE] = "large",	      [FS_FEATURE_FANOTIFY] = "fanotify",
	[FS_FEATURE_SEAT] = "seat",	      [FS_FEATURE_SEAT_HEEDS] = "seat_heeds",
};

const char *fs_feature_name(enum fs_feature feature)
{
	return names[feature];
}

static int turn_off(struct fs_probes *probes, const char *name, size_t len)
{
	for (size_t i = 0; i < FS_NR_FEATURES; i++) {
		struct finding *f = &probes->found[i];

		if (strlen(names[i]) != len || strncmp(names[i], name, len) != 0)
			continue;
		f->off = true;
		f->known = true;
		(void)snprintf(f->reason, sizeof(f->reason), "forced off");
		return 0;
	}
	return -EINVAL;
}

int fs_probes_new(const char *without, struct fs_probes **out, struct err *err)
{
	struct fs_probes *probes = calloc(1, sizeof(*probes));
	const char *p = without ? without : "";

	if (!probes)
		return -ENOMEM;
	lock_init(&probes->lock, LOCK_RANK_QUEUE, "probes");
	while (*p) {
		size_t len = strcspn(p, ",");

		if (turn_off(probes, p, len) < 0) {
			fs_probes_free(probes);
			return err_set(err, -EINVAL, "no feature is called %.*s", (int)len, p);
		}
		p += len + (p[len] == ',');
	}
	*out = probes;
	return 0;
}

void fs_probes_free(struct fs_probes *probes)
{
	if (!probes)
		return;
	lock_fini(&probes->lock);
	free(probes);
}

bool fs_probes_is_off(const struct fs_probes *probes, enum fs_feature feature)
{
	return probes->found[feature].off;
}

void fs_probes_set(struct fs_probes *probes, enum fs_feature feature, bool yes, const char *fmt,
		   ...)
{
	struct finding *f = &probes->found[feature];
	char reason[REASON_SZ] = "";
	bool is_new;
	va_list ap;

	if (f->off)
		return;
	if (fmt) {
		va_start(ap, fmt);
		(void)vsnprintf(reason, sizeof(reason), fmt, ap);
		va_end(ap);
	}
	lock_take(&probes->lock);
	is_new = !f->known || f->yes != yes;
	f->known = true;
	f->yes = yes;
	memcpy(f->reason, reason, sizeof(reason));
	lock_drop(&probes->lock);
	if (is_new && reason[0])
		log_info("%s = %s (%s)", names[feature], yes ? "yes" : "no", reason);
	else if (is_new)
		log_info("%s = %s", names[feature], yes ? "yes" : "no");
}

bool fs_probes_has(struct fs_probes *probes, enum fs_feature feature)
{
	bool has;

	lock_take(&probes->lock);
	has = probes->found[feature].yes;
	lock_drop(&probes->lock);
	return has;
}

static json_t *finding_text(const struct finding *f)
{
	const char *word = f->yes ? "yes" : "no";

	return f->reason[0] ? json_sprintf("%s (%s)", word, f->reason) : json_string(word);
}

int fs_probes_report(struct fs_probes *probes, json_t *out)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < FS_NR_FEATURES; i++) {
		struct finding copy;

		lock_take(&probes->lock);
		copy = probes->found[i];
		lock_drop(&probes->lock);
		if (copy.known && json_object_set_new(out, names[i], finding_text(&copy)) < 0)
			ret = -ENOMEM;
	}
	return ret;
}
