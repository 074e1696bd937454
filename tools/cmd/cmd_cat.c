/* tools/cmd/cmd_cat.c - `casbox cat`: one blob to standard output */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"

/* Through memory: what standard output is (a terminal, a pipe, O_APPEND) does not matter. */
static int copy_out(int fd, uint64_t size)
{
	char data[65536];
	off_t off = 0;

	while ((uint64_t)off < size) {
		ssize_t got = io_pread_full(fd, data, sizeof(data), off);
		int ret;

		if (got <= 0)
			return got < 0 ? (int)got : -EIO;
		ret = io_write_full(STDOUT_FILENO, data, (size_t)got);
		if (ret)
			return ret;
		off += got;
	}
	return 0;
}

static int cat_one(struct cli *cli, struct local *local, const char *text, struct err *err)
{
	struct cas_digest digest;
	auto_close int fd = -1;
	int ret = cli_digest(cli, local_store(local), text, &digest, err);

	if (ret)
		return ret;
	if (cas_digest_is_empty(&digest))
		return 0;
	ret = cas_store_open_blob(local_store(local), &digest, &fd, err);
	if (ret)
		return ret;
	ret = copy_out(fd, digest.size);
	return ret ? err_set(err, ret, "cannot copy %s to standard output: %s", text,
			     strerror(-ret))
		   : 0;
}

int cmd_cat(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct cli_words words = {0};
	struct local *local = NULL;
	int ret = cli_parse(cli, NULL, NULL, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 1, 0, err);
	if (ret == 0)
		ret = local_open(cli, cli->tiers.nr > 0 ? LOCAL_RECORD : LOCAL_READ, &local, err);
	for (int i = 0; i < words.argc && ret == 0; i++)
		ret = cat_one(cli, local, words.argv[i], err);
	local_close(local);
	return ret;
}
