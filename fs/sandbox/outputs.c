/* fs/sandbox/outputs.c - the declared outputs of a sandbox, normalised */
#include "fs/sandbox/outputs.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/reapi/directory.h"

int fs_path_compare(const char *a, const char *b)
{
	while (*a != '\0' && *a == *b) {
		a++;
		b++;
	}
	if (*a == *b)
		return 0;
	if (*a == '\0' || *b == '\0')
		return *a == '\0' ? -1 : 1;
	if (*a == '/' || *b == '/')
		return *a == '/' ? -1 : 1;
	return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

bool fs_path_within(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (len == 0)
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

const char *fs_path_rest(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (len > 0)
		path += len + (path[len] == '/');
	return path;
}

/* Drop the last component of @out; -EINVAL at the root. */
static int path_up(char *out, size_t *len)
{
	if (*len == 0)
		return -EINVAL;
	while (*len > 0 && out[*len - 1] != '/')
		(*len)--;
	if (*len > 0)
		(*len)--;
	return 0;
}

static int normalise(const char *given, char *out, struct err *err)
{
	size_t len = 0;
	const char *p = given;

	if (given[0] == '/')
		return err_set(err, -EINVAL,
			       "output %s: absolute; outputs are relative to the root", given);
	if (strlen(given) >= PATH_MAX)
		return err_set(err, -EINVAL, "output %.64s...: longer than a path can be", given);
	while (*p != '\0') {
		size_t part = strcspn(p, "/");

		if (part == 2 && p[0] == '.' && p[1] == '.') {
			if (path_up(out, &len) < 0)
				return err_set(err, -EINVAL, "output %s: leads out of the root",
					       given);
		} else if (part > 0 && !(part == 1 && p[0] == '.')) {
			if (cas_name_check(p, part) < 0)
				return err_set(err, -EINVAL,
					       "output %s: a component that no tree can hold",
					       given);
			if (len > 0)
				out[len++] = '/';
			memcpy(out + len, p, part);
			len += part;
		}
		p += part;
		p += *p == '/';
	}
	out[len] = '\0';
	return 0;
}

static int output_compare(const void *a, const void *b)
{
	return fs_path_compare(((const struct fs_output *)a)->path,
			       ((const struct fs_output *)b)->path);
}

static void drop_duplicates(struct fs_outputs *outputs)
{
	size_t kept = 0;

	for (size_t i = 0; i < outputs->nr; i++) {
		struct fs_output *last = kept > 0 ? &outputs->out[kept - 1] : NULL;

		if (last && strcmp(last->path, outputs->out[i].path) == 0) {
			last->premade |= outputs->out[i].premade;
			free(outputs->out[i].path);
		} else {
			outputs->out[kept++] = outputs->out[i];
		}
	}
	outputs->nr = kept;
}

int fs_outputs_parse(const char *const *given, size_t nr, struct fs_outputs *outputs,
		     struct err *err)
{
	struct fs_outputs got = {.out = calloc(nr ? nr : 1, sizeof(*got.out))};
	int ret = got.out ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < nr; i++) {
		char path[PATH_MAX];
		size_t len = strlen(given[i]);

		ret = normalise(given[i], path, err);
		if (ret < 0)
			break;
		got.out[i].path = strdup(path);
		got.out[i].premade = len > 0 && given[i][len - 1] == '/';
		got.nr = i + 1;
		if (got.out[i].path == NULL)
			ret = -ENOMEM;
	}
	if (ret < 0) {
		fs_outputs_fini(&got);
		return ret == -ENOMEM ? err_set(err, ret, "no memory for outputs") : ret;
	}
	if (got.nr > 1)
		qsort(got.out, got.nr, sizeof(*got.out), output_compare);
	drop_duplicates(&got);
	*outputs = got;
	return 0;
}

void fs_outputs_fini(struct fs_outputs *outputs)
{
	for (size_t i = 0; i < outputs->nr; i++)
		free(outputs->out[i].path);
	free(outputs->out);
	memset(outputs, 0, sizeof(*outputs));
}

const struct fs_output *fs_outputs_find(const struct fs_outputs *outputs, const char *path)
{
	size_t lo = 0;
	size_t hi = outputs->nr;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int cmp = fs_path_compare(path, outputs->out[mid].path);

		if (cmp == 0)
			return &outputs->out[mid];
		if (cmp < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

bool fs_outputs_below(const struct fs_outputs *outputs, const char *path)
{
	for (size_t i = 0; i < outputs->nr; i++) {
		if (strcmp(path, outputs->out[i].path) != 0 &&
		    fs_path_within(outputs->out[i].path, path))
			return true;
	}
	return false;
}

bool fs_outputs_at_root(const struct fs_outputs *outputs)
{
	for (size_t i = 0; i < outputs->nr; i++) {
		const struct fs_output *o = &outputs->out[i];

		if (o->path[0] == '\0' || (!o->premade && !strchr(o->path, '/')))
			return true;
	}
	return false;
}
