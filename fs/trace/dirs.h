/* fs/trace/dirs.h - what is opened in directories of session one, by marks on those */
#ifndef FS_TRACE_DIRS_H
#define FS_TRACE_DIRS_H

#include <stdbool.h>
#include <stdint.h>

struct cas_digest;
struct err;
struct fs_helper;
struct fs_inode_table;
struct fs_probes;
struct fs_trace;
struct meta;

/*
 * The cheaper way to hear of opens (Linux 6.8): each directory of a sandbox is marked, and an
 * event brings the directory's node id and a name, no descriptor. So it does not matter in
 * which namespace the opener is, nor what lies over the inputs: whoever opens one through
 * an overlay opens it in its directory, too.
 *
 * A marked directory is never forgotten by the kernel, and keeps its mark from one sandbox
 * to the next, so that in a lane hardly any is to be marked anew.
 */
struct fs_dirs;

struct fs_dirs_options {
	struct meta *meta;
	struct fs_helper *helper; /* sets the marks: we resolve no path of our mounts */
	struct fs_probes *probes; /* NULL: nothing is found out */
	const char *base;	  /* of session one; outlives it */
};

int fs_dirs_new(const struct fs_dirs_options *opts, struct fs_dirs **out);
/* NULL is fine. */
void fs_dirs_free(struct fs_dirs *dirs);
/* Session one is mounted. */
void fs_dirs_attach(struct fs_dirs *dirs, struct fs_inode_table *table);

/*
 * What is opened in the sandbox @id, which shows @root with @serial, is noted in @trace from
 * now on. May block. -EOPNOTSUPP: the kernel cannot, or there are too many directories:
 * opens.h can. -EPERM: we may not.
 */
int fs_dirs_add(struct fs_dirs *dirs, const char *id, uint64_t serial,
		const struct cas_digest *root, struct fs_trace *trace, struct err *err);
bool fs_dirs_has(struct fs_dirs *dirs, uint64_t serial);
/* All opens until now are noted when it returns; and, remove, nothing more is. */
void fs_dirs_settle(struct fs_dirs *dirs);
void fs_dirs_remove(struct fs_dirs *dirs, uint64_t serial);

#endif
