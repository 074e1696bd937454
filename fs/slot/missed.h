/* fs/slot/missed.h - names that sandboxes looked for in vain */
#ifndef FS_SLOT_MISSED_H
#define FS_SLOT_MISSED_H

#include <stddef.h>

struct cas_store;
struct err;

/*
 * The last sixteen thousand or so, each once, as paths from the input root. A walk through
 * a tree finds what is there; what compilers look for elsewhere first is known only from
 * sandboxes before, and is as much. A hint: names that are there by now do no harm.
 * Kept in STORE/run/missed from one daemon to the next. Any thread.
 */
struct fs_missed;

/* With what @store has kept; nothing when that cannot be read. -ENOMEM. */
int fs_missed_new(struct cas_store *store, struct fs_missed **out);
void fs_missed_free(struct fs_missed *missed);

void fs_missed_note(struct fs_missed *missed, const char *path);

/* The @nth from the oldest on, malloc'ed; NULL: no such, or no memory. */
char *fs_missed_get(struct fs_missed *missed, size_t nth);

/* Up to @max names of the directory @dir, "" for the root: their count; each malloc'ed. */
size_t fs_missed_in(struct fs_missed *missed, const char *dir, char **names, size_t max);

/* Keep them in @store. As io_replace_file. */
int fs_missed_save(struct fs_missed *missed, struct cas_store *store, struct err *err);

#endif
