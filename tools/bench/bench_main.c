/* tools/bench/bench_main.c - casbox-bench: options, and the table of sub-benchmarks */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"

/*
 * In the order in which they run: what creates files comes before what deletes many, see
 * settings_run in bench_action.c.
 */
static const struct bench_command commands[] = {
	{"write", "many small outputs and a large one, and their capture", bench_write},
	{"bulk", "a large input: first read, warm, mapped; in a sandbox and as cas/file",
	 bench_bulk},
	{"second-root", "walk, stat, miss and read a root that shares 99 % with the last",
	 bench_second},
	{"action", "compile-like actions against materialized trees and other overlays",
	 bench_action},
	{"traced", "the same actions with --trace, against untraced ones and a hardlink farm",
	 bench_traced},
	{"put-local", "100,000 small blobs into a local store, beside hash, write and link",
	 bench_put_local},
	{"copy", "a large file that is mostly zeros, put and checked out, beside cp", bench_copy},
	{"checkout", "1,978 files by hardlink, reflink and snapshot, beside the bare calls",
	 bench_checkout},
	{"stat", "a directory of a million names, by path and by descriptor", bench_stat},
	{"put-tree", "a tree into a new store, beside cp -a (needs --tree)", bench_put_tree},
	{"diff", "two roots with one changed file, beside walks of both (needs --tree)",
	 bench_diff},
	{"put", "new and known blobs into a slow blob directory (needs --latfs)", bench_put},
	{"remote", "a tree behind a REAPI server 5 ms away (needs --tree, --reapid)", bench_remote},
	{"real", "compiles of a C project, each in its own sandbox (needs --project)", bench_real},
	{"ready", "create a sandbox until its first file can be used", bench_ready},
	{NULL, NULL, NULL},
};

static void usage(FILE *out)
{
	(void)fputs("usage: casbox-bench [OPTION]... [NAME]...\n\n"
		    "Measures casbox beside what it replaces, in one run, and prints medians of\n"
		    "paired ratios. Without NAME all of these that need no option, or have it:\n\n",
		    out);
	for (const struct bench_command *c = commands; c->name; c++)
		(void)fprintf(out, "  %-12s %s\n", c->name, c->summary);
	(void)fputs(
		"\n"
		"  --actions N     actions of a lane in each pass (40)\n"
		"  --lanes N       that many lanes at once (1, then 2)\n"
		"  --rounds N      repetitions of longer measurements (5)\n"
		"  --files N       files of the large tree of ready (100000)\n"
		"  --live N        live sandboxes in ready (1000)\n"
		"  --bytes N       bytes of the large file (1073741824)\n"
		"  --project DIR   C sources for real; --cc, --cflags, --compiles (200)\n"
		"  --tree DIR      what put-tree, diff and remote take\n"
		"  --reapid FILE   the server for remote, tests/reapid of a build\n"
		"  --latfs FILE    the slow filesystem for put, tests/latfs of a build\n"
		"  --few           leave out rivals that take long\n"
		"  --baselines     do not use casbox\n"
		"  --casbox FILE   the program (beside casbox-bench, in its parent, or in PATH)\n"
		"  --work DIR      where to make trees ($TMPDIR)\n"
		"  --json FILE     write the results there too\n"
		"  --keep          leave the trees\n",
		out);
}

/* What main hands to the supervised child. */
struct run {
	struct bench_env env;
	const char *json;
	bool baselines;
	char **names;
	int nr_names;
};

static bool wanted(const struct run *run, const struct bench_command *c)
{
	if (run->nr_names == 0)
		return (strcmp(c->name, "real") != 0 || run->env.project) &&
		       (strcmp(c->name, "put") != 0 || run->env.latfs) &&
		       (strcmp(c->name, "put-tree") != 0 || run->env.tree) &&
		       (strcmp(c->name, "diff") != 0 || run->env.tree) &&
		       (strcmp(c->name, "remote") != 0 || (run->env.tree && run->env.reapid));
	for (int i = 0; i < run->nr_names; i++) {
		if (strcmp(run->names[i], c->name) == 0)
			return true;
	}
	return false;
}

