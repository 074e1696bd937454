/* tests/lib/layer.h - served layers without a mount: their files are really there */
#ifndef TESTS_LIB_LAYER_H
#define TESTS_LIB_LAYER_H

#include <stdbool.h>
#include <stddef.h>

#include "cas/digest.h"
#include "fs/sandbox/outputs.h"
#include "fs/upper/upper.h"
#include "fs/view/view.h"

#define TESTS_LAYER_HELD 256

/* A layer in DIR/layer over a tree; what operations learn stays known, as to a kernel. */
struct tests_layer {
	const char *dir;
	struct cas_store *store;
	struct meta *meta;
	struct fs_backing_table *backing;
	struct fs_uppers *all;
	struct fs_upper *upper;
	struct cas_digest root;
	struct fs_outputs outputs;
	enum fs_writable writable;
	struct fs_usage limit;
	int layer_fd;
	size_t nr_held;
	struct fs_entry held[TESTS_LAYER_HELD];
};

/* The tree is what `sh -e` makes of @script in an empty directory. @outputs ends with NULL. */
void tests_layer_open(struct tests_layer *l, const char *dir, const char *script,
		      enum fs_writable writable, const char *const *outputs);
void tests_layer_close(struct tests_layer *l);
/* Close what is open of it, and open it once more: a new and empty layer, or what lies there. */
void tests_layer_detach(struct tests_layer *l);
void tests_layer_attach(struct tests_layer *l, bool again);
/* The kernel forgets all. */
void tests_layer_forget(struct tests_layer *l);
/* As after the death of the daemon. */
void tests_layer_again(struct tests_layer *l);

/* The node at @path, which stays known; NULL: none. Fails the test on an error. */
struct fs_unode *tests_layer_node(struct tests_layer *l, const char *path);
/* The same, and it must be there; @name: what follows the last slash. */
struct fs_unode *tests_layer_parent(struct tests_layer *l, const char *path, const char **name);

/* The operations, by paths: 0 or negative. Files are 0644 and directories 0755. */
int tests_layer_make(struct tests_layer *l, const char *path, mode_t type);
int tests_layer_write(struct tests_layer *l, const char *path, const char *text);
int tests_layer_remove(struct tests_layer *l, const char *path);
int tests_layer_rename(struct tests_layer *l, const char *from, const char *to, unsigned flags);
int tests_layer_link(struct tests_layer *l, const char *from, const char *to);

/* A line for each name below the root, sorted: "PATH", "PATH/", "PATH -> TARGET", or
 * "PATH: TEXT" of a file, as lookups and reads tell; free it. */
char *tests_layer_shown(struct tests_layer *l);

#endif
