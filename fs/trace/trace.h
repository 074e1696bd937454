/* fs/trace/trace.h - what a sandbox looked up, read, missed and wrote */
#ifndef FS_TRACE_TRACE_H
#define FS_TRACE_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct err;
struct fs_inode_table;
struct fs_sandboxes;

/*
 * How much is recorded is chosen with the sandbox:
 *
 *   OFF    nothing
 *   NAMES  what the kernel asked session one for anyway. It asks for nothing that it has in
 *          its caches, so this is a lower bound; it costs nothing worth naming
 *   READS  NAMES, and every input that was opened or executed, by fanotify (opens.h). Where
 *          that is not to be had, NAMES, with a remark
 *   EXACT  the sandbox lives in session two, below MNT/traced, with nodes of its own which
 *          no other sandbox has warmed: what is opened, listed, read as a link or missing
 *          has to be asked for. Costs what an action costs without reuse
 */
enum fs_trace_kind { FS_TRACE_OFF, FS_TRACE_NAMES, FS_TRACE_READS, FS_TRACE_EXACT };

const char *fs_trace_kind_name(enum fs_trace_kind kind);
/* -EINVAL: none of off, names, reads, exact. */
int fs_trace_kind_parse(const char *word, enum fs_trace_kind *out);

/* --- the recorder of one sandbox: trace.c --- */

/* Counted. A set of paths with what happened to each, in bounded memory. Any thread. */
struct fs_trace;

enum fs_trace_what {
	FS_TRACE_LOOKED = 1,	/* its name was found */
	FS_TRACE_MISSED = 2,	/* its name was looked for in vain */
	FS_TRACE_READ = 4,	/* opened, executed, or read as a link */
	FS_TRACE_LISTED = 8,	/* a directory whose names were read */
	FS_TRACE_MADE = 16,	/* the action made it where no input was */
	FS_TRACE_REPLACED = 32, /* the action changed the input, or put its own in its place */
	FS_TRACE_REMOVED = 64,	/* the action removed the input */
	FS_TRACE_DIR = 128,	/* with MADE, REPLACED: a directory */
};

/* One counted reference is the caller's. -ENOMEM. */
int fs_trace_new(enum fs_trace_kind kind, struct fs_trace **out);
struct fs_trace *fs_trace_ref(struct fs_trace *trace);
/* NULL is fine. */
void fs_trace_unref(struct fs_trace *trace);

enum fs_trace_kind fs_trace_kind_of(const struct fs_trace *trace);

/* READS, but opens cannot be told: it is NAMES from now on, with a remark. */
void fs_trace_lower(struct fs_trace *trace);

/*
 * @what (bits) happened to @name in the directory @dir, both relative to the input root ("":
 * the root). What does not fit any more is counted and told as a remark.
 */
void fs_trace_note(struct fs_trace *trace, unsigned what, const char *dir, const char *name);

/* Something that a reader has to know: a sentence. Kept once. */
void fs_trace_remark(struct fs_trace *trace, const char *text);

/*
 * The same of something that makes it miss what was read: what was not read is not known any
 * more. So it is once names do not fit.
 */
void fs_trace_lose(struct fs_trace *trace, const char *text);
bool fs_trace_is_lossy(struct fs_trace *trace);

/*
 * Call @each for every path with one of the bits of @what, sorted by bytes; with its bits.
 * Non-zero stops and is returned if negative. -ENOMEM.
 */
int fs_trace_each(struct fs_trace *trace, unsigned what,
		  int (*each)(void *ctx, const char *path, unsigned bits), void *ctx);
int fs_trace_each_remark(struct fs_trace *trace, int (*each)(void *ctx, const char *text),
			 void *ctx);
/* The bits of @path; 0: nothing is known of it. */
unsigned fs_trace_bits(struct fs_trace *trace, const char *path);
size_t fs_trace_count(struct fs_trace *trace, unsigned what);

/*
 * Keep it in the file @FS_TRACE_NAME of a directory, and bring it back. -ENOENT: there is none.
 * -EUCLEAN: it is damaged.
 */
#define FS_TRACE_NAME "trace"
int fs_trace_save(struct fs_trace *trace, int dir_fd, struct err *err);
int fs_trace_load(int dir_fd, struct fs_trace **out, struct err *err);

/* --- which recorder an upcall belongs to: tap.c --- */

/*
 * The traced sandboxes of a session, by the serial of what they show. Costs an atomic load
 * when there are none.
 */
struct fs_tap;

int fs_tap_new(struct fs_tap **out);
/* No sandbox is traced any more. NULL is fine. */
void fs_tap_free(struct fs_tap *tap);

/* From now on @trace hears of the tree @serial. -ENOMEM. */
int fs_tap_add(struct fs_tap *tap, uint64_t serial, struct fs_trace *trace);
/* It hears nothing more when this returns. Nothing when there is no such serial. */
void fs_tap_drop(struct fs_tap *tap, uint64_t serial);

/*
 * For threads that answer the kernel, before they answer, so that nothing is missing once
 * the action has ended. @tap may be NULL; @dir is a directory of @table.
 */

/* @name in @dir was found: the node @node, which is no directory if @leaf; or not: 0. */
void fs_tap_looked(struct fs_tap *tap, struct fs_inode_table *table, uint64_t dir, const char *name,
		   uint64_t node, bool leaf, pid_t pid);
void fs_tap_listed(struct fs_tap *tap, struct fs_inode_table *table, uint64_t dir);
/* The file or link @node was opened, or bytes of it were asked for, by @pid. */
void fs_tap_read(struct fs_tap *tap, uint64_t node, pid_t pid);

/* --- what people see: text.c --- */

enum fs_trace_text {
	FS_TRACE_TEXT_STATUS, /* one JSON object */
	FS_TRACE_TEXT_READ,   /* the rest: a path a line, sorted; notes begin with "# " */
	FS_TRACE_TEXT_UNREAD,
	FS_TRACE_TEXT_FAILED,
	FS_TRACE_TEXT_MISSING, /* blobs, as HASH/SIZE */
	FS_TRACE_TEXT_WRITES,
	FS_TRACE_NR_TEXTS,
};

/* The file's name in .casbox/sandboxes/ID. */
const char *fs_trace_text_name(enum fs_trace_text text);

/*
 * Append the file @text of the sandbox @id to @out. May take as long as walking its tree and
 * its uppers, and reads the store; waits for nobody's turn, touches no path of our mounts.
 * -ENOENT: no such sandbox.
 */
int fs_trace_text(struct fs_sandboxes *all, const char *id, enum fs_trace_text text,
		  struct buf *out, struct err *err);

/*
 * The same as an object: "trace" (the kind), "notes" and "read", "unread", "looked_up",
 * "failed", "listed", "missing" (arrays of strings), "writes" (array of {"path", "kind":
 * made|replaced|removed, "directory"}). What cannot be known is null. Names that are not UTF-8 are
 * left out, with a note.
 */
int fs_trace_describe(struct fs_sandboxes *all, const char *id, json_t **out, struct err *err);

#endif
