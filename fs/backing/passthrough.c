/* fs/backing/passthrough.c - files of session two that the kernel reads by itself */

/*
 * A node is in the table while it has opens. The kernel leaves the node's mode before it
 * sends RELEASE and enters it after our answer to OPEN, so that what we count is never
 * less than what it counts.
 *
 * A blob has one backing id, which lives as long as its descriptor (fs/backing/backing.c):
 * nodes that show the same blob share it. A file that somebody touched is opened again
 * and hashed, and has another id then, while old opens may still be there; they all have
 * the same file, so the node keeps its first backing and answers with that.
 */
#include "fs/backing/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define HASH_NONFATAL_OOM 1
/* Node ids come from a counter. */
#define HASH_FUNCTION(key, len, out) ((out) = (unsigned)*(const uint64_t *)(key)*2654435761U)
#include <uthash.h>

#include "cas/cas.h"
#include "fs/backing/backing.h"
#include "fs/backing/probe.h"
#include "fs/serve/wire.h"

/* Linux 6.9; the headers we build with may be older. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define IOC_BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)

struct open_node {
	uint64_t id;
	int32_t backing_id;	    /* 0: CACHED */
	struct fs_backing *backing; /* PASSTHROUGH: counted; keeps backing_id */
	size_t nr_opens;
	UT_hash_handle hh;
};

struct fs_passthrough {
	struct fs_backing_table *backing;
	struct fs_probes *probes;
	_Atomic bool works;
	struct lock lock;
	struct open_node *nodes GUARDED_BY(lock);
};

int32_t fs_kernel_backing_open(int dev_fd, int fd)
{
	struct backing_map map = {.fd = fd};
	int id = ioctl(dev_fd, IOC_BACKING_OPEN, &map);

	if (id < 0)
		return -errno;
	return id > 0 ? id : -EINVAL;
}

void fs_kernel_backing_close(int dev_fd, int32_t backing_id)
{
	uint32_t id = (uint32_t)backing_id;

	(void)ioctl(dev_fd, IOC_BACKING_CLOSE, &id);
}

static const char *why_not(int code)
{
	switch (code) {
	case -EPERM:
		return "needs CAP_SYS_ADMIN outside of user namespaces";
	case -ELOOP:
		return "the blobs lie on a stacked filesystem, such as overlayfs";
	case -EOPNOTSUPP:
		return "the blobs' filesystem cannot";
	default:
		return strerror(-code);
	}
}

static void give_up(struct fs_passthrough *pt, int code)
{
	atomic_store(&pt->works, false);
	fs_probes_set(pt->probes, FS_FEATURE_PASSTHROUGH, false, "%s", why_not(code));
}

/* 0, or why the kernel does not want a file from where blobs are. */
static int try_file(int dev_fd, int probe_fd)
{
	int32_t id = probe_fd < 0 ? 0 : fs_kernel_backing_open(dev_fd, probe_fd);

	if (id > 0)
		fs_kernel_backing_close(dev_fd, id);
	return id < 0 ? id : 0;
}

static void try_it(struct fs_passthrough *pt, int dev_fd, int probe_fd, const struct fs_wire *wire)
{
	int ret;

	if (fs_probes_is_off(pt->probes, FS_FEATURE_PASSTHROUGH))
		return;
	if (!fs_wire_offers_passthrough(wire)) {
		fs_probes_set(pt->probes, FS_FEATURE_PASSTHROUGH, false,
			      "the kernel has none, protocol 7.%u", wire->minor);
		return;
	}
	ret = wire->passthrough ? try_file(dev_fd, probe_fd) : -ENOSYS;
	if (ret < 0) {
		give_up(pt, ret);
		return;
	}
	fs_backing_set_device(pt->backing, dev_fd);
	atomic_store(&pt->works, true);
	fs_probes_set(pt->probes, FS_FEATURE_PASSTHROUGH, true, NULL);
}

int fs_passthrough_new(int dev_fd, int probe_fd, const struct fs_wire *wire,
		       struct fs_backing_table *backing, struct fs_probes *probes,
		       struct fs_passthrough **out)
{
	struct fs_passthrough *pt = calloc(1, sizeof(*pt));

	if (!pt)
		return -ENOMEM;
	pt->backing = backing;
	pt->probes = probes;
	lock_init(&pt->lock, LOCK_RANK_INODE, "passthrough");
	try_it(pt, dev_fd, probe_fd, wire);
	*out = pt;
	return 0;
}

NO_LOCK_CHECK void fs_passthrough_free(struct fs_passthrough *pt)
{
	struct open_node *node, *next;

	if (!pt)
		return;
	fs_backing_set_device(pt->backing, -1);
	HASH_ITER (hh, pt->nodes, node, next) {
		HASH_DEL(pt->nodes, node);
		fs_backing_unref(pt->backing, node->backing);
		free(node);
	}
	lock_fini(&pt->lock);
	free(pt);
}

/* An id for @backing, or 0 when it has to do without. */
static int32_t backing_id_of(struct fs_passthrough *pt, struct fs_backing *backing)
{
	int32_t id;

	if (!backing || !atomic_load(&pt->works))
		return 0;
	id = fs_backing_kernel_id(pt->backing, backing);
	if (id > 0)
		return id;
	/* These say no for every blob; others may be a matter of this one, or pass. */
	if (id == -EPERM || id == -ELOOP || id == -EOPNOTSUPP)
		give_up(pt, id);
	return 0;
}

/* The first open of a node decides. */
static struct open_node *add_locked(struct fs_passthrough *pt, uint64_t id,
				    struct fs_backing *backing, int32_t backing_id)
	REQUIRES(pt->lock)
{
	struct open_node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->id = id;
	HASH_ADD(hh, pt->nodes, id, sizeof(node->id), node);
	if (!node->hh.tbl) {
		free(node);
		return NULL;
	}
	if (backing_id > 0) {
		node->backing_id = backing_id;
		node->backing = fs_backing_hold(pt->backing, backing);
	}
	return node;
}

int fs_passthrough_open(struct fs_passthrough *pt, uint64_t id, struct fs_backing *backing,
			bool may_keep, enum fs_io *io, int32_t *backing_id)
{
	struct open_node *node;
	int32_t wanted;
	int ret = 0;

	*io = FS_IO_CACHED;
	if (!pt)
		return 0;
	wanted = may_keep ? backing_id_of(pt, backing) : 0;
	lock_take(&pt->lock);
	HASH_FIND(hh, pt->nodes, &id, sizeof(id), node);
	if (!node)
		node = add_locked(pt, id, backing, wanted);
	if (!node)
		ret = -ENOMEM;
	else if (node->backing && !fs_backing_is_same_file(node->backing, backing))
		ret = -EIO;
	if (ret == 0) {
		node->nr_opens++;
		*backing_id = node->backing_id;
		*io = node->backing ? FS_IO_PASSTHROUGH : FS_IO_CACHED;
	}
	lock_drop(&pt->lock);
	return ret;
}

void fs_passthrough_release(struct fs_passthrough *pt, uint64_t id)
{
	struct fs_backing *backing = NULL;
	struct open_node *node;

	if (!pt)
		return;
	lock_take(&pt->lock);
	HASH_FIND(hh, pt->nodes, &id, sizeof(id), node);
	if (node && --node->nr_opens == 0) {
		HASH_DEL(pt->nodes, node);
		backing = node->backing;
		free(node);
	}
	lock_drop(&pt->lock);
	fs_backing_unref(pt->backing, backing);
}
