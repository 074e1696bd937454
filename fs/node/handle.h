/* fs/node/handle.h - open files of session two */
#ifndef FS_NODE_HANDLE_H
#define FS_NODE_HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/backing/passthrough.h"

struct fs_backing;
struct fs_channel;
struct fs_follower;

enum fs_handle_kind { FS_HANDLE_BLOB, FS_HANDLE_TEXT, FS_HANDLE_CONTROL, FS_HANDLE_EVENTS };

/* What fuse_file_info.fh points to; @kind selects the arm. Written once, at open. */
struct fs_handle {
	enum fs_handle_kind kind;
	/* Set, with release, when all is written; who gets it back from the kernel acquires. */
	_Atomic bool ready;
	bool counted;	    /* BLOB: by fs_passthrough_open, which decided: */
	enum fs_io io;	    /* BLOB */
	int32_t backing_id; /* BLOB with PASSTHROUGH */
	union {
		struct fs_backing *backing; /* BLOB: counted; NULL: found again by each read */
		struct {
			char *data;
			size_t len;
		} text;			      /* TEXT: owned */
		struct fs_channel *channel;   /* CONTROL */
		struct fs_follower *follower; /* EVENTS */
	};
};

#endif
