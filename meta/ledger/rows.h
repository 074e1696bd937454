/* meta/ledger/rows.h - rows as text, from a client to the daemon */
#ifndef META_LEDGER_ROWS_H
#define META_LEDGER_ROWS_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct err;
struct meta_row;

/*
 * Rows are joined by ';', fields by ','. Only digits, lower-case letters and "/,;-!"
 * occur, so a text is one word in a control command without any quoting.
 *
 *   b,HASH/SIZE                           a blob of known size, not hashed
 *   b,HASH/SIZE,INO,MTIME,CTIME,BLOCKS    a blob, hashed as such a file
 *   t,HASH/SIZE                           a use
 *   r,HASH/SIZE                           a use of a tree, by its root
 *   d,HASH/SIZE                           its file is gone
 *   f,DEV,INO,MTIME,CTIME,HASH/SIZE       a source file's identity; SIZE is the file's
 *   o,HASH/SIZE,SOURCE,WHEN               it was brought from there; SOURCE in hexadecimal
 *   s,ID,ROOT,STATE,CREATED,FINISHED,EXIT a sandbox; ID, ROOT and STATE in hexadecimal
 *   !                                     answer when everything before is recorded
 *
 * Numbers are decimal without a sign or leading zeros; times are nanoseconds since the
 * epoch and may be negative, as may EXIT.
 */
#define META_ROWS_MAX 65536 /* bytes of one text */

/* Append one row and its separator; a kind that does not travel appends nothing. -ENOMEM. */
int meta_rows_format(struct buf *out, const struct meta_row *row);

/*
 * Parse all of @text into a list linked by next; *sync tells that a '!' was there.
 * -EINVAL: malformed, with the place in @err; nothing is returned then.
 */
int meta_rows_parse(const char *text, size_t len, struct meta_row **out, bool *sync,
		    struct err *err);

#endif
