/* cas/base/watch.h - how far long work has come, and the wish that it ends */
#ifndef CAS_BASE_WATCH_H
#define CAS_BASE_WATCH_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Members may be NULL; any thread may look at, or set, what they point to. */
struct watch {
	_Atomic uint64_t *bytes; /* grows while it works; what failed is taken back */
	const _Atomic bool *cancel;
	const _Atomic bool *stop; /* the same for another reason */
};

/* Between two steps of a millisecond or so. @w may be NULL. 0 or -ECANCELED. */
static inline int watch_check(const struct watch *w)
{
	if (w && ((w->cancel && atomic_load_explicit(w->cancel, memory_order_relaxed)) ||
		  (w->stop && atomic_load_explicit(w->stop, memory_order_relaxed))))
		return -ECANCELED;
	return 0;
}

/* That many more are done. */
static inline void watch_add(const struct watch *w, uint64_t nr)
{
	if (w && w->bytes)
		atomic_fetch_add_explicit(w->bytes, nr, memory_order_relaxed);
}

static inline void watch_take_back(const struct watch *w, uint64_t nr)
{
	if (w && w->bytes)
		atomic_fetch_sub_explicit(w->bytes, nr, memory_order_relaxed);
}

#endif
