/* meta/ledger/record.c - a batch of rows: into index and ledger, or off to the daemon */
#include <errno.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "meta/index/index.h"
#include "meta/index/packed_dir.h"
#include "meta/ledger/ledger.h"
#include "meta/ledger/queue.h"
#include "meta/ledger/rows.h"
#include "meta/meta_i.h"

static int index_row(struct meta_index *ix, const struct meta_row *row)
{
	int ret;

	switch (row->kind) {
	case META_ROW_BLOB:
		return meta_index_blob_put(ix, &row->digest, row->has_stamp ? &row->stamp : NULL);
	case META_ROW_DROP:
		ret = meta_index_blob_del(ix, row->digest.hash);
		return ret < 0 ? ret : meta_index_dir_del(ix, &row->digest);
	case META_ROW_FILE:
		return meta_index_file_put(ix, &row->file, &row->digest);
	case META_ROW_DIR:
		return meta_index_dir_put(ix, &row->digest, row->dir->data, row->dir->len);
	case META_ROW_TOUCH:
	case META_ROW_TREE:
	case META_ROW_SANDBOX:
	case META_ROW_CAME:
		break;
	}
	return 0;
}

static bool index_wants(const struct meta_row *row)
{
	return row->kind != META_ROW_TOUCH && row->kind != META_ROW_TREE &&
	       row->kind != META_ROW_SANDBOX && row->kind != META_ROW_CAME;
}

static int index_try(struct meta_index *ix, const struct meta_row *rows, struct err *err)
{
	int ret = meta_index_begin(ix, err);

	for (const struct meta_row *row = rows; ret == 0 && row; row = row->next) {
		ret = index_row(ix, row);
		if (ret < 0)
			(void)err_set(err, ret, "cannot write the index: %s", err_name(ret));
	}
	if (ret == 0)
		return meta_index_commit(ix, err);
	meta_index_abort(ix);
	return ret;
}

static int index_write(struct meta *meta, const struct meta_row *rows, struct err *err)
{
	const struct meta_row *row = rows;
	int ret;

	while (row && !index_wants(row))
		row = row->next;
	if (!row)
		return 0;
	ret = index_try(meta->index, row, err);
	if (ret == -ENOSPC && meta_index_shrink(meta->index, err) == 0) {
		log_warn("index: no room; forgot directories and source files");
		ret = index_try(meta->index, row, err);
	}
	return ret;
}

/* Bytes of blocks; by guess where nobody has looked. */
static uint64_t disk_of(const struct meta_row *row)
{
	return row->has_stamp ? row->stamp.blocks * 512 : (row->digest.size + 4095) / 4096 * 4096;
}

static int ledger_row(struct meta_ledger *l, const struct meta_row *row, struct err *err)
{
	switch (row->kind) {
	case META_ROW_BLOB:
		return meta_ledger_blob_add(l, &row->digest, disk_of(row), err);
	case META_ROW_TOUCH:
		return meta_ledger_blob_touch(l, &row->digest, err);
	case META_ROW_TREE:
		return meta_ledger_tree_touch(l, &row->digest, err);
	case META_ROW_DROP:
		return meta_ledger_blob_drop(l, &row->digest, err);
	case META_ROW_SANDBOX: {
		struct meta_sandbox_row sandbox = {
			.id = row->sandbox.id,
			.root = row->sandbox.root,
			.state = row->sandbox.state,
			.created_ns = row->sandbox.created_ns,
			.finished_ns = row->sandbox.finished_ns,
			.exit_code = row->sandbox.exit_code,
		};

		return meta_ledger_sandbox_add(l, &sandbox, err);
	}
	case META_ROW_CAME:
		return meta_ledger_blob_came(l, &row->digest, row->came.source, row->came.when_ns,
					     err);
	case META_ROW_FILE:
	case META_ROW_DIR:
		break;
	}
	return 0;
}

static bool ledger_wants(const struct meta_row *row)
{
	return row->kind != META_ROW_FILE && row->kind != META_ROW_DIR;
}

