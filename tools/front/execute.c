/* tools/front/execute.c - become the whole program */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/front/front.h"

/*
 * It is looked for from where this program lies, whatever it was called as: FRONT_RELATIVE is
 * its place in an installation (and has the version in it, so that a front never meets a
 * program of another one), beside us is where the build leaves it. Where /proc is missing, or
 * we were copied away alone, there is still the place that it was installed to.
 */

/* Returns true when it is not there. /proc/self/exe leads to "/bin/casbox (deleted)" after an
 * upgrade: its directory is right. */
static bool try_beside(const char *name, char *const *argv)
{
	char path[PATH_MAX + 256];
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	if (len <= 0)
		return true;
	path[len] = '\0';
	slash = strrchr(path, '/');
	if (path[0] != '/' || !slash)
		return true;
	(void)snprintf(slash + 1, sizeof(path) - (size_t)(slash + 1 - path), "%s", name);
	(void)execv(path, argv);
	return errno == ENOENT || errno == ENOTDIR;
}

void front_execute(char *const *argv, int fail)
{
	int code;

	if (try_beside(FRONT_RELATIVE, argv) && try_beside("casbox-full", argv))
		(void)execv(FRONT_INSTALLED, argv);
	code = errno;
	(void)fprintf(stderr,
		      "casbox: cannot execute %s: %s; casbox and casbox-full of version %s belong "
		      "together\n",
		      FRONT_INSTALLED, strerror(code), CASBOX_VERSION);
	exit(fail);
}
