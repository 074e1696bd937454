/* fs/serve/ops.h - FUSE operations: unpack, call the view, reply once */
#ifndef FS_SERVE_OPS_H
#define FS_SERVE_OPS_H

/* Includers define FUSE_USE_VERSION first. */
#include <fuse_lowlevel.h>

#include "fs/node/inode.h"

struct err;
struct fs_session;

/* Each sets its operations: names, data, attributes, holes, extended attributes, changes. */
void fs_ops_name(struct fuse_lowlevel_ops *ops);
void fs_ops_data(struct fuse_lowlevel_ops *ops);
void fs_ops_attr(struct fuse_lowlevel_ops *ops);
void fs_ops_seek(struct fuse_lowlevel_ops *ops);
void fs_ops_xattr(struct fuse_lowlevel_ops *ops);
void fs_ops_upper(struct fuse_lowlevel_ops *ops);

/* If it is a node of a layer, or a session that has some, do it and answer: true. */
bool fs_ops_setattr_upper(fuse_req_t req, const struct fs_inode *node, const struct stat *st,
			  int to_set);
bool fs_ops_write_upper(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
			bool kill);
bool fs_ops_readlink_upper(fuse_req_t req, const struct fs_inode *node);

/* The slot whose layer may answer for the directory @node; 0: none does. */
uint64_t fs_ops_layer(const struct fs_session *session, const struct fs_inode *node);
/*
 * If a layer answers for the directory @node, whose fs_ops_layer is @layer, *node shows its
 * entry from now on: 1, and to be let go with fs_ops_unhold. 0: not so; or negative.
 */
int fs_ops_hold(const struct fs_session *session, struct fs_inode *node, uint64_t layer,
		struct err *err);
void fs_ops_unhold(const struct fs_inode *node);

/*
 * Make the node of @entry, taken over, and fill in the answer: the kernel counts it.
 * @layer: of the directory @dir.
 */
int fs_ops_enter(const struct fs_session *session, const struct fs_inode *dir, const char *name,
		 uint64_t layer, struct fs_entry *entry, struct fuse_entry_param *out);

/* Cached until we say otherwise, in seconds. */
#define FS_FOREVER 1e9

/* The session and the node of a request; false: ESTALE was answered. */
struct fs_session *fs_req_session(fuse_req_t req);
bool fs_req_node(fuse_req_t req, fuse_ino_t ino, struct fs_inode *out);

/* What stat shows. 0 or negative. */
int fs_attr_fill(const struct fs_session *session, const struct fs_entry *entry, struct stat *st);
/* The same of a node, for which a layer may answer: @layer as of fs_ops_layer. */
int fs_attr_of(const struct fs_session *session, const struct fs_inode *node, uint64_t layer,
	       struct stat *st);

/*
 * Answer with an error: -EBADMSG and -EUCLEAN as EIO, as well as -ENOENT in a directory
 * that should be there. What a person should look into is logged, with @what and @name
 * (may be NULL) of @node.
 */
void fs_reply_error(fuse_req_t req, int code, const char *what, const struct fs_inode *node,
		    const char *name, struct err *err);

#endif