static int run_body(void *ctx)
{
	struct run *run = ctx;
	struct bench_report *rep = NULL;
	struct err err = {0};
	int status = 0;
	int ret = bench_report_new(&rep);

	/* Whatever the command: put, mount, and the daemon that it starts. */
	if (setenv("CASBOX_DURABILITY", run->env.durability, 1) < 0)
		ret = -errno;
	for (const struct bench_command *c = commands; ret == 0 && c->name; c++) {
		struct err one = {0};

		if (!wanted(run, c) || bench_stopped())
			continue;
		if (c->run(&run->env, rep, &one) < 0) {
			(void)fprintf(stderr, "casbox-bench: %s: %s\n", c->name,
				      err_text(&one, one.code));
			status = 1;
		}
	}
	if (ret == 0 && run->env.casbox) {
		bench_gates_print(rep);
		bench_note(rep, "casbox ran with durability=%s; the native ways sync nothing",
			   run->env.durability);
	}
	if (ret == 0 && run->json)
		ret = bench_report_write(rep, run->json, &err);
	if (ret < 0)
		(void)fprintf(stderr, "casbox-bench: %s\n", err_text(&err, ret));
	bench_report_free(rep);
	if (bench_stopped())
		return 130;
	return ret < 0 ? 1 : status;
}

/* --- options --- */

static int usage_error(const char *what, const char *why)
{
	(void)fprintf(stderr, "casbox-bench: %s: %s; see casbox-bench --help\n", what, why);
	return 2;
}

static bool parse_number(const char *text, unsigned long long min, unsigned long long max,
			 unsigned long long *out)
{
	char *end;
	unsigned long long got;

	errno = 0;
	got = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || got < min || got > max)
		return false;
	*out = got;
	return true;
}

enum {
	OPT_ACTIONS = 256,
	OPT_LANES,
	OPT_ROUNDS,
	OPT_FILES,
	OPT_LIVE,
	OPT_BYTES,
	OPT_SCALE,
	OPT_COMPILES,
	OPT_PROJECT,
	OPT_LATFS,
	OPT_REAPID,
	OPT_TREE,
	OPT_DURABILITY,
	OPT_CC,
	OPT_CFLAGS,
	OPT_FEW,
	OPT_BASELINES,
	OPT_CASBOX,
	OPT_WORK,
	OPT_JSON,
	OPT_KEEP,
	OPT_HELP,
};

static const struct option options[] = {
	{"actions", required_argument, NULL, OPT_ACTIONS},
	{"lanes", required_argument, NULL, OPT_LANES},
	{"rounds", required_argument, NULL, OPT_ROUNDS},
	{"files", required_argument, NULL, OPT_FILES},
	{"live", required_argument, NULL, OPT_LIVE},
	{"bytes", required_argument, NULL, OPT_BYTES},
	{"scale", required_argument, NULL, OPT_SCALE},
	{"compiles", required_argument, NULL, OPT_COMPILES},
	{"project", required_argument, NULL, OPT_PROJECT},
	{"tree", required_argument, NULL, OPT_TREE},
	{"latfs", required_argument, NULL, OPT_LATFS},
	{"reapid", required_argument, NULL, OPT_REAPID},
	{"durability", required_argument, NULL, OPT_DURABILITY},
	{"cc", required_argument, NULL, OPT_CC},
	{"cflags", required_argument, NULL, OPT_CFLAGS},
	{"few", no_argument, NULL, OPT_FEW},
	{"baselines", no_argument, NULL, OPT_BASELINES},
	{"casbox", required_argument, NULL, OPT_CASBOX},
	{"work", required_argument, NULL, OPT_WORK},
	{"json", required_argument, NULL, OPT_JSON},
	{"keep", no_argument, NULL, OPT_KEEP},
	{"help", no_argument, NULL, OPT_HELP},
	{NULL, 0, NULL, 0},
};

/* The options with a number. 0, or the status to exit with. */
static int option_number(struct run *run, int opt, const char *name, const char *text)
{
	struct bench_env *env = &run->env;
	unsigned long long nr = 0;
	bool ok = parse_number(text, opt == OPT_LIVE ? 0 : 1,
			       opt == OPT_BYTES ? 1ull << 40 : 1000000, &nr);

	if (!ok || (opt == OPT_LANES && nr > 16) || (opt == OPT_ACTIONS && nr > 400) ||
	    (opt == OPT_SCALE && nr > 100))
		return usage_error(name, "not a number, or out of range");
	switch (opt) {
	case OPT_ACTIONS:
		env->actions = (int)nr;
		break;
	case OPT_LANES:
		env->lanes = (int)nr;
		break;
	case OPT_ROUNDS:
		env->rounds = (int)nr;
		break;
	case OPT_FILES:
		env->files = (size_t)nr;
		break;
	case OPT_LIVE:
		env->live = (size_t)nr;
		break;
	case OPT_BYTES:
		env->bytes = nr;
		break;
	case OPT_SCALE:
		env->scale = (unsigned)nr;
		break;
	default:
		env->compiles = (int)nr;
		break;
	}
	return 0;
}

