/* fs/sandbox/times.h - where the time of a sandbox goes */
#ifndef FS_SANDBOX_TIMES_H
#define FS_SANDBOX_TIMES_H

struct cas_digest;
struct fs_sandbox;
struct fs_sandboxes;

/* For its claimant. */

/* It shows its root, in the place of @former (all zeros: of none). Table lock held. */
void fs_sandbox_times_began(struct fs_sandbox *sb, const struct cas_digest *former);
/* It is about to be answered. */
void fs_sandbox_times_ready(struct fs_sandboxes *all, struct fs_sandbox *sb);
/* It is to finish; and nobody writes any more, if not before. */
void fs_sandbox_times_ending(struct fs_sandboxes *all, struct fs_sandbox *sb);
void fs_sandbox_times_frozen(struct fs_sandboxes *all, struct fs_sandbox *sb);

#endif
