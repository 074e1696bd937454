/* meta/ledger/rows.c - rows as text, from a client to the daemon */
#include "meta/ledger/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "meta/ledger/queue.h"

#define STRING_MAX 4096 /* bytes of an id, a root or a state */

static int append_hex(struct buf *out, const char *s)
{
	int ret = 0;

	for (; ret == 0 && *s != '\0'; s++)
		ret = buf_printf(out, "%02x", (unsigned char)*s);
	return ret;
}

static int format_sandbox(struct buf *out, const struct meta_row_sandbox *s)
{
	int ret = buf_append_str(out, "s,");

	if (ret == 0)
		ret = append_hex(out, s->id);
	if (ret == 0)
		ret = buf_append_char(out, ',');
	if (ret == 0)
		ret = append_hex(out, s->root);
	if (ret == 0)
		ret = buf_append_char(out, ',');
	if (ret == 0)
		ret = append_hex(out, s->state);
	if (ret == 0)
		ret = buf_printf(out, ",%" PRId64 ",%" PRId64 ",%d;", s->created_ns, s->finished_ns,
				 s->exit_code);
	return ret;
}

static int format_came(struct buf *out, const char *digest, const struct meta_row_came *came)
{
	int ret = buf_printf(out, "o,%s,", digest);

	if (ret == 0)
		ret = append_hex(out, came->source);
	return ret == 0 ? buf_printf(out, ",%" PRId64 ";", came->when_ns) : ret;
}

int meta_rows_format(struct buf *out, const struct meta_row *row)
{
	char text[CAS_DIGEST_STR_SZ];

	(void)cas_digest_format(&row->digest, '/', text);
	switch (row->kind) {
	case META_ROW_BLOB:
		if (!row->has_stamp)
			return buf_printf(out, "b,%s;", text);
		return buf_printf(out, "b,%s,%" PRIu64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ";",
				  text, row->stamp.ino, row->stamp.mtime_ns, row->stamp.ctime_ns,
				  row->stamp.blocks);
	case META_ROW_TOUCH:
		return buf_printf(out, "t,%s;", text);
	case META_ROW_TREE:
		return buf_printf(out, "r,%s;", text);
	case META_ROW_DROP:
		return buf_printf(out, "d,%s;", text);
	case META_ROW_FILE:
		return buf_printf(out, "f,%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRId64 ",%s;",
				  row->file.dev, row->file.ino, row->file.mtime_ns,
				  row->file.ctime_ns, text);
	case META_ROW_SANDBOX:
		return format_sandbox(out, &row->sandbox);
	case META_ROW_CAME:
		return format_came(out, text, &row->came);
	case META_ROW_DIR:
		break; /* the daemon packs for itself */
	}
	return 0;
}

/* The rest of one row; fields are cut off its front. */
struct cursor {
	const char *at;
	size_t left;
	bool more; /* a field follows */
};

static int field_next(struct cursor *c, const char **field, size_t *len)
{
	const char *comma;

	if (!c->more)
		return -EINVAL;
	comma = memchr(c->at, ',', c->left);
	*field = c->at;
	*len = comma ? (size_t)(comma - c->at) : c->left;
	c->more = comma != NULL;
	c->at += *len + (comma != NULL);
	c->left -= *len + (comma != NULL);
	return 0;
}

static int parse_u64(const char *s, size_t len, uint64_t max, uint64_t *out)
{
	uint64_t value = 0;

	if (len == 0 || (len > 1 && s[0] == '0'))
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		unsigned digit = (unsigned)(unsigned char)s[i] - '0';

		if (digit > 9 || value > (max - digit) / 10)
			return -EINVAL;
		value = value * 10 + digit;
	}
	*out = value;
	return 0;
}

static int field_u64(struct cursor *c, uint64_t *out)
{
	const char *s;
	size_t len;
	int ret = field_next(c, &s, &len);

	return ret < 0 ? ret : parse_u64(s, len, UINT64_MAX, out);
}

static int field_i64(struct cursor *c, int64_t *out)
{
	const char *s;
	uint64_t value;
	size_t len;
	bool minus;
	int ret = field_next(c, &s, &len);

	if (ret < 0)
		return ret;
	minus = len > 0 && s[0] == '-';
	ret = parse_u64(s + minus, len - minus, INT64_MAX, &value);
	if (ret < 0 || (minus && value == 0))
		return -EINVAL;
	*out = minus ? -(int64_t)value : (int64_t)value;
	return 0;
}

static int field_int(struct cursor *c, int *out)
{
	int64_t value;
	int ret = field_i64(c, &value);

	if (ret < 0 || value < INT32_MIN || value > INT32_MAX)
		return -EINVAL;
	*out = (int)value;
	return 0;
}

static int field_digest(struct cursor *c, struct cas_digest *out)
{
	char text[CAS_DIGEST_STR_SZ];
	const char *s;
	size_t len;
	int ret = field_next(c, &s, &len);

	if (ret < 0 || len <= CAS_HASH_HEX_SZ || len >= sizeof(text) || s[CAS_HASH_HEX_SZ] != '/' ||
	    memchr(s, '\0', len))
		return -EINVAL;
	memcpy(text, s, len);
	text[len] = '\0';
	return cas_digest_parse(text, out);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int field_string(struct cursor *c, char **out)
{
	const char *s;
	char *text;
	size_t len;
	int ret = field_next(c, &s, &len);

	if (ret < 0 || len % 2 != 0 || len / 2 > STRING_MAX)
		return -EINVAL;
	text = malloc(len / 2 + 1);
	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < len / 2; i++) {
		int high = hex_digit(s[2 * i]), low = hex_digit(s[2 * i + 1]);

		if (high < 0 || low < 0 || (high == 0 && low == 0)) {
			free(text);
			return -EINVAL;
		}
		text[i] = (char)(high * 16 + low);
	}
	text[len / 2] = '\0';
	*out = text;
	return 0;
}

