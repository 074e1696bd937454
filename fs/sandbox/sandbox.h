/* fs/sandbox/sandbox.h - life of a sandbox: create, finish, remove */
#ifndef FS_SANDBOX_SANDBOX_H
#define FS_SANDBOX_SANDBOX_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"
#include "fs/trace/trace.h"

struct cas_store;
struct err;
struct fs_dirs;
struct fs_early_counts;
struct fs_helper;
struct fs_large;
struct fs_learn;
struct fs_opens;
struct fs_probes;
struct fs_slots;
struct fs_uppers;
struct meta;

/*
 * A sandbox is CREATING, then LIVE, FINISHED (frozen, captured, result kept), then gone;
 * LOST when its upper cannot be trusted after a reboot. STORE/sandboxes/ID/record is the
 * truth (design section 5) and is renamed into place before an id is answered; the table
 * here is a copy of it.
 *
 * Threads: lookup, list and count are for threads that answer the kernel: they take
 * one short lock of rank SANDBOX and wait for nothing else, but that a lookup may read the
 * store. All other calls may block for long and must come from other threads.
 */
struct fs_sandboxes;

/* Where an isolated command (run --isolate) finds its sandbox. */
#define FS_SANDBOX_INSIDE "/build"

enum fs_writable { FS_WRITABLE_OUTPUTS, FS_WRITABLE_DIRS, FS_WRITABLE_ALL };

/* What the mount has counted so far, for whomever. */
struct fs_box_counts {
	uint64_t nr_upcalls; /* of session one */
	uint64_t upcalls_ns;
	uint64_t nr_waits; /* requests that waited for a blob */
	uint64_t waited_ns;
};

/* Told without locks held; each may be NULL. */
struct fs_sandbox_events {
	/* Fill in the counts. */
	void (*counted)(void *ctx, struct fs_box_counts *out);
	/* ID appeared in the listing of the root. */
	void (*added)(void *ctx, const char *id);
	/*
	 * Only without slots, for tests: ID shows a tree that it did not, or nothing any
	 * more, from now on.
	 */
	void (*changed)(void *ctx, const char *id);
	/* The same of one whose trace is exact, and which session two shows. */
	void (*traced)(void *ctx, const char *id);
	void *ctx;
};

struct fs_sandboxes_options {
	struct cas_store *store;
	struct meta *meta;
	struct fs_helper *helper;
	struct fs_slots *slots;	  /* how session one shows trees; NULL: events.changed does */
	struct fs_probes *probes; /* NULL: nothing that is found out there */
	struct fs_large *large;	  /* what binds large inputs; may be NULL */
	struct fs_learn *learn;	  /* learns what is read; may be NULL */
	const char *base;	  /* absolute path at which session one will be mounted */
	const char *traced;	  /* of session two, where exact traces are; NULL: none can be */
	struct fs_tap *tap_one;	  /* what session one is asked for; NULL: nobody listens */
	struct fs_tap *tap_two;	  /* the same of session two */
	struct fs_dirs *dirs;	  /* what is opened in session one, two ways; NULL: nobody knows */
	struct fs_opens *opens;
	bool in_userns;		  /* user namespace: userxattr, no trusted.* */
	bool no_mounts;		  /* none can be made below base, nor are any needed there */
	struct fs_uppers *uppers; /* what serves layers in place of mounts; NULL: none does */
	bool serve_always;	  /* also where nothing is to be written */
	struct fs_sandbox_events events;
};

/* Read the records; nothing is mounted yet. Broken records are logged and left alone. */
int fs_sandboxes_open(const struct fs_sandboxes_options *opts, struct fs_sandboxes **out,
		      struct err *err);

/*
 * Session one is mounted and served: kill what recorded control groups still hold, and
 * mount the layers of the sandboxes that were live, with their outputs.
 */
int fs_sandboxes_restore(struct fs_sandboxes *all, struct err *err);

/* Unmount all layers (detaching busy ones), keep the records. Before session one ends. */
void fs_sandboxes_close(struct fs_sandboxes *all);

/*
 * 1 and the tree that session one shows at @id, with the serial of its slot, which no
 * other sandbox has at the time; 0: no such sandbox. What a finished sandbox shows is put
 * together when it is first looked up; negative: that failed.
 */
int fs_sandboxes_lookup(struct fs_sandboxes *all, const char *id, struct cas_digest *root,
			uint64_t *serial);
/* The same of session two, which has the sandboxes with an exact trace. */
int fs_sandboxes_lookup_traced(struct fs_sandboxes *all, const char *id, struct cas_digest *root,
			       uint64_t *serial);
/* Its position, which no other sandbox ever has in the life of @all; 0: no such sandbox. */
uint64_t fs_sandboxes_pos(struct fs_sandboxes *all, const char *id);
/* And back; malloc'ed. NULL: it is gone, or no memory. */
char *fs_sandboxes_id(struct fs_sandboxes *all, uint64_t pos);

/*
 * Listed ids from position @start on, in order of creation: positions only grow. @each
 * returns non-zero to stop.
 */
enum fs_sandboxes_which {
	FS_SANDBOXES_ONE,    /* what session one lists */
	FS_SANDBOXES_TRACED, /* what session two lists */
	FS_SANDBOXES_ALL,    /* unlisted ones, too */
};
void fs_sandboxes_list(struct fs_sandboxes *all, enum fs_sandboxes_which which, uint64_t start,
		       int (*each)(void *ctx, uint64_t pos, const char *id), void *ctx);

