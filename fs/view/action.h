/* fs/view/action.h - the action cache: ac/HASH[-SIZE]/ */
#ifndef FS_VIEW_ACTION_H
#define FS_VIEW_ACTION_H

#include "fs/view/view.h"

struct cas_store;
struct fs_view_action;
struct fs_view_trees;

/*
 * ac/ lists the newest FS_ACTIONS_LISTED results to its owner; names resolve by lookup, by
 * the hash of the action alone or with its size. A result may be replaced at any time: its
 * directory is another one then, and what is still open below the old one answers ESTALE.
 * What is not here (the Action, its Command, its input) has no name there. Any thread.
 */
#define FS_ACTIONS_LISTED 1000

/* @trees outlives it. */
int fs_view_action_new(struct cas_store *store, struct meta *meta, struct fs_view_trees *trees,
		       struct fs_view_action **out);
void fs_view_action_free(struct fs_view_action *action);
void fs_view_action_root(struct fs_view_action *action, struct fs_entry *out);

#endif
