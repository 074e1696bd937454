/* tools/run/run_mounts.c - what a command mounted in its sandbox, in a namespace of its own */
#include "tools/run/run_mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/capture/capture.h"

/*
 * The namespace began as a copy of ours, or of the daemon's, so what is there too, at the same
 * place and from the same filesystem, is the sandbox's own.
 */

struct seen {
	dev_t dev;
	char *path;
	char *root;
};

struct seen_list {
	size_t nr;
	struct seen *items;
};

int run_mounts_hold(pid_t pid)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void seen_fini(struct seen_list *l)
{
	for (size_t i = 0; i < l->nr; i++) {
		free(l->items[i].path);
		free(l->items[i].root);
	}
	free(l->items);
}

static int seen_add(struct seen_list *l, const struct mountinfo_entry *e)
{
	struct seen *grown = realloc(l->items, (l->nr + 1) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	l->items = grown;
	grown[l->nr] = (struct seen){e->dev, strdup(e->path), strdup(e->root)};
	l->nr++;
	return grown[l->nr - 1].path && grown[l->nr - 1].root ? 0 : -ENOMEM;
}

/* Is it one of ours? Each of those stands for one. */
static bool take_seen(struct seen_list *l, const struct mountinfo_entry *e)
{
	for (size_t i = 0; i < l->nr; i++) {
		struct seen *s = &l->items[i];

		if (s->dev == e->dev && strcmp(s->path, e->path) == 0 &&
		    strcmp(s->root, e->root) == 0) {
			s->path[0] = '\0';
			return true;
		}
	}
	return false;
}

static int list_before(pid_t from, const char *top, struct seen_list *out)
{
	auto_close int fd = from ? run_mounts_hold(from) : -1;
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	int ret = from == 0 ? mountinfo_read_self(&mounts)
		  : fd < 0  ? fd
			    : mountinfo_read(fd, &mounts);

	while (ret == 0 && mountinfo_next(&mounts, &e))
		ret = fs_path_within(e.path, top) ? seen_add(out, &e) : 0;
	mountinfo_fini(&mounts);
	return ret;
}

int run_mounts_find(int held_fd, pid_t from, const char *top, struct fs_findings *out,
		    struct err *err)
{
	struct seen_list ours = {0};
	struct mountinfo theirs = {0};
	struct mountinfo_entry e;
	int ret = mountinfo_read(held_fd, &theirs);

	if (ret == 0)
		ret = list_before(from, top, &ours);
	while (ret == 0 && mountinfo_next(&theirs, &e)) {
		if (fs_path_within(e.path, top) && !take_seen(&ours, &e))
			ret = fs_findings_add(out, fs_path_rest(e.path, top), e.type);
	}
	mountinfo_fini(&theirs);
	seen_fini(&ours);
	return ret ? err_set(err, ret, "cannot tell what the command mounted in %s: %s", top,
			     strerror(-ret))
		   : 0;
}
