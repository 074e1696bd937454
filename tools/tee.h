/* tools/tee.h - pass a stream on unchanged, and keep it as a blob */
#ifndef TOOLS_TEE_H
#define TOOLS_TEE_H

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
 * is abandoned. The digest is that of all bytes passed on.
 */
int tee_end(struct tee *tee, int cancel_fd, struct cas_digest *out, struct err *err);

#endif
