/* tools/run/run_isolate.h - `run --isolate`: the command's words inside of bubblewrap */
#ifndef TOOLS_RUN_RUN_ISOLATE_H
#define TOOLS_RUN_RUN_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "fs/sandbox/sandbox.h"

struct cli_list;
struct err;

#define RUN_INSIDE FS_SANDBOX_INSIDE /* where the sandbox is for an isolated command */

/* What of the host the profile shows, sorted, read-only; zero-initialize. */
struct run_host {
	char **paths; /* NULL at the end */
	size_t nr;
	bool net; /* the host's network, too */
};

/*
 * The default profile as far as this host has it, and what was asked for.
 * -EINVAL: a path that cannot be shown. -ENOENT: there is none such.
 */
int run_host_init(struct run_host *host, const struct cli_list *asked, bool net, struct err *err);
void run_host_fini(struct run_host *host);

/* -EPERM when the profile would show @path (resolved), which is called @what. */
int run_host_forbid(const struct run_host *host, const char *what, const char *path,
		    struct err *err);

/*
 * The words that run @argv with @env, and nothing else, in the sandbox @top, or @workdir
 * (may be NULL) below it: in mount, pid, ipc, uts, user and network namespaces of its own,
 * without capabilities. Descriptor 3 must be open for writing: one byte arrives there
 * when all is set up, right before the command. End with run_words_free.
 * -ENOENT: no bubblewrap here.
 */
int run_isolate_words(const struct run_host *host, const char *top, const char *workdir,
		      const char *const *argv, const char *const *env, char ***out,
		      struct err *err);
void run_words_free(char **words);

#endif
