/* fs/serve/helper_i.h - what the daemon and its mount helper say to each other */
#ifndef FS_SERVE_HELPER_I_H
#define FS_SERVE_HELPER_I_H

#include <limits.h>
#include <stdint.h>

#include "cas/base/err.h"

/*
 * One request, one reply, each a datagram of a SOCK_SEQPACKET pair; the helper answers
 * in order. Descriptors travel with the request. Both ends are the same program, so the
 * structs go over as they are.
 */
#define HELPER_FD      3 /* the helper's end of the socket */
#define HELPER_MAX_FDS 2
#define HELPER_ARG     "internal-helper"

enum helper_op {
	HELPER_ATTACH = 1, /* a: path; fds: mount */
	HELPER_BIND,	   /* a: base, b: target; fds: source */
	HELPER_OVERLAY,	   /* a: base, b: target; fds: upper, work */
	HELPER_SELF,	   /* a: base, b: target */
	HELPER_UNMOUNT,	   /* a: base, b: target */
	HELPER_PING,	   /* a: path */
};

#define HELPER_FLAG_USERNS (1u << 0) /* OVERLAY: user.overlay.*, no redirects */
#define HELPER_FLAG_DETACH (1u << 1) /* UNMOUNT: let go lazily when it stays busy */

struct helper_request {
	uint64_t seq;
	uint32_t op; /* enum helper_op */
	uint32_t flags;
	char a[PATH_MAX];
	char b[PATH_MAX];
};

struct helper_reply {
	uint64_t seq;
	int32_t code; /* what the function of helper.h returns */
	char msg[ERR_MSG_SZ];
};

#endif
