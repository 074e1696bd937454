/* tools/cmd/sandbox.h - what `sandbox` and `run` share */
#ifndef TOOLS_CMD_SANDBOX_H
#define TOOLS_CMD_SANDBOX_H

#include <jansson.h>

#include "cas/digest.h"

struct cli;
struct err;

/* A digest as typed, completed from the store when it is a hash alone. */
int sandbox_digest(struct cli *cli, const char *text, char out[CAS_DIGEST_STR_SZ], struct err *err);

/* "SIZE[,FILES]" as create takes it; "" for NULL. A usage error when it is not that. */
int sandbox_max_output(struct cli *cli, const char *text, char out[48], struct err *err);

/* Warn of stray names, of what could not be captured and of limits, from finish's answer. */
void sandbox_print_notes(const struct cli *cli, const json_t *answer);

#endif
