/* cas/reapi/tree_read.h - the Directories in a Tree, as they are */
#ifndef CAS_REAPI_TREE_READ_H
#define CAS_REAPI_TREE_READ_H

#include <stdbool.h>
#include <stddef.h>

struct err;

#define CAS_TREE_MAX (256 << 20) /* bytes of an encoded Tree that we accept */

/*
 * Call @each for each Directory in the Tree @data, in order, with its bytes, by whose hash
 * the others name it; these are not looked into. It returns 0 to go on; anything else is
 * returned. A Tree without a root has an empty one, for which @each is not called.
 * -EUCLEAN: not a Tree, or one with two roots or an unknown field.
 */
int cas_tree_each(const void *data, size_t len,
		  int (*each)(void *ctx, bool is_root, const void *raw, size_t raw_len), void *ctx,
		  struct err *err);

#endif
