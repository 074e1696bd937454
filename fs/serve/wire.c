/* fs/serve/wire.c - between libfuse and /dev/fuse */

/*
 * libfuse 3.14 lets us do the reading and writing (fuse_session_custom_io). Its INIT
 * reply knows 32 flags and no stack depth: the reply is completed on its way out. From
 * 3.17 on libfuse says it by itself, and meson tells us with
 * CASBOX_LIBFUSE_PASSTHROUGH. Constants of the kernel's protocol newer than the headers
 * we build with are named here.
 */
#define FUSE_USE_VERSION 312
#include "fs/serve/wire.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/uio.h>

#include "cas/cas.h"
#include "fs/serve/seat.h"
#include "fs/serve/session.h"

#define INIT_EXT	 (UINT64_C(1) << 30)
#define INIT_PASSTHROUGH (UINT64_C(1) << 37)
#define INIT_KILLPRIV_V2 (UINT64_C(1) << 28)
#define WRITE_KILLS	 (1U << 2)
#define CHANGE_KILLS	 (1U << 11)
/*
 * The kernel counts our own layer: blobs may lie on any filesystem that is not stacked
 * itself, and session two may be the lower layer of an overlay.
 */
#define STACK_DEPTH 1
#define BULK_SZ	    (128U << 10)

/* Both from 7.40 on; before, zeros. */
struct init_in {
	uint32_t major;
	uint32_t minor;
	uint32_t max_readahead;
	uint32_t flags;
	uint32_t flags2;
};

struct init_out {
	uint32_t major;
	uint32_t minor;
	uint32_t max_readahead;
	uint32_t flags;
	uint16_t max_background;
	uint16_t congestion_threshold;
	uint32_t max_write;
	uint32_t time_gran;
	uint16_t max_pages;
	uint16_t map_alignment;
	uint32_t flags2;
	uint32_t max_stack_depth;
	uint32_t unused[6];
};

static const char *const op_names[FS_WIRE_NR_OPS] = {
	[0] = "OTHER",
	[FUSE_LOOKUP] = "LOOKUP",
	[FUSE_FORGET] = "FORGET",
	[FUSE_GETATTR] = "GETATTR",
	[FUSE_SETATTR] = "SETATTR",
	[FUSE_READLINK] = "READLINK",
	[FUSE_SYMLINK] = "SYMLINK",
	[FUSE_MKNOD] = "MKNOD",
	[FUSE_MKDIR] = "MKDIR",
	[FUSE_UNLINK] = "UNLINK",
	[FUSE_RMDIR] = "RMDIR",
	[FUSE_RENAME] = "RENAME",
	[FUSE_LINK] = "LINK",
	[FUSE_OPEN] = "OPEN",
	[FUSE_READ] = "READ",
	[FUSE_WRITE] = "WRITE",
	[FUSE_STATFS] = "STATFS",
	[FUSE_RELEASE] = "RELEASE",
	[FUSE_FSYNC] = "FSYNC",
	[FUSE_SETXATTR] = "SETXATTR",
	[FUSE_GETXATTR] = "GETXATTR",
	[FUSE_LISTXATTR] = "LISTXATTR",
	[FUSE_REMOVEXATTR] = "REMOVEXATTR",
	[FUSE_FLUSH] = "FLUSH",
	[FUSE_INIT] = "INIT",
	[FUSE_OPENDIR] = "OPENDIR",
	[FUSE_READDIR] = "READDIR",
	[FUSE_RELEASEDIR] = "RELEASEDIR",
	[FUSE_FSYNCDIR] = "FSYNCDIR",
	[FUSE_GETLK] = "GETLK",
	[FUSE_SETLK] = "SETLK",
	[FUSE_SETLKW] = "SETLKW",
	[FUSE_ACCESS] = "ACCESS",
	[FUSE_CREATE] = "CREATE",
	[FUSE_INTERRUPT] = "INTERRUPT",
	[FUSE_BMAP] = "BMAP",
	[FUSE_DESTROY] = "DESTROY",
	[FUSE_IOCTL] = "IOCTL",
	[FUSE_POLL] = "POLL",
	[FUSE_BATCH_FORGET] = "BATCH_FORGET",
	[FUSE_FALLOCATE] = "FALLOCATE",
	[FUSE_READDIRPLUS] = "READDIRPLUS",
	[FUSE_RENAME2] = "RENAME2",
	[FUSE_LSEEK] = "LSEEK",
	[FUSE_COPY_FILE_RANGE] = "COPY_FILE_RANGE",
	[FUSE_SYNCFS] = "SYNCFS",
	[FUSE_TMPFILE] = "TMPFILE",
	[52] = "STATX",
};

