/* fs/capture/result.h - the ActionResult of a sandbox, and the answer of finish */
#ifndef FS_CAPTURE_RESULT_H
#define FS_CAPTURE_RESULT_H

#include <jansson.h>
#include <stdint.h>

#include "fs/capture/capture.h"
#include "fs/capture/derive.h"
#include "fs/sandbox/sandbox.h"

struct buf;
struct err;

#define FS_RESULT_NAME "result" /* binary ActionResult, beside the record */

/* Times of the life that the metadata tells; CLOCK_REALTIME, 0: unknown. */
struct fs_result_times {
	int64_t created_ns;
	int64_t upload_start_ns;
	int64_t upload_end_ns;
	int64_t completed_ns;
};

/*
 * Append the binary ActionResult to @binary. *notes is what it has no place for, an
 * object with "stray", "changed" and "failed" as far as they are not empty; NULL when
 * all are.
 */
int fs_result_make(const struct fs_outputs *outputs, const struct fs_capture *capture,
		   const struct fs_changes *changes, const struct fs_finish_spec *spec,
		   const struct fs_result_times *times, struct buf *binary, json_t **notes,
		   struct err *err);

/*
 * The answer of fs_sandbox_finish, from what fs_result_make made: "result", "outputs",
 * "stray", "changed", "failed", "missing", "limits" ("result_file" is the caller's). The same every
 * time. Text that is not UTF-8 appears with its odd bytes as \xNN in JSON, verbatim in binary.
 * -EUCLEAN: @data is no ActionResult.
 */
int fs_result_answer(const void *data, size_t len, const struct fs_outputs *outputs,
		     const json_t *notes, json_t **answer, struct err *err);

/*
 * What a binary result puts into its input root: sorted grafts for fs_derive, a DROP for
 * each of @outputs that it does not have. End with fs_result_grafts_free.
 * -EUCLEAN: @data is no ActionResult.
 */
int fs_result_grafts(const void *data, size_t len, const struct fs_outputs *outputs,
		     struct fs_graft **grafts, size_t *nr, struct err *err);
void fs_result_grafts_free(struct fs_graft *grafts, size_t nr);

#endif
