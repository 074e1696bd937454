/* cas/base/arena.c - memory that is given back all at once */
#include "cas/base/arena_i.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MIN (size_t)2048
#define BLOCK_MAX (size_t)(1 << 20)

struct cas_arena_block {
	struct cas_arena_block *next;
	size_t used;
	size_t cap;
	alignas(max_align_t) char data[];
};

void cas_arena_fini(struct cas_arena *arena)
{
	struct cas_arena_block *block = arena->blocks;

	while (block) {
		struct cas_arena_block *next = block->next;

		free(block);
		block = next;
	}
	*arena = (struct cas_arena){0};
}

/* Blocks double, so that a big directory costs few of them and a small one little memory. */
static struct cas_arena_block *block_add(struct cas_arena *arena, size_t len)
{
	size_t cap = arena->blocks ? arena->blocks->cap * 2 : BLOCK_MIN;
	struct cas_arena_block *block;

	if (cap > BLOCK_MAX)
		cap = BLOCK_MAX;
	if (cap < len)
		cap = len;
	block = malloc(sizeof(*block) + cap);
	if (block == NULL)
		return NULL;
	block->used = 0;
	block->cap = cap;
	block->next = arena->blocks;
	arena->blocks = block;
	return block;
}

void *cas_arena_alloc(struct cas_arena *arena, size_t len)
{
	struct cas_arena_block *block = arena->blocks;
	void *out;

	if (len > SIZE_MAX / 2)
		return NULL;
	len = (len + 15) & ~(size_t)15;
	if (arena->limit && len > arena->limit - arena->total) {
		arena->over = true;
		return NULL;
	}
	if (block == NULL || block->cap - block->used < len)
		block = block_add(arena, len);
	if (block == NULL) {
		arena->no_memory = true;
		return NULL;
	}
	out = block->data + block->used;
	block->used += len;
	arena->total += len;
	return out;
}

void *cas_arena_zalloc(struct cas_arena *arena, size_t nr, size_t len)
{
	size_t bytes;
	void *out;

	if (__builtin_mul_overflow(nr, len, &bytes))
		return NULL;
	out = cas_arena_alloc(arena, bytes);
	if (out)
		memset(out, 0, bytes);
	return out;
}

char *cas_arena_strdup(struct cas_arena *arena, const char *s)
{
	size_t len = strlen(s) + 1;
	char *out = cas_arena_alloc(arena, len);

	if (out)
		memcpy(out, s, len);
	return out;
}
