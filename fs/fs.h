/* fs/fs.h - front door: serve a store at a mount point */
#ifndef FS_FS_H
#define FS_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/evict/quota.h"

struct err;

#define FS_LANES_MAX 64

struct fs_options {
	const char *store;	  /* STORE */
	const char *blobs;	  /* as cas_store_options */
	const char *const *tiers; /* URLs, as cas_fetch_open */
	size_t nr_tiers;
	const char *mountpoint; /* an existing empty directory, or a dead mount of ours */
	/*
	 * Absolute path of a directory to be made, for session one where we may not mount by
	 * ourselves, and fusermount3 does it; NULL: then not.
	 */
	const char *beside;
	/*
	 * Rather than that, mount in namespaces of our own if there may be any: all is as for
	 * root then, but nobody sees it except who joins them (/proc/PID/ns of the daemon).
	 */
	bool own_namespace;
	bool allow_other;
	bool xattr; /* files of trees and blobs have user.checksum.sha256, what we serve user.* */
	int nr_threads; /* of each session; 0: two */
	int idle_s;	/* end after so long without sandboxes; 0: never */
	bool automatic; /* started by `run`: `mount` may take over, `umount` ends it */
	/* The program and hidden argument that run fs_helper_main; NULL: /proc/self/exe. */
	const char *helper_program;
	int durability;		  /* enum cas_durability */
	uint64_t spool_max_bytes; /* as cas_spool_options */
	unsigned spool_max_blobs;
	/* What the store is kept at in the background; see cas_quota. */
	struct cas_quota quota;
	/* Inputs from this size on are mounts of their own; 0: none is. */
	unsigned long long large_min;
	/*
	 * For tests: serve what is written ourselves, though it could be mounted. "fuse": as
	 * safe as for plain users, since no input is shared; "fuse-shared": as fast.
	 */
	const char *engine;
	/* For tests: features (fs/backing/probe.h) to do without, by name, with commas. */
	const char *without;
	/*
	 * So many sandboxes to come find all of the root @warm (HASH/SIZE) in the kernel's
	 * caches, up to 200,000 names and 64 MiB of small files, once the background has got
	 * to it; NULL: none. A root that shares most with it gains as much.
	 */
	int lanes;
	const char *warm;
};

/*
 * Serve until unmounted, told to stop, or SIGTERM/SIGINT. Calls @ready(ctx) once, when
 * the mount answers (may be NULL). The process must be single-threaded when called and
 * is expected to exit afterwards.
 * -EBUSY: the mount point is in use, or another daemon serves the store (named).
 * -ENOTEMPTY, -ENOENT, -ENOTDIR: the mount point. -ENODEV: no /dev/fuse.
 * -ELOOP: the mount point holds the store or lies in it (both named).
 * -EINVAL, -ENOENT, -EUCLEAN: @warm is no digest, or not that of a Directory.
 * -EPERM: neither privileges nor a user namespace to mount with, nor a fusermount3 that does.
 */
int fs_serve(const struct fs_options *opts, void (*ready)(void *ctx), void *ready_ctx,
	     struct err *err);

/*
 * The mount helper: a process of its own that holds no FUSE descriptor and no lock,
 * speaks on the descriptors that it was started with, and is the only one to touch paths below
 * our mounts. Returns the exit status.
 */
int fs_helper_main(void);

/*
 * Detach every dead casbox mount stacked at @mountpoint, until none is left; a living
 * mount is left alone. Returns the number detached, or negative. -ETIMEDOUT: there is a
 * daemon, which does not answer. This program, started anew, must be a mount helper.
 */
int fs_detach_dead(const char *mountpoint, struct err *err);

#endif
