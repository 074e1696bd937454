/* fs/capture/findings.c - lists of paths, each with what is to be said about it */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/capture/capture.h"

int fs_findings_add(struct fs_findings *f, const char *path, const char *text)
{
	struct fs_finding *grown = realloc(f->found, (f->nr + 1) * sizeof(*grown));

	if (grown == NULL)
		return -ENOMEM;
	f->found = grown;
	grown[f->nr].path = strdup(path);
	grown[f->nr].text = text ? strdup(text) : NULL;
	if (grown[f->nr].path == NULL || (text && grown[f->nr].text == NULL)) {
		free(grown[f->nr].path);
		free(grown[f->nr].text);
		return -ENOMEM;
	}
	f->nr++;
	return 0;
}

const struct fs_finding *fs_findings_find(const struct fs_findings *f, const char *path)
{
	for (size_t i = 0; i < f->nr; i++) {
		if (strcmp(f->found[i].path, path) == 0)
			return &f->found[i];
	}
	return NULL;
}

void fs_findings_fini(struct fs_findings *f)
{
	for (size_t i = 0; i < f->nr; i++) {
		free(f->found[i].path);
		free(f->found[i].text);
	}
	free(f->found);
	memset(f, 0, sizeof(*f));
}
