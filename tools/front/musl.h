/* tools/front/musl.h - what our sources want of a C library and musl 1.2.3 has not */
#ifndef TOOLS_FRONT_MUSL_H
#define TOOLS_FRONT_MUSL_H

/* Included before all else by the compiler's -include. The kernel's constants are musl's. */
#include <linux/stat.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define strerrordesc_np strerror

/* From 1.2.4 on musl has statx, and the probe finds this file not to fit. */
#ifndef STATX_MNT_ID
#error "the kernel's headers are too old"
#endif

static inline int statx(int fd, const char *path, int flags, unsigned mask, struct statx *out)
{
	return (int)syscall(SYS_statx, fd, path, flags, mask, out);
}

#endif
