/* tests/lib/box.h - sandboxes over a plain directory in place of session one */
#ifndef TESTS_LIB_BOX_H
#define TESTS_LIB_BOX_H

#include <jansson.h>
#include <stdbool.h>

#include "cas/digest.h"
#include "fs/sandbox/sandbox.h"

struct cas_store;
struct fs_helper;
struct meta;

/*
 * DIR/base/ID is written out whenever the table says that ID shows another tree: what
 * the kernel's overlay and bind mounts then stand on is an ordinary directory.
 */
struct tests_box {
	const char *dir;
	struct cas_store *store;
	struct meta *meta;
	struct fs_helper *helper;
	struct fs_sandboxes *all;
	char base[512];
	bool in_userns;
	int nr_added;
};

/* Call first in main: runs the helper when asked to, and leaves the mounts of others alone. */
bool tests_box_main(int argc, char **argv, int *status);
/* Is this run the one inside a user namespace? */
bool tests_box_in_userns(void);
/*
 * Last in main, with the status of the tests: when they passed, they run once more as root
 * of a user namespace, with user.overlay.*, where this machine allows it. The exit status.
 */
int tests_box_again(int status);

void tests_box_open(struct tests_box *box, const char *dir);
void tests_box_close(struct tests_box *box);
/* As a daemon that was killed and started again: nothing is unmounted by the old one. */
void tests_box_restart(struct tests_box *box);

/* Run `sh -e` in DIR with this script; its exit status. */
int tests_sh(const char *dir, const char *script);
/* Ingest what a script makes in a fresh directory. */
struct cas_digest tests_box_tree(struct tests_box *box, const char *script);
/* Ingest a directory as it is shown. */
struct cas_digest tests_box_ingest(struct tests_box *box, const char *path);

/* Create; fails the test. @outputs ends with NULL. The path, in the ring of tests_path. */
const char *tests_box_create(struct tests_box *box, const char *id, const struct cas_digest *root,
			     enum fs_writable writable, const char *const *outputs);
/* Finish with exit code 0; *answer may be asked for; the code. */
int tests_box_finish(struct tests_box *box, const char *id, json_t **answer);

/* "DIGEST", "-> TARGET" or "" (missing) of one output in an answer. */
const char *tests_answer_output(json_t *answer, const char *path);
/* Is @path in the array @key of an answer (of strings, or of objects with "path")? */
bool tests_answer_has(json_t *answer, const char *key, const char *path);

#endif
