/* tools/cmd/cmd_diff.c - `casbox diff`: what makes one tree of another */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/explain/spot.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"

struct diff_args {
	bool recursive;
	bool json;
};

static const struct cli_option options[] = {
	{"recursive", 'R', CLI_FLAG, offsetof(struct diff_args, recursive), NULL,
	 "everything in a directory that one tree alone has", false, NULL},
	{"json", 0, CLI_FLAG, offsetof(struct diff_args, json), NULL, "one JSON object a change",
	 false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* Print ", " between what is told of a modification. */
static const char *next(bool *first)
{
	const char *sep = *first ? "\t" : ", ";

	*first = false;
	return sep;
}

static void print_time(const struct meta_change_side *side)
{
	if (side->has_mtime)
		(void)printf("%" PRId64 ".%09d", side->mtime_sec, (int)side->mtime_nsec);
	else
		(void)fputs("none", stdout);
}

static void print_target(const char *before, const struct meta_change_side *side)
{
	(void)fputs(before, stdout);
	cli_print_name(stdout, side->target);
}

static void print_modified(const struct meta_change *c)
{
	bool first = true;

	if (c->new.kind == CAS_NODE_SYMLINK && strcmp(c->old.target, c->new.target) != 0) {
		(void)fputs(next(&first), stdout);
		print_target("target ", &c->old);
		print_target(" -> ", &c->new);
	}
	if (c->new.kind == CAS_NODE_FILE && !cas_digest_equal(&c->old.digest, &c->new.digest))
		(void)printf("%scontent", next(&first));
	if (fs_side_mode(&c->old) != fs_side_mode(&c->new))
		(void)printf("%smode %04o -> %04o", next(&first), fs_side_mode(&c->old),
			     fs_side_mode(&c->new));
	else if (c->old.executable != c->new.executable)
		(void)printf("%s%s executable", next(&first),
			     c->new.executable ? "now" : "no more");
	if (c->old.has_mtime != c->new.has_mtime || c->old.mtime_sec != c->new.mtime_sec ||
	    c->old.mtime_nsec != c->new.mtime_nsec) {
		(void)printf("%stime ", next(&first));
		print_time(&c->old);
		(void)fputs(" -> ", stdout);
		print_time(&c->new);
	}
	/* What nothing shows: a mode recorded as it is without, or a property of another tool. */
	if (first || c->other)
		(void)printf("%sproperties", next(&first));
}

static void print_change(const struct meta_change *c)
{
	const struct meta_change_side *side = c->kind == META_CHANGE_DELETED ? &c->old : &c->new;

	(void)printf("%c ", fs_change_letter(c));
	cli_print_name(stdout, *c->path ? c->path : ".");
	if (side->kind == CAS_NODE_DIRECTORY)
		(void)putchar('/');
	if (c->kind == META_CHANGE_TYPE)
		(void)printf("\t%s -> %s", fs_node_name(c->old.kind), fs_node_name(c->new.kind));
	else if (c->kind == META_CHANGE_MODIFIED)
		print_modified(c);
	(void)putchar('\n');
}

static int print_changes(const struct meta_changes *changes, bool json)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < changes->nr; i++) {
		if (json)
			ret = cli_print_json(fs_change_describe(&changes->list[i]));
		else
			print_change(&changes->list[i]);
	}
	return ret;
}

int cmd_diff(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct diff_args args = {0};
	struct cli_words words = {0};
	struct local *local = NULL;
	struct meta_changes changes = {0};
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 2, 2, err);
	if (ret == 0)
		ret = local_open(cli, cli->tiers.nr > 0 ? LOCAL_RECORD : LOCAL_READ, &local, err);
	if (ret == 0)
		ret = fs_spot_diff(local_store(local), local_meta(local), words.argv[0],
				   words.argv[1], args.recursive, 0, &changes, err);
	if (ret == -EINVAL)
		cli->usage_error = true;
	if (ret == 0)
		ret = print_changes(&changes, args.json);
	if (ret == 0 && changes.nr > 0)
		ret = 1;
	meta_changes_fini(&changes);
	local_close(local);
	return ret;
}