size_t fs_sandboxes_count(struct fs_sandboxes *all);

/* How many of them are in each state. */
struct fs_sandbox_counts {
	uint64_t creating;
	uint64_t live;
	uint64_t finishing;
	uint64_t finished;
	uint64_t lost;
};
void fs_sandboxes_count_states(struct fs_sandboxes *all, struct fs_sandbox_counts *out);

/* Outputs hashed before their sandbox was finished. */
void fs_sandboxes_count_early(struct fs_sandboxes *all, struct fs_early_counts *out);

/*
 * For eviction: from here to thaw no sandbox enters the table and no outputs are captured;
 * create and finish wait, and this waits a moment for captures that run. *nr grows with
 * each root that came to be needed. What is being created is in the table.
 * -EBUSY: a capture takes longer; nothing waits.
 */
int fs_sandboxes_freeze(struct fs_sandboxes *all, uint64_t *nr);
void fs_sandboxes_thaw(struct fs_sandboxes *all);

struct fs_sandbox_spec {
	const char *id; /* NULL: random */
	struct cas_digest root;
	enum fs_writable writable;
	size_t nr_outputs;
	const char *const *outputs; /* as given, relative to the root; see capture */
	bool unlisted;		    /* does not appear in the listing of sandboxes/ */
	bool attached;		    /* nobody's without its conversation: not restored */
	enum fs_trace_kind trace;
	uint64_t max_bytes; /* that it may write; 0: no limit */
	uint64_t max_files;
	bool under_quota; /* quotas hold the action: it has no CAP_SYS_RESOURCE */
};

/*
 * Make a sandbox usable: directories for outputs exist, layers are mounted, the record is
 * on disk. *path_out (caller frees) is its directory, *id_out (caller frees) its id.
 * -EINVAL: id or output path malformed or leading out. -EEXIST: id in use.
 * -EOPNOTSUPP: no exact traces here, or nobody who can keep max_bytes or max_files. -ENOENT: the
 * root is in no tier. -ENOTDIR: the root is no Directory, or an output's parent is a file or
 * symlink in the tree. -EUCLEAN: a Directory on the way is malformed.
 */
int fs_sandbox_create(struct fs_sandboxes *all, const struct fs_sandbox_spec *spec, char **id_out,
		      char **path_out, struct err *err);

/*
 * Remember the control group to kill when the sandbox must end; absolute path. NULL: there
 * is none after all, so that its end proves nothing.
 */
int fs_sandbox_set_cgroup(struct fs_sandboxes *all, const char *id, const char *cgroup,
			  struct err *err);

/*
 * The caller knows that nobody is in the sandbox, or will come in: what it then is worth
 * where nothing can be mounted that proves it, finish and remove use. -ENOENT.
 */
int fs_sandbox_vouch(struct fs_sandboxes *all, const char *id, struct err *err);

struct fs_finish_spec {
	int exit_code;
	bool has_stdout;
	bool has_stderr;
	struct cas_digest stdout_digest;
	struct cas_digest stderr_digest;
	int64_t start_ns; /* CLOCK_REALTIME; 0: unknown */
	int64_t end_ns;
	/* TYPE:PATH of each mount that the action made in a mount namespace of its own. */
	size_t nr_mounted;
	const char *const *mounted;
	bool remove; /* and let it go, as fs_sandbox_remove does, when finish succeeds */
	const _Atomic bool *left; /* true: nobody waits any more. NULL: somebody does */
};

/*
 * Freeze (unmount the layers; leftovers are detached and their outputs copied), capture
 * and store the result; a second call gives the same answer. *answer is a new JSON
 * object: "result" (ActionResult in proto3 JSON), "outputs" (array of {"path","kind",
 * "digest"|"target"}), "stray" (names dropped), "failed" (array of {"path","error"} for
 * what could not be captured: over which another file system is mounted, for one), "limits"
 * (array of {"limit","value","peak","reached"}, of max_bytes and max_files),
 * "result_file" (path of the binary ActionResult; not with @remove).
 * -EROFS: an input was changed or hidden under a policy that forbids it; the message and
 * "changed" name it, and *answer is set all the same. -ENOENT: no such sandbox.
 * -ESTALE: it is LOST. -ECANCELED: *left was seen true between two files. Any other error leaves it
 * frozen with its outputs, so that finish may be tried again. Afterwards ID shows its inputs with
 * the outputs in place, read-only; with @remove it is gone, except after an error. Outputs survive
 * SIGKILL of any process when it returns; a power cut only with full durability, else some 200 ms
 * later.
 */
int fs_sandbox_finish(struct fs_sandboxes *all, const char *id, const struct fs_finish_spec *spec,
		      json_t **answer, struct err *err);

/* Gone from the mount when it returns; files are removed in the background. */
int fs_sandbox_remove(struct fs_sandboxes *all, const char *id, struct err *err);

/*
 * One object for show, an array of them for list. After show the trace of @id has all that was
 * opened before in mount namespaces that still exist.
 */
int fs_sandbox_show(struct fs_sandboxes *all, const char *id, json_t **out, struct err *err);
int fs_sandboxes_describe(struct fs_sandboxes *all, json_t **out, struct err *err);

#endif
