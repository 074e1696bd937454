/* cas/base/auto.h - release at the end of a scope, or hand ownership over */
#ifndef CAS_BASE_AUTO_H
#define CAS_BASE_AUTO_H

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static inline void auto_free_cleanup(void *p)
{
	free(*(void **)p);
}

static inline void auto_close_cleanup(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void auto_closedir_cleanup(DIR **dir)
{
	if (*dir)
		(void)closedir(*dir);
}

/* `auto_free char *s = NULL;`, `auto_close int fd = -1;`, `auto_closedir DIR *d = NULL;` */
#define auto_free     __attribute__((cleanup(auto_free_cleanup)))
#define auto_close    __attribute__((cleanup(auto_close_cleanup)))
#define auto_closedir __attribute__((cleanup(auto_closedir_cleanup)))
/* For any type with an ending function that takes a pointer to the variable. */
#define auto_call(fn) __attribute__((cleanup(fn)))

static inline int steal_fd(int *fd)
{
	int got = *fd;

	*fd = -1;
	return got;
}

static inline void *steal_ptr_impl(void *pp)
{
	void *got = *(void **)pp;

	*(void **)pp = NULL;
	return got;
}
#define steal_ptr(pp) ((__typeof__(*(pp)))steal_ptr_impl(pp))

#endif
