/* fs/sandbox/outputs.h - the declared outputs of a sandbox, normalised */
#ifndef FS_SANDBOX_OUTPUTS_H
#define FS_SANDBOX_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/* One output. @path has no "", "." or ".." component; "" is the whole root. */
struct fs_output {
	char *path;
	bool premade; /* was given as PATH/: a directory made beforehand, not removable */
};

/* Sorted by fs_path_compare, each path once. Immutable after parsing. */
struct fs_outputs {
	size_t nr;
	struct fs_output *out;
};

/*
 * "//" and "." collapse, ".." is taken lexically, "d" and "d/" become one premade entry.
 * -EINVAL: absolute, leading out of the root, or a component that no tree can hold; the
 * message names the output. *outputs is ended with fs_outputs_fini.
 */
int fs_outputs_parse(const char *const *given, size_t nr, struct fs_outputs *outputs,
		     struct err *err);
void fs_outputs_fini(struct fs_outputs *outputs);

/* NULL when @path itself is not declared. */
const struct fs_output *fs_outputs_find(const struct fs_outputs *outputs, const char *path);
/* Is a declared path strictly below @path? */
bool fs_outputs_below(const struct fs_outputs *outputs, const char *path);

/* Is the root itself a place where outputs are made, or one? */
bool fs_outputs_at_root(const struct fs_outputs *outputs);

/*
 * The order in which everything below a directory follows it directly: as strcmp, but
 * '/' sorts before every other byte.
 */
int fs_path_compare(const char *a, const char *b);
/* Is @path equal to @dir or below it? "" is above all. */
bool fs_path_within(const char *path, const char *dir);
/* What remains of @path below @dir, which it must be within; "" when equal. */
const char *fs_path_rest(const char *path, const char *dir);

#endif
