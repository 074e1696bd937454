/* meta/uses.c - the next writer takes the uses that wait in a file (uses_leave.c) */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/store/store.h"
#include "meta/ledger/queue.h"
#include "meta/ledger/rows.h"
#include "meta/meta_i.h"

/* A line that cannot be read, the end of a write that was cut off, is left out. */
static void push_line(struct meta *meta, const char *line, size_t len)
{
	struct meta_row *row = NULL;
	bool sync;

	if (meta_rows_parse(line, len, &row, &sync, NULL) < 0)
		return;
	while (row) {
		struct meta_row *next = row->next;

		meta_queue_push(meta->queue, row);
		row = next;
	}
}

void meta_uses_take(struct meta *meta)
{
	int store_fd = cas_store_dir_fd(meta->store);
	auto_buf struct buf text = {0};
	auto_close int fd = -1;
	int ret = meta_uses_open(store_fd, O_RDONLY, &fd);

	if (ret == -ENOENT)
		return;
	if (ret == 0)
		ret = io_read_file(store_fd, META_USES_PATH, META_USES_MAX, &text);
	for (size_t at = 0; ret == 0 && at < text.len;) {
		const char *end = memchr(text.data + at, '\n', text.len - at);
		size_t len = end ? (size_t)(end - text.data) - at : text.len - at;

		push_line(meta, text.data + at, len);
		at += len + 1;
	}
	/* Unread or not: it would be in the way for ever. */
	if (unlinkat(store_fd, META_USES_PATH, 0) < 0 && ret == 0)
		ret = -errno;
	if (ret < 0)
		log_warn("lost what was used without a daemon: %s/" META_USES_PATH ": %s",
			 cas_store_path(meta->store), strerror(-ret));
}
