/* fs/control/pins.h - blobs and trees that gc leaves alone */
#ifndef FS_CONTROL_PINS_H
#define FS_CONTROL_PINS_H

struct cas_digest;
struct cas_store;
struct err;

/*
 * Make STORE/pins/HASH-SIZE, with all that is below it where it is a Directory. The caller
 * keeps evictions out meanwhile. -ENOENT: no such blob; else as reading the blob says.
 */
int control_pin_add(struct cas_store *store, const struct cas_digest *digest, struct err *err);
/* -ENOENT: not pinned. */
int control_pin_drop(struct cas_store *store, const struct cas_digest *digest, struct err *err);

#endif
