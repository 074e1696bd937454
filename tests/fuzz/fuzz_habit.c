/* tests/fuzz/fuzz_habit.c - any file: refused, or one that comes out as it went in */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "cas/base/buf.h"
#include "fs/learn/habit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fs_habit *habit = NULL;
	struct buf text = {0};
	int ret = fs_habit_parse((const char *)data, size, &habit);

	FUZZ_CHECK(ret == 0 || ret == -EUCLEAN || ret == -ENOMEM);
	if (ret < 0)
		return 0;
	FUZZ_CHECK(fs_habit_count(habit) <= FS_HABIT_PATHS_MAX);
	FUZZ_CHECK(habit->tops.nr <= FS_HABIT_TOPS_MAX);
	FUZZ_CHECK(fs_habit_likeness(&habit->tops, &habit->tops) == 100);
	if (fs_habit_count(habit) < FS_HABIT_PATHS_MAX && fs_habit_format(habit, &text) == 0) {
		struct fs_habit *again = NULL;

		ret = fs_habit_parse(text.data, text.len, &again);
		FUZZ_CHECK(ret == 0 || ret == -ENOMEM);
		FUZZ_CHECK(ret < 0 || fs_habit_count(again) == fs_habit_count(habit));
		fs_habit_free(again);
	}
	buf_fini(&text);
	fs_habit_free(habit);
	return 0;
}
