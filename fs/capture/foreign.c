/* fs/capture/foreign.c - mounts that an action made in its sandbox */
#include "fs/capture/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cas/base/err.h"
#include "cas/base/mountinfo.h"

/*
 * Files are captured where they lie, not through the mount, so what an action mounted over
 * its outputs cannot be seen there: it has to be named. A look costs a line for each mount
 * of the machine and is taken only when our own mounts do not come off as they should.
 */

int fs_foreign_add(struct fs_findings *out, const char *path, const char *type)
{
	char text[256];

	if (fs_findings_find(out, path))
		return 0;
	(void)snprintf(
		text, sizeof(text),
		"another file system (%.64s) is mounted here; what it holds was not captured",
		type);
	return fs_findings_add(out, path, text);
}

static struct fs_own_mount *find_own(const struct mountinfo_entry *e, struct fs_own_mount *own,
				     size_t nr_own)
{
	for (size_t i = 0; i < nr_own; i++) {
		if (own[i].key.id == e->id && own[i].key.dev == e->dev)
			return &own[i];
	}
	return NULL;
}

int fs_foreign_find(const char *top, struct fs_own_mount *own, size_t nr_own,
		    struct fs_findings *out, struct err *err)
{
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	int ret = mountinfo_read_self(&mounts);

	while (ret == 0 && mountinfo_next(&mounts, &e)) {
		struct fs_own_mount *mine;
		const char *path;

		if (!fs_path_within(e.path, top))
			continue;
		path = fs_path_rest(e.path, top);
		mine = find_own(&e, own, nr_own);
		if (mine == NULL)
			ret = fs_foreign_add(out, path, e.type);
		else
			mine->elsewhere = strcmp(path, mine->path) != 0;
	}
	mountinfo_fini(&mounts);
	return ret < 0 ? err_set(err, ret, "cannot tell what is mounted in %s: %s", top,
				 strerrordesc_np(-ret))
		       : 0;
}
