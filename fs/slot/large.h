/* fs/slot/large.h - large inputs of sandboxes, bound from session two */
#ifndef FS_SLOT_LARGE_H
#define FS_SLOT_LARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cas_digest;
struct fs_entry; /* of fs/view/view.h */
struct fs_executor;
struct fs_outputs;
struct fs_probes;
struct meta;

/*
 * Session one has no opens, so the kernel cannot be given a blob's file there: it copies
 * what is read into pages of its own, small ones, which for large files is several times
 * slower than a disk. So a large input is, for the life of a sandbox, a read-only bind
 * mount of a file of session two, MNT/.casbox/large/KEY, which is read by passthrough.
 * KEY is the identity that the input has in session one: attributes and inode number
 * are the same, only st_dev differs. Mounts are not seen through an overlay that lies
 * above them, so they are made last, on top of the layers.
 *
 * Not bound: what an action may replace (inputs at or below an output; policy `all`), and
 * anything where there is no passthrough. Names in MNT/.casbox/large exist while they are
 * being bound, no longer. Any thread.
 */
struct fs_large;

struct fs_large_options {
	struct meta *meta;
	struct fs_probes *probes;
	struct fs_executor *executor; /* searches trees that take long */
	uint64_t min_size;
	const char *mountpoint; /* absolute; copied */
};

int fs_large_new(const struct fs_large_options *opts, struct fs_large **out);
/* Searches end; before the executor does. */
void fs_large_stop(struct fs_large *large);
void fs_large_free(struct fs_large *large);

struct fs_large_input {
	char *path;   /* relative to the root */
	char *source; /* absolute */
	bool bound;
};

/* Of one sandbox, which owns it; all zero: none. */
struct fs_large_inputs {
	size_t nr;
	struct fs_large_input *in;
};

/*
 * What to bind in a sandbox of @root; their names can be looked up until fs_large_done.
 * None when the tree is new and finding out would take long: then it is searched in the
 * background, for the next sandbox. @large may be NULL. May read the store.
 */
void fs_large_choose(struct fs_large *large, const struct cas_digest *root,
		     const struct fs_outputs *outputs, struct fs_large_inputs *out);
void fs_large_done(struct fs_large *large, const struct fs_large_inputs *inputs);
void fs_large_inputs_fini(struct fs_large_inputs *inputs);

/* For threads that answer the kernel: 1 and the file that is called @name; 0: none. */
int fs_large_lookup(struct fs_large *large, const char *name, struct fs_entry *out);

#endif
