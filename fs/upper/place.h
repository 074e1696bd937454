/* fs/upper/place.h - directories of the tree in which outputs are made */
#ifndef FS_UPPER_PLACE_H
#define FS_UPPER_PLACE_H

#include "fs/upper/upper_i.h"

/* Called with the layer's lock held, unless it says @any. */

/* A directory in which outputs are made, or above one. */
struct fs_uplace {
	UT_hash_handle hh; /* in upper->places; constant, as are the next three */
	struct fs_key key; /* of its path in the tree */
	char *path;
	bool shared;	       /* outputs are made in it: the layer answers for the tree's node */
	bool whole;	       /* all that is known of it is to be forgotten in the end */
	bool changed;	       /* once the layer has ended: its attributes are */
	struct fs_unode *node; /* counted; NULL: not met yet */
	size_t nr_names;       /* that are to be forgotten in the end */
	char **names;
};

/* At the beginning, when the root is there; the table does not change after that. */
int fs_uplaces_make(struct fs_upper *upper, struct err *err);
/* In the end: lets go of nodes; then, of all. */
void fs_uplaces_end(struct fs_upper *upper);
void fs_uplaces_fini(struct fs_upper *upper);
/* @any: what is constant of it; NULL: none has the key. */
struct fs_uplace *fs_uplace_find(const struct fs_upper *upper, const struct fs_key *key);
/* A directory was found: it may be one of them. */
void fs_uplace_settle(struct fs_unode *dir);
/* Does the kernel know the directory as one of the tree? */
bool fs_uplace_is_tree(const struct fs_unode *node);
/* The kernel learns, or has learned, of @name in @dir what is only so in this layer. */
void fs_uplace_touch(struct fs_unode *dir, const char *name);

#endif
