/* fs/serve/ops_xattr.c - extended attributes: checksums of inputs, and what actions set */

/*
 * Only when asked for (-o xattr): as long as they are answered with ENOSYS, the kernel asks
 * once and never again; otherwise each exec asks for capabilities, and an overlay for marks
 * of its own on every directory that it meets.
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/inode.h"
#include "fs/serve/ops.h"
#include "fs/serve/session.h"
#include "fs/upper/upper.h"

#define CHECKSUM "user.checksum.sha256"

/* As getxattr and listxattr answer: the size when @size is 0. */
static void reply(fuse_req_t req, const char *data, size_t len, size_t size)
{
	if (size == 0)
		(void)fuse_reply_xattr(req, len);
	else if (size < len)
		(void)fuse_reply_err(req, ERANGE);
	else
		(void)fuse_reply_buf(req, data, len);
}

/* What the system call gave: a length that was asked for, or bytes. */
static void reply_upper(fuse_req_t req, ssize_t got, const char *data, size_t size)
{
	if (got < 0)
		(void)fuse_reply_err(req, (int)-got);
	else
		reply(req, data, (size_t)got, size);
}

static void get_upper(fuse_req_t req, struct fs_unode *node, const char *name, size_t size)
{
	auto_free char *data = malloc(size + 1);

	reply_upper(req, data ? fs_upper_xattr_get(node, name, data, size) : -ENOMEM, data, size);
}

static void list_upper(fuse_req_t req, struct fs_unode *node, size_t size)
{
	auto_free char *data = malloc(size + 1);

	reply_upper(req, data ? fs_upper_xattr_list(node, data, size) : -ENOMEM, data, size);
}

static struct fs_unode *unode(const struct fs_inode *node)
{
	return (struct fs_unode *)(uintptr_t)node->entry.tag;
}

/* The node, for which a layer may answer: *held as fs_ops_hold. False: it was answered. */
static bool take_node(fuse_req_t req, fuse_ino_t ino, struct fs_inode *node, int *held)
{
	const struct fs_session *session = fs_req_session(req);

	if (!fs_req_node(req, ino, node))
		return false;
	*held = fs_ops_hold(session, node, fs_ops_layer(session, node), NULL);
	if (*held < 0)
		(void)fuse_reply_err(req, -*held);
	return *held >= 0;
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char hash[CAS_HASH_HEX_SZ + 1];
	struct fs_inode node;
	int held;

	if (!take_node(req, ino, &node, &held))
		return;
	if (node.entry.kind == FS_KIND_UPPER) {
		get_upper(req, unode(&node), name, size);
		if (held)
			fs_ops_unhold(&node);
		return;
	}
	if (node.entry.kind != FS_KIND_FILE || strcmp(name, CHECKSUM) != 0) {
		(void)fuse_reply_err(req, ENODATA);
		return;
	}
	cas_hash_format(node.entry.digest.hash, hash);
	reply(req, hash, CAS_HASH_HEX_SZ, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs_inode node;
	int held;

	if (!take_node(req, ino, &node, &held))
		return;
	if (node.entry.kind == FS_KIND_UPPER) {
		list_upper(req, unode(&node), size);
		if (held)
			fs_ops_unhold(&node);
		return;
	}
	reply(req, CHECKSUM, node.entry.kind == FS_KIND_FILE ? sizeof(CHECKSUM) : 0, size);
}

void fs_ops_xattr(struct fuse_lowlevel_ops *ops)
{
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
}
