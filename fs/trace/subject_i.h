/* fs/trace/subject_i.h - a sandbox as its trace is told, at one moment */
#ifndef FS_TRACE_SUBJECT_I_H
#define FS_TRACE_SUBJECT_I_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "cas/digest.h"
#include "fs/sandbox/outputs.h"
#include "fs/sandbox/plan.h"
#include "fs/sandbox/record.h"
#include "fs/trace/trace.h"

/* Owned lines, sorted by bytes once they are collected. */
struct trace_lines {
	size_t nr;
	size_t cap;
	char **line;
};

void fs_trace_lines_fini(struct trace_lines *lines);

#define TRACE_WRITTEN (FS_TRACE_MADE | FS_TRACE_REPLACED | FS_TRACE_REMOVED)

/* Copies: nothing is held. */
struct subject {
	struct fs_sandboxes *all;
	enum fs_trace_kind kind; /* in force: READS without fanotify is NAMES */
	enum fs_sandbox_state state;
	struct cas_digest root;
	int64_t created_ns;
	struct fs_trace *trace;	   /* counted; NULL: none */
	struct fs_plan plan;	   /* layers only; owned */
	struct fs_outputs outputs; /* owned */
	json_t *status;		   /* as show tells it; owned */
	json_t *notes;		   /* of the result; owned, NULL: none */
	int dir_fd;		   /* -1: it is going */
	bool partial;		   /* fs_subject_writes knows the outputs alone */
};

int fs_subject_init(struct subject *s, struct fs_sandboxes *all, const char *id, struct err *err);
void fs_subject_fini(struct subject *s);

/* Paths of @trace with a bit of @what; @keep (may be NULL) tells which, and may add a slash. */
int fs_trace_collect(struct fs_trace *trace, unsigned what, struct subject *s,
		     int (*keep)(struct subject *s, const char *path, unsigned bits, bool *slash),
		     struct trace_lines *out);

/* Is there an answer at all? */
bool fs_subject_knows(const struct subject *s, enum fs_trace_text text);
/* READ, UNREAD or FAILED; nothing when that is not known. */
int fs_subject_lines(struct subject *s, enum fs_trace_text text, struct trace_lines *out);
int fs_subject_missing(struct subject *s, struct trace_lines *out);
/* A trace with the bits of TRACE_WRITTEN, counted; sets s->partial. */
int fs_subject_writes(struct subject *s, struct fs_trace **out);

#endif