static int parse_blob(struct cursor *c, struct meta_row *row)
{
	int ret = field_digest(c, &row->digest);

	if (ret < 0 || !c->more)
		return ret;
	row->has_stamp = true;
	row->stamp.size = row->digest.size;
	ret = field_u64(c, &row->stamp.ino);
	if (ret == 0)
		ret = field_i64(c, &row->stamp.mtime_ns);
	if (ret == 0)
		ret = field_i64(c, &row->stamp.ctime_ns);
	if (ret == 0)
		ret = field_u64(c, &row->stamp.blocks);
	return ret;
}

static int parse_file(struct cursor *c, struct meta_row *row)
{
	int ret = field_u64(c, &row->file.dev);

	if (ret == 0)
		ret = field_u64(c, &row->file.ino);
	if (ret == 0)
		ret = field_i64(c, &row->file.mtime_ns);
	if (ret == 0)
		ret = field_i64(c, &row->file.ctime_ns);
	if (ret == 0)
		ret = field_digest(c, &row->digest);
	row->file.size = row->digest.size;
	return ret;
}

static int parse_sandbox(struct cursor *c, struct meta_row_sandbox *s)
{
	int ret = field_string(c, &s->id);

	if (ret == 0)
		ret = field_string(c, &s->root);
	if (ret == 0)
		ret = field_string(c, &s->state);
	if (ret == 0)
		ret = field_i64(c, &s->created_ns);
	if (ret == 0)
		ret = field_i64(c, &s->finished_ns);
	if (ret == 0)
		ret = field_int(c, &s->exit_code);
	return ret;
}

static int parse_came(struct cursor *c, struct meta_row *row)
{
	int ret = field_digest(c, &row->digest);

	if (ret == 0)
		ret = field_string(c, &row->came.source);
	return ret == 0 ? field_i64(c, &row->came.when_ns) : ret;
}

static int kind_of(const char *word, size_t len, enum meta_row_kind *out)
{
	static const struct {
		char letter;
		enum meta_row_kind kind;
	} kinds[] = {
		{'b', META_ROW_BLOB}, {'t', META_ROW_TOUCH},   {'d', META_ROW_DROP},
		{'f', META_ROW_FILE}, {'s', META_ROW_SANDBOX}, {'r', META_ROW_TREE},
		{'o', META_ROW_CAME},
	};

	for (size_t i = 0; len == 1 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].letter == word[0]) {
			*out = kinds[i].kind;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_fields(struct cursor *c, struct meta_row *row)
{
	switch (row->kind) {
	case META_ROW_BLOB:
		return parse_blob(c, row);
	case META_ROW_TOUCH:
	case META_ROW_TREE:
	case META_ROW_DROP:
		return field_digest(c, &row->digest);
	case META_ROW_FILE:
		return parse_file(c, row);
	case META_ROW_SANDBOX:
		return parse_sandbox(c, &row->sandbox);
	case META_ROW_CAME:
		return parse_came(c, row);
	case META_ROW_DIR:
		break;
	}
	return -EINVAL;
}

static int parse_row(const char *text, size_t len, struct meta_row **out)
{
	struct cursor c = {.at = text, .left = len, .more = true};
	enum meta_row_kind kind;
	struct meta_row *row;
	const char *word;
	size_t word_len;
	int ret = field_next(&c, &word, &word_len);

	if (ret == 0)
		ret = kind_of(word, word_len, &kind);
	if (ret < 0)
		return ret;
	row = meta_row_new(kind, NULL);
	if (!row)
		return -ENOMEM;
	ret = parse_fields(&c, row);
	if (ret == 0 && c.more)
		ret = -EINVAL;
	if (ret < 0) {
		meta_row_free(row);
		return ret;
	}
	*out = row;
	return 0;
}

static void list_free(struct meta_row *row)
{
	while (row) {
		struct meta_row *next = row->next;

		meta_row_free(row);
		row = next;
	}
}

static int parse_list(const char *text, size_t len, struct meta_row **tail, bool *sync,
		      size_t *where)
{
	size_t at = 0;

	while (at < len) {
		const char *end = memchr(text + at, ';', len - at);
		size_t row_len = end ? (size_t)(end - text) - at : len - at;
		int ret;

		*where = at;
		if (row_len == 1 && text[at] == '!') {
			*sync = true;
		} else {
			ret = parse_row(text + at, row_len, tail);
			if (ret < 0)
				return ret;
			tail = &(*tail)->next;
		}
		at += row_len + 1;
	}
	return 0;
}

int meta_rows_parse(const char *text, size_t len, struct meta_row **out, bool *sync,
		    struct err *err)
{
	struct meta_row *rows = NULL;
	bool got_sync = false;
	size_t where = 0;
	int ret;

	if (len == 0 || len > META_ROWS_MAX)
		return err_set(err, -EINVAL, "rows of %zu bytes; 1 to %d are allowed", len,
			       META_ROWS_MAX);
	ret = parse_list(text, len, &rows, &got_sync, &where);
	if (ret < 0) {
		list_free(rows);
		return err_set(err, ret, "malformed row at byte %zu", where);
	}
	*out = rows;
	*sync = got_sync;
	return 0;
}
