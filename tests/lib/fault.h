/* tests/lib/fault.h - make system calls of the code under test fail, or be the last */
#ifndef TESTS_LIB_FAULT_H
#define TESTS_LIB_FAULT_H

#include <stdbool.h>

/*
 * The linker puts these in front of libc's (--wrap, see meson.build), so they see the
 * calls of everything linked into the test but not those of shared libraries. State is
 * per process; arm it before other threads run.
 */
enum fault_call {
	FAULT_OPENAT,  /* without O_TMPFILE */
	FAULT_TMPFILE, /* openat with O_TMPFILE */
	FAULT_LINKAT,
	FAULT_RENAMEAT,
	FAULT_RENAMEAT2,
	FAULT_UNLINKAT,
	FAULT_MKDIRAT,
	FAULT_WRITE,
	FAULT_PWRITE,
	FAULT_FTRUNCATE,
	FAULT_FCHMOD,
	FAULT_FSETXATTR,
	FAULT_SYMLINKAT,
	FAULT_FUTIMENS,
	FAULT_FDATASYNC,
	FAULT_FSYNC,
	FAULT_SYNCFS,
	FAULT_IOCTL,
	FAULT_COPY_FILE_RANGE,
	FAULT_NR,
};

/* From now on the @nth such call (from 1; 0: every one) fails with errno @code. */
void fault_fail(enum fault_call call, unsigned nth, int code);

/* Such calls take @ms longer. */
void fault_slow(enum fault_call call, unsigned ms);

/* Writes and in-kernel copies move at most @max bytes a call; 0 bytes: they return 0. */
void fault_short(enum fault_call call, unsigned long max);

/*
 * _exit at the @nth call (from 1) of those that change something on disk, whichever
 * they are; @after: once it has been done.
 */
void fault_exit(unsigned nth, bool after);

/*
 * @body in a child that ends so; @named: where no unnamed files can be made. 1: it ended at
 * that call; 0: it came to its own end; -ECHILD: it did not return 0, or worse.
 */
int fault_exit_child(unsigned nth, bool after, bool named, int (*body)(void *ctx), void *ctx);

/* time() is so much ahead of the clock. */
void fault_clock(long seconds);

/* Calls of one kind since fault_reset. */
unsigned fault_seen(enum fault_call call);

/* Everything works again, and nothing has been seen. */
void fault_reset(void);

#endif
