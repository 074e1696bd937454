/* tests/fuzz/fuzz_rows.c - any text: refused, or rows that print as they were read */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "meta/ledger/queue.h"
#include "meta/ledger/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf struct buf again = {0};
	struct meta_row *rows = NULL;
	struct err err = {0};
	bool sync = false;
	int ret = meta_rows_parse((const char *)data, size, &rows, &sync, &err);

	FUZZ_CHECK(ret == 0 || ret == -EINVAL || ret == -ENOMEM);
	if (ret < 0) {
		FUZZ_CHECK(rows == NULL && !sync && err.msg[0] != '\0');
		return 0;
	}
	while (rows) {
		struct meta_row *next = rows->next;

		FUZZ_CHECK(meta_rows_format(&again, rows) == 0);
		meta_row_free(rows);
		rows = next;
	}
	/* Only a '!' is not a row, and the last separator may be missing. */
	if (!sync && size > 0 && data[size - 1] != ';' && again.len > 0)
		again.len--;
	if (!sync)
		FUZZ_CHECK(again.len == size && memcmp(buf_str(&again), data, size) == 0);
	return 0;
}
