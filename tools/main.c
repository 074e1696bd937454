/* tools/main.c - the program: one table of commands, and who reports failures */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/fs.h"
#include "tools/cli.h"
#include "tools/cmd/cmd.h"

const struct cli_command cli_commands[] = {
	{"run", cmd_run, "Run a command in a sandbox and bring its outputs back.",
	 "[OPTIONS] -- ARGV... | [OPTIONS] --action DIGEST", 125},
	{"put", cmd_put, "Store files and trees; print their digests.", "[OPTIONS] PATH...", 1},
	{"mount", cmd_mount, "Serve the store at a mount point.", "[OPTIONS] MNT", 1},
	{"umount", cmd_umount, "End a mount, a dead one included.", "[OPTIONS] [MNT]", 1},
	{"sandbox", cmd_sandbox, "Create, finish, show, list, remove sandboxes.",
	 "create|finish|show|list|remove [OPTIONS] [ID]", 1},
	{"checkout", cmd_checkout, "Make a stored tree a directory on disk.",
	 "[OPTIONS] DIGEST DEST", 1},
	{"cat", cmd_cat, "Print a blob.", "DIGEST", 1},
	{"ls", cmd_ls, "List a stored tree.", "[-lR] [--json] DIGEST [PATH]", 1},
	{"diff", cmd_diff, "Compare two stored trees, by what changed.", "[-R] [--json] A B", 2},
	{"explain", cmd_explain, "Tell why a blob, a sandbox, a name is as it is.",
	 "[--json] ID|DIGEST [PATH]", 1},
	{"stat", cmd_stat, "Count what the store holds.", "[--json]", 1},
	{"du", cmd_du, "Tell what trees, or the store, take on the disk.", "[--json] [DIGEST...]",
	 1},
	{"fsck", cmd_fsck, "Compare every blob with its name.",
	 "[--repair [--from PATH]...] [--json]", 1},
	{"gc", cmd_gc, "Remove the least recently used blobs.",
	 "{--max-size SIZE | --max-blobs N} [--dry-run] | --drain", 1},
	{"pull", cmd_pull, "Bring blobs and trees here from the tiers.",
	 "[--blob] [--json] DIGEST...", 1},
	{"push", cmd_push, "Send blobs and trees to the tiers that are written to.",
	 "[--blob] [--json] [DIGEST...]", 1},
	{"pin", cmd_pin, "Keep a tree or blob whatever gc does.", "DIGEST...", 1},
	{"unpin", cmd_unpin, "Undo pin.", "DIGEST...", 1},
	{"ctl", cmd_ctl, "Send one command to a mount; print its answer.",
	 "[--mount MNT] COMMAND...", 1},
	{"help", cmd_help, "Show this help, or that of a command.", "[COMMAND]", 1},
	{"internal-helper", cmd_internal_helper, NULL, "", 1},
	{NULL, NULL, NULL, NULL, 0},
};

static const struct cli_command *find_command(const char *name)
{
	for (const struct cli_command *c = cli_commands; c->name; c++) {
		if (strcmp(c->name, name) == 0)
			return c;
	}
	return NULL;
}

/* The daemon starts it, with descriptors from 3 on (fs/helper/helper_i.h). */
int cmd_internal_helper(struct cli *cli, int argc, char **argv, struct err *err)
{
	(void)argc;
	(void)argv;
	if (fcntl(3, F_GETFD) < 0)
		return cli_usage(cli, err, "internal-helper is started by the daemon only");
	return fs_helper_main();
}

int cmd_help(struct cli *cli, int argc, char **argv, struct err *err)
{
	char *const words[] = {argc > 1 ? argv[1] : argv[0], (char *)(uintptr_t) "--help", NULL};
	char *args[] = {words[0], words[1], NULL};
	const struct cli_command *command;

	if (argc < 2 || argv[1][0] == '-') {
		cli_help(stdout);
		return 0;
	}
	command = find_command(argv[1]);
	if (!command || !command->summary)
		return cli_usage(cli, err, "unknown command '%s'", argv[1]);
	cli->command = command;
	return command->run(cli, 2, args, err);
}

/* What was printed must have arrived, or the status says so. */
static int finish_output(const struct cli *cli, int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	cli_warn(cli, "cannot write the output: %s", strerror(errno));
	return status ? status : cli->command ? cli->command->fail : 1;
}

static int report(struct cli *cli, int ret, struct err *err)
{
	const char *name = cli->command ? cli->command->name : NULL;

	if (cli->usage_error) {
		cli_warn(cli, "%s; see 'casbox %s%s--help'", err_text(err, ret), name ? name : "",
			 name ? " " : "");
		return CLI_USAGE;
	}
	cli_warn(cli, "%s", err_text(err, ret));
	return cli->command ? cli->command->fail : 1;
}

static int dispatch(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct cli_words words = {0};
	int ret = cli_parse_common(cli, argc, argv, &words, err);

	if (ret)
		return ret;
	if (cli->version) {
		(void)printf("casbox %s\n", CASBOX_VERSION);
		return 0;
	}
	if (cli->help) {
		cli_help(stdout);
		return 0;
	}
	if (words.argc == 0)
		return cli_usage(cli, err, "no command");
	cli->command = find_command(words.argv[0]);
	if (!cli->command)
		return cli_usage(cli, err, "unknown command '%s'", words.argv[0]);
	return cli->command->run(cli, words.argc, words.argv, err);
}

/* 0, 1 and 2 are never given to a file of ours. */
static void open_standard_streams(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= 2);
	if (fd > 2)
		(void)close(fd);
}

int main(int argc, char **argv)
{
	struct cli cli = {.quota = {CAS_QUOTA_NONE, CAS_QUOTA_NONE, CAS_QUOTA_NONE}};
	struct err err = {0};
	int ret;

	/* Of casbox-full: as whoever looks for the daemon knows it. */
	(void)prctl(PR_SET_NAME, "casbox");
	open_standard_streams();
	/* A file limit is an error to report (EFBIG), not a reason to die. */
	cli.xfsz_ignored = signal(SIGXFSZ, SIG_IGN) == SIG_IGN;
	ret = argc > 0 ? dispatch(&cli, argc, argv, &err) : CLI_USAGE;
	if (ret < 0)
		ret = report(&cli, ret, &err);
	ret = finish_output(&cli, ret);
	if (cli_caught() && ret)
		cli_die_of(cli_caught());
	cli_fini(&cli);
	return ret;
}
