/* tools/front/front.c - `casbox`: what is done at once; the rest is done by casbox-full */
#include "tools/front/front.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/checkout/checkout.h"
#include "cas/digest.h"
#include "cas/store/store.h"
#include "meta/meta.h"
#include "tools/config.h"

/*
 * A check-out by snapshot takes 2.8 ms, and to start the whole program half of that once more.
 * So this is what is installed as `casbox`: a program of a few pages, linked statically, that
 * carries out exactly one thing, a check-out of a tree that is kept for snapshots, with the
 * functions that the whole program does it with. Everything else is left to `casbox-full`,
 * which is executed with the same words and environment: other commands and options, whatever
 * is wrong, a store that needs anything made, a daemon that would have to be told. Nothing has
 * happened by then but that a damaged kept tree was removed, as it would be there.
 */

/* The whole program sees to it first that files of ours are none of these. */
static bool have_standard_streams(void)
{
	return fcntl(0, F_GETFD) >= 0 && fcntl(1, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0;
}

/* What the whole program would first make, or tell of the use. */
static bool is_ready(struct cas_store *store)
{
	int fd = cas_store_dir_fd(store);

	return !cas_store_is_read_only(store) && faccessat(fd, "meta/index", F_OK, 0) == 0 &&
	       faccessat(fd, "run/daemon", F_OK, 0) < 0 && meta_uses_have_room(store);
}

/* As the whole program: a file limit is an error, and what takes a moment is not stopped. */
struct manners {
	sigset_t mask;
	struct sigaction xfsz;
};

static void manners_begin(struct manners *old)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t stops;

	(void)sigemptyset(&stops);
	(void)sigaddset(&stops, SIGINT);
	(void)sigaddset(&stops, SIGTERM);
	(void)sigaddset(&stops, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &stops, &old->mask);
	(void)sigaction(SIGXFSZ, &ignore, &old->xfsz);
}

static void manners_end(const struct manners *old)
{
	(void)sigaction(SIGXFSZ, &old->xfsz, NULL);
	(void)sigprocmask(SIG_SETMASK, &old->mask, NULL);
}

/* 1: done, and told. */
static int check_out(struct cas_store *store, const struct cas_digest *root, const char *dest)
{
	struct err err = {0};
	int ret = cas_checkout_kept(store, root, dest, NULL);

	if (ret != 1)
		return 0;
	ret = meta_uses_leave_tree(store, root, &err);
	if (ret < 0)
		(void)fprintf(stderr,
			      "casbox checkout: done, but not recorded in index and ledger: %s\n",
			      err_text(&err, ret));
	return 1;
}

static bool serve(const struct front_request *request)
{
	auto_free char *path = NULL;
	struct cas_store *store = NULL;
	struct cas_digest root;
	struct manners old;
	bool done = false;

	if (request->store)
		path = strdup(request->store);
	else if (config_default_store(&path, NULL) < 0)
		path = NULL;
	if (!path || cas_digest_parse(request->digest, &root) < 0 ||
	    !front_settings_are_plain(path) || cas_store_reach(path, &store, NULL) < 0)
		return false;
	if (is_ready(store)) {
		manners_begin(&old);
		done = check_out(store, &root, request->dest) == 1;
		if (!done)
			manners_end(&old);
	}
	cas_store_unreach(store);
	return done;
}

/* The exit status with which a command fails, as in the table of tools/main.c: it is the first
 * word that is no option of the whole program. */
static int fail_of(char *const *argv)
{
	while (*argv && **argv == '-')
		argv += strcmp(*argv, "--store") == 0 && argv[1] ? 2 : 1;
	if (*argv && strcmp(*argv, "run") == 0)
		return 125;
	return *argv && strcmp(*argv, "diff") == 0 ? 2 : 1;
}

int main(int argc, char **argv)
{
	struct front_request request;

	if (argc > 0 && have_standard_streams() && front_request_parse(argv + 1, &request) &&
	    serve(&request))
		return 0;
	front_execute(argv, argc > 0 ? fail_of(argv + 1) : 1);
}