static struct fs_wire *wire_of(void *userdata)
{
	return &((struct fs_session *)userdata)->wire;
}

static struct fs_seat *seat_of(void *userdata)
{
	return ((struct fs_session *)userdata)->seat;
}

static void look_at_init(struct fs_wire *wire, const char *body, size_t len)
{
	struct init_in in = {0};

	memcpy(&in, body, len < sizeof(in) ? len : sizeof(in));
	wire->seen_init = true;
	wire->minor = in.minor;
	wire->offered = in.flags;
	if (in.flags & INIT_EXT)
		wire->offered |= (uint64_t)in.flags2 << 32;
}

/* The kernel's numbers grow by two. */
static struct fs_wire_flight *flight_of(struct fs_wire *wire, uint64_t unique)
{
	return &wire->flight[(unique >> 1) & (FS_WIRE_FLIGHT - 1)];
}

static bool has_answer(uint32_t op)
{
	return op != FUSE_FORGET && op != FUSE_BATCH_FORGET && op != FUSE_INTERRUPT;
}

static void take_off(struct fs_wire *wire, uint64_t unique, uint32_t op)
{
	struct fs_wire_flight *f = flight_of(wire, unique);

	atomic_store_explicit(&f->start_ns, lock_now_ns(), memory_order_relaxed);
	atomic_store_explicit(&f->op, op, memory_order_relaxed);
	atomic_store_explicit(&f->unique, unique, memory_order_release);
}

static void land(struct fs_wire *wire, uint64_t unique)
{
	struct fs_wire_flight *f = flight_of(wire, unique);
	uint64_t start;
	uint32_t op;

	if (atomic_load_explicit(&f->unique, memory_order_acquire) != unique)
		return;
	start = atomic_load_explicit(&f->start_ns, memory_order_relaxed);
	op = atomic_load_explicit(&f->op, memory_order_relaxed);
	/* Ours still? Then it is what we read. */
	if (atomic_compare_exchange_strong(&f->unique, &unique, 0))
		prom_histogram_add(&wire->times[op], lock_now_ns() - start);
}

/* Say so where libfuse passes it on: in the open flags, or as a change of ctime. */
static void tell_kills(uint32_t op, char *body, size_t len)
{
	struct fuse_write_in write;
	struct fuse_setattr_in change;

	if (op == FUSE_WRITE && len >= sizeof(write)) {
		memcpy(&write, body, sizeof(write));
		write.flags &= ~(uint32_t)FS_WIRE_WRITE_KILLS;
		if (write.write_flags & WRITE_KILLS)
			write.flags |= FS_WIRE_WRITE_KILLS;
		memcpy(body, &write, sizeof(write));
	} else if (op == FUSE_SETATTR && len >= sizeof(change)) {
		memcpy(&change, body, sizeof(change));
		change.valid &= ~(uint32_t)FS_WIRE_CHANGE_KILLS;
		if (change.valid & CHANGE_KILLS)
			change.valid |= FS_WIRE_CHANGE_KILLS;
		memcpy(body, &change, sizeof(change));
	}
}

/* The kernel asks for the next piece of a file while who reads it has this one, or could. */
static bool is_bulk(uint32_t op, const void *data, size_t len)
{
	struct fuse_read_in in;

	if (op != FUSE_READ || len < sizeof(struct fuse_in_header) + sizeof(in))
		return len > BULK_SZ;
	memcpy(&in, (const char *)data + sizeof(struct fuse_in_header), sizeof(in));
	return in.size > BULK_SZ;
}

static ssize_t wire_read(int fd, void *data, size_t size, void *userdata)
{
	struct fs_wire *wire = wire_of(userdata);
	ssize_t got = read(fd, data, size);
	struct fuse_in_header header;
	uint32_t op;

	if (got < (ssize_t)sizeof(header))
		return got;
	memcpy(&header, data, sizeof(header));
	op = header.opcode < FS_WIRE_NR_OPS && op_names[header.opcode] ? header.opcode : 0;
	(void)atomic_fetch_add_explicit(&wire->nr[op], 1, memory_order_relaxed);
	if (has_answer(op)) {
		take_off(wire, header.unique, op);
		fs_seat_asked(seat_of(userdata), header.pid, is_bulk(op, data, (size_t)got));
	}
	if (op == FUSE_INIT && !wire->seen_init)
		look_at_init(wire, (const char *)data + sizeof(header),
			     (size_t)got - sizeof(header));
	if (wire->killpriv)
		tell_kills(op, (char *)data + sizeof(header), (size_t)got - sizeof(header));
	return got;
}

