/* fs/sandbox/record.h - STORE/sandboxes/ID/record: the truth about a sandbox */
#ifndef FS_SANDBOX_RECORD_H
#define FS_SANDBOX_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cas/digest.h"
#include "fs/engine/allowance.h"
#include "fs/sandbox/plan.h"
#include "fs/sandbox/sandbox.h"
#include "fs/trace/trace.h"

struct err;

#define FS_RECORD_NAME	  "record"
#define FS_RECORD_SPARE	  "record.new"
#define FS_SANDBOX_ID_MAX 128

enum fs_sandbox_state {
	FS_SANDBOX_CREATING, /* never written */
	FS_SANDBOX_LIVE,
	FS_SANDBOX_FINISHING, /* frozen; capture may be moving files. Never written either */
	FS_SANDBOX_FINISHED,  /* `result` lies beside the record, a journal is void */
	FS_SANDBOX_LOST,
};

/* Where the time of a sandbox went, and what it began from; 0: not known. */
struct fs_box_times {
	int64_t setup_ns;   /* until create answered */
	int64_t live_ns;    /* from then until finish, or remove, began */
	int64_t freeze_ns;  /* until nobody could write any more */
	int64_t capture_ns; /* until its outputs were in the store */
	int64_t waited_ns;  /* requests that waited for blobs, added up */
	int64_t nr_waits;
	int64_t nr_upcalls;	  /* that session one answered while it was live, to whomever */
	int64_t upcalls_ns;	  /* answering them */
	bool has_former;	  /* its slot was another's before: */
	struct cas_digest former; /* whose input root was this */
};

/* Strings and arrays are owned; zero-initialize, end with fs_record_fini. */
struct fs_record {
	char *id;
	struct cas_digest root;
	enum fs_writable writable;
	enum fs_trace_kind trace; /* as asked for */
	enum fs_sandbox_state state;
	bool unlisted;
	bool attached; /* ends with the daemon whose conversation it belongs to */
	size_t nr_given;
	char **given; /* the outputs as they were given */
	char *boot_id;
	char *cgroup; /* NULL: none */
	int64_t created_ns;
	int64_t finished_ns; /* 0: not yet */
	int exit_code;
	json_t *notes; /* of fs_result_make; NULL: none */
	struct fs_allowance allowance;
	struct fs_box_times times;
	struct fs_plan plan; /* layers only: layer N has its files in upper/N */
};

void fs_record_fini(struct fs_record *rec);

/*
 * JSON text to the file, in one step as others see it; @durable as io_replace_file. _new:
 * in a directory that is no sandbox yet, whatever lies there.
 */
int fs_record_write_new(const struct fs_record *rec, int dir_fd, bool durable, struct err *err);
int fs_record_write(const struct fs_record *rec, int dir_fd, bool durable, struct err *err);
/* -ENOENT: no record. -EUCLEAN: damaged, or of another version; nothing is set. */
int fs_record_read(int dir_fd, struct fs_record *out, struct err *err);

/* For show and list. */
json_t *fs_record_describe(const struct fs_record *rec);

/* 0, or -EINVAL with the reason: [A-Za-z0-9._+-], not starting with '.', 1 to 128 bytes. */
int fs_sandbox_id_check(const char *id, struct err *err);

/* The kernel's boot id, without newline; the caller frees. */
int fs_boot_id(char **out, struct err *err);

const char *fs_writable_name(enum fs_writable w);
int fs_writable_parse(const char *word, enum fs_writable *out);

#endif
