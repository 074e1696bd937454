/* tools/run/tee.h - pass a stream on unchanged, and keep it as a blob */
#ifndef TOOLS_RUN_TEE_H
#define TOOLS_RUN_TEE_H

#include <stdbool.h>

struct cas_digest;
struct cas_store;
struct err;

/* A thread that reads a pipe, writes to a descriptor and puts what passes. */
struct tee;

/* *write_fd (close-on-exec, the caller closes it) is the end for the command. */
int tee_begin(struct cas_store *store, int to_fd, struct tee **out, int *write_fd, struct err *err);

/*
 * Nobody writes any more, or nobody who counts: pass on what is in the pipe, then end.
 * -EINTR: @cancel_fd became readable first (the reader of our output is slow); the tee
 * is abandoned. The digest is that of all bytes passed on; *cut is set, and else left alone,
 * when these may not be all that was written, since the reader of our output was gone.
 */
int tee_end(struct tee *tee, int cancel_fd, struct cas_digest *out, bool *cut, struct err *err);

#endif
