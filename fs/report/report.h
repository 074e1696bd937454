/* fs/report/report.h - what a daemon tells of itself */
#ifndef FS_REPORT_REPORT_H
#define FS_REPORT_REPORT_H

#include <jansson.h>
#include <stddef.h>

struct buf;
struct fs_events;
struct fs_session;

/* 0 before the session was started, when it is NULL here too. */
json_int_t fs_report_nodes(const struct fs_session *session);
/* Add its nodes and upcalls to @out, by its name. -ENOMEM. */
int fs_report_session(const struct fs_session *session, json_t *out);

/* Append "KEY = VALUE" for each member of @o. -ENOMEM. */
int fs_report_lines(const json_t *o, struct buf *out);

/* The files help and version of .casbox; @ctx is for the interface. */
int fs_report_help(void *ctx, struct buf *out);
int fs_report_version(void *ctx, struct buf *out);

/* The file log-level: what is in force, and another from now on. -EINVAL: no level. */
int fs_report_log_level(void *ctx, struct buf *out);
int fs_report_set_log_level(struct fs_events *events, const char *data, size_t len);

#endif
