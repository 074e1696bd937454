/* tools/front/front.h - the parts of the program's front */
#ifndef TOOLS_FRONT_FRONT_H
#define TOOLS_FRONT_FRONT_H

#include <stdbool.h>

/* What the front carries out: `[--store DIR] checkout [--mode auto] DIGEST DEST`. */
struct front_request {
	const char *store; /* NULL: as configured */
	const char *digest;
	const char *dest;
};

/* request.c: is this such a command line? */
bool front_request_parse(char *const *argv, struct front_request *out);
/* Does nothing in the configuration change what the front would do? */
bool front_settings_are_plain(const char *store);

/*
 * execute.c: become the whole program, which takes the same words; @fail is the exit status
 * when there is none, which is told on standard error.
 */
_Noreturn void front_execute(char *const *argv, int fail);

#endif
