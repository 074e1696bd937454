/* cas/base/arena_i.h - memory that is given back all at once */
#ifndef CAS_BASE_ARENA_I_H
#define CAS_BASE_ARENA_I_H

#include <stdbool.h>
#include <stddef.h>

struct cas_arena_block;

/*
 * Zero-initialize; one thread owns it. @limit bounds the bytes handed out (0: no
 * bound); a request above it fails and sets @over, one that malloc refuses @no_memory.
 */
struct cas_arena {
	struct cas_arena_block *blocks; /* newest first */
	size_t total;
	size_t limit;
	bool over;
	bool no_memory;
};

void cas_arena_fini(struct cas_arena *arena);
/* Aligned for any type, not cleared; NULL without memory or above the limit. */
void *cas_arena_alloc(struct cas_arena *arena, size_t len);
/* The same, cleared, for @nr items; overflow gives NULL. */
void *cas_arena_zalloc(struct cas_arena *arena, size_t nr, size_t len);
char *cas_arena_strdup(struct cas_arena *arena, const char *s);

#endif
