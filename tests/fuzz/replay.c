/* tests/fuzz/replay.c - run a fuzz target over files, without a fuzzing engine */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/io.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_MAX (64 << 20)

/* Every prefix too, of small inputs: truncation is what parsers get wrong. */
static int replay_file(int dir_fd, const char *name)
{
	auto_buf struct buf input = {0};
	int ret = io_read_file(dir_fd, name, INPUT_MAX, &input);

	if (ret < 0) {
		(void)fprintf(stderr, "cannot read %s: %s\n", name, strerror(-ret));
		return 1;
	}
	(void)printf("%s\n", name);
	(void)fflush(stdout);
	(void)LLVMFuzzerTestOneInput((const uint8_t *)buf_str(&input), input.len);
	for (size_t len = 0; len < input.len && input.len <= 4096; len++) {
		/* A copy of its own, so that a sanitizer sees a read past the end. */
		auto_buf struct buf part = {0};

		if (buf_append(&part, input.data, len) == 0)
			(void)LLVMFuzzerTestOneInput((const uint8_t *)buf_str(&part), len);
	}
	return 0;
}

static int replay_dir(const char *path)
{
	auto_closedir DIR *dir = opendir(path);
	struct dirent *de;
	int nr = 0;

	if (dir == NULL) {
		perror(path);
		return 1;
	}
	while ((de = readdir(dir)) != NULL) {
		if (de->d_name[0] == '.')
			continue;
		if (replay_file(dirfd(dir), de->d_name) != 0)
			return 1;
		nr++;
	}
	(void)printf("%d inputs\n", nr);
	return nr > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (replay_dir(argv[i]) != 0)
			return 1;
	}
	return argc > 1 ? 0 : 2;
}
