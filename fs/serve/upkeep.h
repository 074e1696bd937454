/* fs/serve/upkeep.h - make index and ledger whole again, beside serving */
#ifndef FS_SERVE_UPKEEP_H
#define FS_SERVE_UPKEEP_H

struct meta;

/*
 * A thread that reconciles @meta (mode WRITER) with the files whenever rows may be
 * missing: at once when the last writer was killed or the databases are new, later when
 * rows were lost on the way. Serving does not wait for it.
 */
struct fs_upkeep;

/* @meta must outlive it. */
int fs_upkeep_new(struct meta *meta, struct fs_upkeep **out);

/* Waits for a walk that is under way. NULL is fine. */
void fs_upkeep_free(struct fs_upkeep *upkeep);

#endif
