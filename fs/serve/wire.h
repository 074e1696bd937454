/* fs/serve/wire.h - between libfuse and /dev/fuse */
#ifndef FS_SERVE_WIRE_H
#define FS_SERVE_WIRE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/report/prom.h"

struct fuse_conn_info;
struct fuse_session;

#define FS_WIRE_NR_OPS 64
#define FS_WIRE_FLIGHT 4096 /* a power of two */

/*
 * A request that was taken and is not answered, in the place that its number gives it.
 * One that waits while thousands pass loses its place, and its time is not counted.
 */
struct fs_wire_flight {
	_Atomic uint64_t unique; /* 0: nobody; written last, with release, for wire_writev */
	_Atomic uint64_t start_ns;
	_Atomic uint32_t op;
};

/*
 * What passes by: requests are counted by opcode, and INIT is understood, which libfuse
 * 3.14 does only in part. INIT is the first request of a connection and is answered
 * before any other thread serves, so everything but the counts is written once.
 */
struct fs_wire {
	bool want_passthrough; /* before INIT: ask for it when the kernel has it */
	/*
	 * Before INIT: take set-id bits off ourselves where the kernel says so, or it would
	 * ask for an attribute before each write. See fs_wire_kills.
	 */
	bool want_killpriv;
	bool killpriv;
	bool seen_init;
	bool answered_init;
	uint64_t offered; /* INIT flags of the kernel, all 64 */
	uint32_t minor;	  /* version 7.MINOR of the kernel's protocol */
	bool passthrough; /* it was asked for */
	/* [0]: opcodes unknown to us */
	_Atomic uint64_t nr[FS_WIRE_NR_OPS];
	/* From taking a request to its answer; those that get none are counted above alone. */
	struct prom_histogram times[FS_WIRE_NR_OPS];
	struct fs_wire_flight flight[FS_WIRE_FLIGHT];
};

/*
 * Make @se, whose userdata is the struct fs_session that @wire belongs to, speak to
 * @dev_fd, which it owns from then on. 0 or negative.
 */
int fs_wire_attach(struct fuse_session *se, int dev_fd);

/* For libfuse's init operation: ask for passthrough where libfuse has words for it. */
void fs_wire_init(struct fs_wire *wire, struct fuse_conn_info *conn);

/* Does the kernel know passthrough? After INIT. */
bool fs_wire_offers_passthrough(const struct fs_wire *wire);

/*
 * Are set-id bits to go with this write (flags of its fuse_file_info), or change of size
 * (the set of a setattr)? The kernel's word for it, which libfuse has none for.
 */
#define FS_WIRE_WRITE_KILLS  0x40000000
#define FS_WIRE_CHANGE_KILLS (1 << 10) /* as FUSE_SET_ATTR_CTIME, which is not used else */

/* Add "NAME": count to @out for every opcode seen. -ENOMEM. */
int fs_wire_report(const struct fs_wire *wire, json_t *out);

/* The name of an opcode that was seen, or NULL. */
const char *fs_wire_op_name(size_t op);

/* How many requests that was, and how long answering took, added up. */
uint64_t fs_wire_count(const struct fs_wire *wire, uint64_t *ns);

/* The version of libfuse that runs. */
const char *fs_wire_libfuse(void);

#endif