/* A second piece of this size is INIT's reply, the first thing that is written. */
static void complete_init(struct fs_wire *wire, struct iovec *body)
{
	struct init_out out;

	wire->answered_init = true;
	if (body->iov_len != sizeof(out))
		return;
	if (wire->want_killpriv && (wire->offered & INIT_KILLPRIV_V2)) {
		memcpy(&out, body->iov_base, sizeof(out));
		out.flags |= (uint32_t)INIT_KILLPRIV_V2;
		memcpy(body->iov_base, &out, sizeof(out));
		wire->killpriv = true;
	}
	if (!wire->want_passthrough || !fs_wire_offers_passthrough(wire))
		return;
	wire->passthrough = true;
#ifndef CASBOX_LIBFUSE_PASSTHROUGH
	memcpy(&out, body->iov_base, sizeof(out));
	out.flags |= (uint32_t)INIT_EXT;
	out.flags2 |= (uint32_t)(INIT_PASSTHROUGH >> 32);
	out.max_stack_depth = STACK_DEPTH;
	memcpy(body->iov_base, &out, sizeof(out));
#endif
}

#if !defined(__SANITIZE_THREAD__) && defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
/*
 * ThreadSanitizer looks at what writev was given when it has returned. By then the kernel has
 * the bytes, and whoever asked may have made another thread free them. So they are read before,
 * into a piece that is this thread's; that an answer comes before what is asked for because of it
 * the checker takes from the descriptor.
 */
static ssize_t send_out(int fd, const struct iovec *iov, int count)
{
	auto_buf struct buf copy = {0};
	struct iovec one;

	for (int i = 0; i < count; i++) {
		if (buf_append(&copy, iov[i].iov_base, iov[i].iov_len) < 0) {
			errno = ENOMEM;
			return -1;
		}
	}
	one = (struct iovec){copy.data, copy.len};
	return writev(fd, &one, 1);
}
#else
static ssize_t send_out(int fd, const struct iovec *iov, int count)
{
	return writev(fd, iov, count);
}
#endif

static ssize_t wire_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fs_wire *wire = wire_of(userdata);
	struct fuse_out_header out;

	if (!wire->answered_init && count == 2)
		complete_init(wire, &iov[1]);
	if (iov[0].iov_len >= sizeof(out)) {
		memcpy(&out, iov[0].iov_base, sizeof(out));
		/* 0: a notification. Before it is told: nothing of the request is ours after. */
		if (out.unique != 0) {
			land(wire, out.unique);
			fs_seat_answered(seat_of(userdata));
		}
	}
	return send_out(fd, iov, count);
}

int fs_wire_attach(struct fuse_session *se, int dev_fd)
{
	static const struct fuse_custom_io io = {.writev = wire_writev, .read = wire_read};
	int ret = fuse_session_custom_io(se, &io, dev_fd);

	return ret < 0 ? ret : 0;
}

void fs_wire_init(struct fs_wire *wire, struct fuse_conn_info *conn)
{
#ifdef CASBOX_LIBFUSE_PASSTHROUGH
	if (wire->want_passthrough && fs_wire_offers_passthrough(wire)) {
		(void)fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH);
		conn->max_backing_stack_depth = STACK_DEPTH - 1; /* libfuse counts without us */
	}
#else
	(void)wire;
	(void)conn;
#endif
}

bool fs_wire_offers_passthrough(const struct fs_wire *wire)
{
	return (wire->offered & INIT_PASSTHROUGH) != 0;
}

int fs_wire_report(const struct fs_wire *wire, json_t *out)
{
	for (size_t i = 0; i < FS_WIRE_NR_OPS; i++) {
		uint64_t nr = atomic_load_explicit(&wire->nr[i], memory_order_relaxed);

		if (nr > 0 &&
		    json_object_set_new(out, op_names[i], json_integer((json_int_t)nr)) < 0)
			return -ENOMEM;
	}
	return 0;
}

const char *fs_wire_op_name(size_t op)
{
	return op < FS_WIRE_NR_OPS ? op_names[op] : NULL;
}

uint64_t fs_wire_count(const struct fs_wire *wire, uint64_t *ns)
{
	uint64_t nr = 0;

	*ns = 0;
	for (size_t i = 0; i < FS_WIRE_NR_OPS; i++) {
		nr += atomic_load_explicit(&wire->nr[i], memory_order_relaxed);
		*ns += atomic_load_explicit(&wire->times[i].sum_ns, memory_order_relaxed);
	}
	return nr;
}

const char *fs_wire_libfuse(void)
{
	return fuse_pkgversion();
}
