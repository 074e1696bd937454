/* tests/lib/tests.c - what every unit test starts from */
#include "tests/lib/tests.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"

static int dir_setup(void **state, const char *fallback)
{
	const char *tmp = getenv("TMPDIR");
	char *path = NULL;

	if (asprintf(&path, "%s/casbox-test-XXXXXX", tmp ? tmp : fallback) < 0)
		return -1;
	if (mkdtemp(path) == NULL) {
		free(path);
		return -1;
	}
	*state = path;
	return 0;
}

int tests_dir_setup(void **state)
{
	return dir_setup(state, "/tmp");
}

int tests_memory_dir_setup(void **state)
{
	return dir_setup(state, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

int tests_dir_teardown(void **state)
{
	int ret = io_remove_tree(AT_FDCWD, *state, NULL);

	free(*state);
	return ret;
}

const char *tests_path(const char *dir, const char *name)
{
	static char ring[8][PATH_MAX];
	static int next;
	char *out = ring[next++ % 8];

	(void)snprintf(out, PATH_MAX, "%s/%s", dir, name);
	return out;
}

void tests_write_file(const char *path, const void *data, size_t len, unsigned mode)
{
	char parent[PATH_MAX];
	char *slash;
	auto_close int fd = -1;

	(void)snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (slash && slash != parent) {
		*slash = '\0';
		assert_int_equal(io_mkdir_parents(AT_FDCWD, parent, 0755), 0);
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, data, len), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

int tests_count_names(const char *path)
{
	auto_closedir DIR *dir = opendir(path);
	struct dirent *de;
	int nr = 0;

	assert_non_null(dir);
	while ((de = readdir(dir)) != NULL)
		nr += strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
	return nr;
}
