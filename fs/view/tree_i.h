/* fs/view/tree_i.h - entries of Directories, for the views that show some */
#ifndef FS_VIEW_TREE_I_H
#define FS_VIEW_TREE_I_H

#include "fs/view/view.h"

struct cas_properties;
struct meta_dirent;

/*
 * What @from in the directory @dir is shown as: everything but the properties of a
 * directory. out->target is borrowed from @from.
 */
int fs_tree_entry(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		  const struct meta_dirent *from, struct fs_entry *out);
/* The properties of a directory. */
void fs_tree_dir_props(const struct cas_properties *props, struct fs_entry *out);

#endif
