/* fs/engine/allowance.h - how much a sandbox may write, and who sees to it */
#ifndef FS_ENGINE_ALLOWANCE_H
#define FS_ENGINE_ALLOWANCE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/engine/meter.h"

struct cas_limit;
struct err;
struct fs_sandbox;
struct fs_sandboxes;

enum fs_keeper {
	FS_KEEPER_NONE,	  /* there is no limit */
	FS_KEEPER_QUOTA,  /* a project of the store's filesystem: EDQUOT */
	FS_KEEPER_TMPFS,  /* the layers lie in memory, in a filesystem of that size: ENOSPC */
	FS_KEEPER_SERVED, /* we serve its layer, or it can write nothing: EDQUOT */
};

/* As it was asked for, and who keeps it; in the record. */
struct fs_allowance {
	uint64_t bytes;	  /* 0: no limit */
	uint64_t files;	  /* and directories and so on; 0: no limit */
	bool under_quota; /* a quota holds the action; else only TMPFS keeps the limit */
	enum fs_keeper keeper;
	uint32_t project;	/* QUOTA */
	struct fs_usage before; /* what was there without the action */
};

/*
 * Around the making of the layers of a new sandbox, whose directory is @dir_fd: @begin
 * before anything is in it, @set when all is there, which does not count. Without a limit
 * they do nothing.
 * -EOPNOTSUPP: nobody here can keep one.
 */
int fs_allowance_begin(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
		       struct err *err);
int fs_allowance_set(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, struct err *err);

/* The same for one that is back. -ESTALE: what it had written was in memory, and is gone. */
int fs_allowance_restore(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
			 struct err *err);

#define FS_ALLOWANCE_LIMITS 2

/* What finish tells of it: so many limits, at most FS_ALLOWANCE_LIMITS. */
size_t fs_allowance_tell(struct fs_sandboxes *all, struct fs_sandbox *sb, struct cas_limit *out);

/* Its layers are unmounted, its files go next: no directory of it may be used again. */
void fs_allowance_end(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd);

/* What a daemon that was killed left mounted in STORE/sandboxes/@name, which is to go. */
void fs_allowance_clear(int top_fd, const char *name);

json_t *fs_allowance_describe(const struct fs_allowance *a);
/* -EUCLEAN: it was not written by describe. NULL is no limit. */
int fs_allowance_parse(const json_t *obj, struct fs_allowance *out);

#endif