/* Uses may go missing in a power cut: for them the disk is not waited for. */
static bool is_only_uses(const struct meta_row *rows)
{
	while (rows && (rows->kind == META_ROW_TOUCH || rows->kind == META_ROW_TREE))
		rows = rows->next;
	return rows == NULL;
}

static int ledger_try(struct meta_ledger *l, const struct meta_row *rows, struct err *err)
{
	int ret = is_only_uses(rows) ? 0 : meta_ledger_mark(l, err);

	if (ret == 0)
		ret = meta_ledger_begin(l, err);
	for (const struct meta_row *row = rows; ret == 0 && row; row = row->next)
		ret = ledger_row(l, row, err);
	if (ret == 0)
		ret = meta_ledger_commit(l, err);
	meta_ledger_abort(l);
	return ret;
}

/* A damaged ledger is replaced at once: the daemon may run for months. */
static int ledger_replace_locked(struct meta *meta, struct err *err) REQUIRES(meta->ledger_lock)
{
	(void)meta_ledger_close(meta->ledger, false, NULL);
	meta->ledger = NULL;
	return meta_ledger_open_locked(meta, err);
}

static int ledger_write_locked(struct meta *meta, const struct meta_row *rows, struct err *err)
	REQUIRES(meta->ledger_lock)
{
	const struct meta_row *row = rows;
	int ret;

	while (row && !ledger_wants(row))
		row = row->next;
	if (!row)
		return 0;
	ret = meta->ledger ? ledger_try(meta->ledger, row, err) : -EUCLEAN;
	if (ret == -EUCLEAN) {
		ret = ledger_replace_locked(meta, err);
		if (ret == 0)
			ret = ledger_try(meta->ledger, row, err);
	}
	if (ret == 0 && meta_ledger_checkpoint(meta->ledger, err) < 0)
		log_warn("%s", err_text(err, -EIO));
	return ret;
}

static void forget_recorded(struct meta *meta, const struct meta_row *rows)
{
	for (const struct meta_row *row = rows; row; row = row->next) {
		if (row->kind == META_ROW_DIR)
			meta_dirs_recorded(meta->dirs, &row->digest);
	}
}

int meta_record_write(void *ctx, const struct meta_row *rows, bool flush, struct err *err)
{
	struct meta *meta = ctx;
	int index_ret, ledger_ret;

	(void)flush;
	if (!rows)
		return 0;
	lock_take(&meta->ledger_lock);
	index_ret = index_write(meta, rows, err);
	ledger_ret = ledger_write_locked(meta, rows, err);
	lock_drop(&meta->ledger_lock);
	if (index_ret == 0)
		forget_recorded(meta, rows);
	return ledger_ret < 0 ? ledger_ret : index_ret;
}

static int send_text(struct meta *meta, struct buf *text, struct err *err)
{
	int ret = 0;

	/* The last separator is left out. */
	if (text->len > 0)
		ret = meta->opts.send(meta->opts.send_ctx, text->data, text->len - 1, err);
	buf_reset(text);
	return ret < 0 ? ret : 0;
}

int meta_record_send(void *ctx, const struct meta_row *rows, bool flush, struct err *err)
{
	struct meta *meta = ctx;
	auto_buf struct buf text = {0}, one = {0};
	int ret = 0;

	for (const struct meta_row *row = rows; ret == 0 && row; row = row->next) {
		buf_reset(&one);
		ret = meta_rows_format(&one, row);
		if (ret == 0 && text.len + one.len > META_ROWS_MAX - 2)
			ret = send_text(meta, &text, err);
		if (ret == 0 && one.len > 0)
			ret = buf_append(&text, one.data, one.len);
		meta->unanswered |= one.len > 0;
	}
	if (ret == 0 && flush && meta->unanswered)
		ret = buf_append_str(&text, "!;");
	if (ret == 0)
		ret = send_text(meta, &text, err);
	if (flush)
		meta->unanswered = false;
	return ret;
}
