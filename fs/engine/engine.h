/* fs/engine/engine.h - interface of a writable layer */
#ifndef FS_ENGINE_ENGINE_H
#define FS_ENGINE_ENGINE_H

#include <stdbool.h>

#include "fs/sandbox/plan.h"

struct err;
struct fs_helper_step;

/*
 * One kind of layer. @layer_fd is STORE/sandboxes/ID/upper/N, which belongs to the layer
 * alone. All calls may block; none is made by a thread that answers the kernel.
 */
struct fs_engine {
	const char *name;
	/* Make the files of a new layer below @layer_fd, which is empty. */
	int (*prepare)(int layer_fd, struct err *err);
	/* The same layer is mounted again, in this boot: undo what forbids it. */
	int (*prepare_again)(int layer_fd, struct err *err);
	/*
	 * What the helper has to do: all but the target; descriptors are the caller's.
	 * NULL: nothing is mounted.
	 */
	int (*mount)(int layer_fd, bool in_userns, struct fs_helper_step *out, struct err *err);
	/* Open the directory with what the action wrote; negative errno. */
	int (*open_upper)(int layer_fd, struct err *err);
};

extern const struct fs_engine fs_engine_bind;
extern const struct fs_engine fs_engine_kernel;
extern const struct fs_engine fs_engine_fuse;

static inline const struct fs_engine *fs_engine_of(enum fs_layer_kind kind)
{
	return kind == FS_LAYER_BIND	  ? &fs_engine_bind
	       : kind == FS_LAYER_OVERLAY ? &fs_engine_kernel
					  : &fs_engine_fuse;
}

/* For engines: make directory @name, mode 0755 whatever the umask; it may be there. */
int fs_engine_mkdir(int dir_fd, const char *name, struct err *err);
/* Open directory @name below @dir_fd for reading, following nothing. */
int fs_engine_opendir(int dir_fd, const char *name, struct err *err);

#endif