static void option_text(struct run *run, int opt)
{
	switch (opt) {
	case OPT_LATFS:
		run->env.latfs = optarg;
		break;
	case OPT_REAPID:
		run->env.reapid = optarg;
		break;
	case OPT_TREE:
		run->env.tree = optarg;
		break;
	case OPT_PROJECT:
		run->env.project = optarg;
		break;
	case OPT_DURABILITY:
		run->env.durability = optarg;
		break;
	case OPT_CC:
		run->env.cc = optarg;
		break;
	case OPT_CFLAGS:
		run->env.cflags = optarg;
		break;
	case OPT_FEW:
		run->env.few = true;
		break;
	case OPT_BASELINES:
		run->baselines = true;
		break;
	case OPT_CASBOX:
		run->env.casbox = optarg;
		break;
	case OPT_WORK:
		run->env.work = optarg;
		break;
	case OPT_JSON:
		run->json = optarg;
		break;
	default:
		run->env.keep = true;
		break;
	}
}

/* 0, -1 when help was printed, or the status to exit with. */
static int parse_options(int argc, char **argv, struct run *run)
{
	int index = 0;
	int opt;
	int status = 0;

	opterr = 0;
	while (status == 0 && (opt = getopt_long(argc, argv, "h", options, &index)) >= 0) {
		if (opt == 'h' || opt == OPT_HELP) {
			usage(stdout);
			return -1;
		}
		if (opt == '?')
			return usage_error(argv[optind - 1], "bad option");
		if (opt <= OPT_COMPILES)
			status = option_number(run, opt, options[opt - OPT_ACTIONS].name, optarg);
		else
			option_text(run, opt);
	}
	run->names = argv + optind;
	run->nr_names = argc - optind;
	for (int i = 0; status == 0 && i < run->nr_names; i++) {
		const struct bench_command *c = commands;

		while (c->name && strcmp(c->name, run->names[i]) != 0)
			c++;
		if (!c->name)
			status = usage_error(run->names[i], "no such benchmark");
	}
	return status;
}

/* Absolute path of the program: as given, beside us, in our parent's directory, in PATH. */
static char *find_casbox(const char *given)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (given)
		return realpath(given, NULL);
	for (int up = 0; len > 0 && up < 2; up++) {
		auto_free char *path = NULL;
		char *slash;

		self[len] = '\0';
		slash = strrchr(self, '/');
		len = slash ? slash - self : 0;
		self[len] = '\0';
		path = bench_text("%s/casbox", self);
		if (path && access(path, X_OK) == 0)
			return steal_ptr(&path);
	}
	return bench_have_program("casbox") ? strdup("casbox") : NULL;
}

static char *make_work(const char *parent, struct err *err)
{
	const char *tmp = parent ? parent : getenv("TMPDIR");
	auto_free char *real = realpath(tmp && *tmp ? tmp : "/tmp", NULL);
	auto_free char *path = NULL;

	if (!real) {
		(void)err_set(err, -errno, "working directory %s: %s", tmp ? tmp : "/tmp",
			      strerror(errno));
		return NULL;
	}
	path = bench_text("%s/casbox-bench-XXXXXX", real);
	if (!path || !mkdtemp(path)) {
		(void)err_set(err, -errno, "making a directory in %s: %s", real, strerror(errno));
		return NULL;
	}
	return steal_ptr(&path);
}

int main(int argc, char **argv)
{
	struct run run = {
		.env = {.actions = 40,
			.rounds = 5,
			.scale = 100,
			.files = 100000,
			.live = 1000,
			.bytes = 1 << 30,
			.durability = "none",
			.cc = "cc",
			.cflags = "-O2",
			.compiles = 200,
			.work_fd = -1},
	};
	auto_free char *casbox = NULL;
	auto_free char *work = NULL;
	struct err err = {0};
	int status = parse_options(argc, argv, &run);

	if (status != 0)
		return status < 0 ? 0 : status;
	run.env.files = (run.env.files * run.env.scale + 99) / 100;
	run.env.live = (run.env.live * run.env.scale + 99) / 100;
	run.env.bytes = (run.env.bytes * run.env.scale + 99) / 100;
	if (!run.baselines) {
		casbox = find_casbox(run.env.casbox);
		if (!casbox) {
			(void)fprintf(stderr, "casbox-bench: no program casbox; say --casbox FILE "
					      "or --baselines\n");
			return 1;
		}
	}
	run.env.casbox = casbox;
	work = make_work(run.env.work, &err);
	if (work)
		run.env.work_fd = bench_open_dir(AT_FDCWD, work, &err);
	if (!work || run.env.work_fd < 0) {
		(void)fprintf(stderr, "casbox-bench: %s\n", err.msg);
		return 1;
	}
	run.env.work = work;
	if (run.env.keep)
		(void)fprintf(stderr, "casbox-bench: working in %s\n", work);
	return bench_supervise(&run.env, run_body, &run);
}
