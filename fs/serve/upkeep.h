/* fs/serve/upkeep.h - make index and ledger whole again, beside serving */
#ifndef FS_SERVE_UPKEEP_H
#define FS_SERVE_UPKEEP_H

struct control_env;
struct control_quota;

/*
 * A thread that reconciles index and ledger with the files whenever rows may be missing:
 * at once when the last writer was killed or the databases are new, later when rows were
 * lost on the way. Beside that it compares a shard every few seconds, so that whatever
 * comes or goes by other hands is found within the hour, and keeps the store within its
 * quota. Serving does not wait for it.
 */
struct fs_upkeep;

/* Both must outlive it. */
int fs_upkeep_new(const struct control_env *env, struct control_quota *quota,
		  struct fs_upkeep **out);

/* Waits for a walk that is under way. NULL is fine. */
void fs_upkeep_free(struct fs_upkeep *upkeep);

#endif
