/* fs/helper/helper_i.h - what the daemon and its mount helper say to each other */
#ifndef FS_HELPER_HELPER_I_H
#define FS_HELPER_HELPER_I_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/base/err.h"
#include "fs/helper/helper.h"

/*
 * One request of up to HELPER_MAX_STEPS steps, one reply, each a datagram of a
 * SOCK_SEQPACKET pair; the helper answers in order. Descriptors travel with the request,
 * in the order of the steps that use them. Both ends are the same program, so the structs
 * go over as they are, cut after what is used of @text.
 *
 * Who wakes somebody up by a socket is expected to wait for him, so that the kernel runs both on
 * one processor. A caller that has something else to do meanwhile sends its request by a second
 * pair, which the helper does not wait for, and tells it by an eventfd: that wakes it up where
 * a processor is free. The answer comes as ever.
 */
#define HELPER_FD	 3 /* the helper's end of the socket */
#define HELPER_ASIDE_FD	 4 /* the same of the second one, */
#define HELPER_BELL_FD	 5 /* and what tells that there is a request */
#define HELPER_NR_FDS	 3
#define HELPER_MAX_STEPS 16
#define HELPER_MAX_FDS	 (2 * HELPER_MAX_STEPS)
#define HELPER_TEXT_SZ	 (8 * PATH_MAX)
#define HELPER_ARG	 "internal-helper"

enum helper_op {
	HELPER_ATTACH = 1, /* base is the path; fds: mount */
	HELPER_BIND,	   /* fds: source */
	HELPER_OVERLAY,	   /* fds: upper, work */
	HELPER_FILE,	   /* source */
	HELPER_SELF,
	HELPER_UNMOUNT,
	HELPER_PING, /* base is the path */
	HELPER_DETACH,
	HELPER_LIST,
	HELPER_LOOK,
	HELPER_IDLE,
	HELPER_WATCH,	   /* fds: group */
	HELPER_WATCH_DIRS, /* source, ended by an empty path; fds: group */
	HELPER_AWAY,	   /* source: where to */
	HELPER_VISIT,	   /* when all is answered */
};

#define HELPER_FLAG_USERNS (1u << 0) /* OVERLAY: user.overlay.*, no redirects */
#define HELPER_FLAG_DETACH (1u << 1) /* UNMOUNT: let go lazily when it stays busy */
#define HELPER_FLAG_MAY	   (1u << 2) /* go on when it fails */
#define HELPER_FLAG_WRITE  (1u << 4) /* SELF: what can be written stays so */
#define HELPER_FLAG_CLEAN  (1u << 3) /* only when each step before did what it should */

struct helper_step {
	uint32_t op; /* enum helper_op */
	uint32_t flags;
	uint32_t target; /* offset in @text, NUL-terminated */
	uint32_t source; /* FILE, AWAY: the same */
	struct fs_mount_key key;
};

struct helper_request {
	uint64_t seq;
	uint32_t nr;
	uint32_t go_on;	   /* do the steps after one that failed */
	uint32_t unclean;  /* a step in an earlier request of the call did not */
	uint32_t text_len; /* base, then targets and sources, each with its NUL */
	struct helper_step steps[HELPER_MAX_STEPS];
	char text[HELPER_TEXT_SZ];
};

struct helper_reply {
	uint64_t seq;
	int32_t code[HELPER_MAX_STEPS]; /* what the functions of helper.h return */
	struct fs_mount_key key[HELPER_MAX_STEPS];
	char msg[ERR_MSG_SZ]; /* of the first that failed; cut after its NUL */
};

#endif
