/* tools/run/run_outputs.h - put captured outputs where the caller wants them */
#ifndef TOOLS_RUN_RUN_OUTPUTS_H
#define TOOLS_RUN_RUN_OUTPUTS_H

#include <jansson.h>
#include <stdbool.h>

struct cas_store;
struct err;
struct fs_outputs;

/*
 * Make each declared output below @into what @answer (of finish) says it is: replaced
 * by renaming. What the command did not make stays as it was, like everything else, and no
 * symlink on the way is followed: -ELOOP or -ENOTDIR names it. Missing parents are made.
 * -EXDEV: an old output holds a mount point. The output "" wants @into empty or absent.
 * With @keep_same what has the right content already is left alone.
 */
int run_outputs_restore(struct cas_store *store, const char *into,
			const struct fs_outputs *declared, const json_t *answer, bool keep_same,
			struct err *err);

/* The entry of @path in "outputs" of @answer, borrowed; NULL: the command did not make it. */
const json_t *run_outputs_find(const json_t *answer, const char *path);

#endif
