/* fs/control/roots.h - what the sandboxes and pins of a store need, by its files */
#ifndef FS_CONTROL_ROOTS_H
#define FS_CONTROL_ROOTS_H

#include <stdbool.h>
#include <stdint.h>

struct cas_digest;
struct cas_store;
struct err;

/*
 * Call @root for the input root of every sandbox with a record, for all that its result
 * names, or that a capture cut in the middle moved to the store, and for every pin; non-zero from
 * it stops and is returned. Reads files of the store alone, so any process may. A sandbox without a
 * record is not there; one that is removed meanwhile may be told of. -EUCLEAN: a record or result
 * cannot be understood, so what it needs is unknown.
 */
int control_roots_each(struct cas_store *store,
		       int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		       void *arg, struct err *err);

/* A time that is another one once pins were added or removed since it was asked for. */
int64_t control_roots_pins_ns(struct cas_store *store);

/* Sandboxes with a record. */
int control_roots_count(struct cas_store *store, uint64_t *out, struct err *err);

/* What the file of a pin says. */
#define CONTROL_PIN_DIRECTORY "directory\n"
#define CONTROL_PIN_BLOB      "blob\n"

#endif
