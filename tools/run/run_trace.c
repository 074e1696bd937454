/* tools/run/run_trace.c - what was recorded of a run, as files */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/trace/trace.h"
#include "tools/cmd/client.h"
#include "tools/run/run.h"

#define TEXT_MAX    (1 << 30)
#define UNUSED_NAME "unused_inputs_list"

int run_settle_trace(void *ctx, struct err *err)
{
	struct run *run = ctx;
	const char *const words[] = {"show", run->id};

	return client_ask(run->client, words, 2, CLIENT_QUICK_MS, NULL, err);
}

/* MNT/.casbox/sandboxes/ID. */
static int open_from(struct run *run, struct err *err)
{
	const char *const words[] = {"version"};
	auto_free char *path = NULL;
	json_t *answer = NULL;
	int fd = -1;
	int ret = client_ask(run->client, words, 1, CLIENT_QUICK_MS, &answer, err);

	if (ret)
		return ret;
	if (asprintf(&path, "%s/.casbox/sandboxes/%s", client_text(answer, "mountpoint"), run->id) <
	    0)
		path = NULL;
	else
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = -errno;
	json_decref(answer);
	return fd >= 0 ? fd
		       : err_set(err, path ? ret : -ENOMEM, "cannot open %s: %s",
				 path ? path : "the trace", strerror(path ? -ret : ENOMEM));
}

static int open_to(struct run *run, struct err *err)
{
	int fd;

	if (mkdir(run->trace_dir, 0777) && errno != EEXIST)
		return err_set(err, -errno, "cannot make --trace-dir %s: %s", run->trace_dir,
			       strerror(errno));
	fd = open(run->trace_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_set(err, -errno, "cannot open --trace-dir %s: %s", run->trace_dir,
				strerror(errno))
		      : fd;
}

static int write_text(struct run *run, int to, const char *name, const struct buf *text,
		      struct err *err)
{
	int ret = io_replace_file(to, name, text->data, text->len, 0644, false);

	return ret ? err_set(err, ret, "cannot write %s/%s: %s", run->trace_dir, name,
			     strerror(-ret))
		   : 0;
}

/*
 * A line of ours as a line of Bazel's, which takes each for a path from the root of execution
 * (ours) and knows no escapes. A name with a newline cannot be told: it counts as used.
 */
static int append_unused(struct buf *list, const char *line, size_t len)
{
	size_t before = list->len;
	int ret = 0;

	for (size_t i = 0; i < len && ret == 0; i++) {
		bool escaped = line[i] == '\\' && i + 1 < len;

		i += escaped;
		if (escaped && line[i] == 'n') {
			list->len = before;
			return 0;
		}
		ret = buf_append_char(list, line[i]);
	}
	return ret ? ret : buf_append_char(list, '\n');
}

static int write_unused(struct run *run, int to, const struct buf *unread, struct err *err)
{
	auto_buf struct buf list = {0};
	const char *line = buf_str(unread);
	int ret = 0;

	while (*line && ret == 0) {
		size_t len = strcspn(line, "\n");

		if (strncmp(line, "# ", 2) != 0)
			ret = append_unused(&list, line, len);
		line += len + (line[len] == '\n');
	}
	return ret ? run_out_of_memory(err) : write_text(run, to, UNUSED_NAME, &list, err);
}

static int write_all(struct run *run, int from, int to, struct err *err)
{
	int ret = 0;

	for (int i = 0; i < FS_TRACE_NR_TEXTS && ret == 0; i++) {
		const char *name = fs_trace_text_name((enum fs_trace_text)i);
		auto_buf struct buf text = {0};

		ret = io_read_file(from, name, TEXT_MAX, &text);
		if (ret)
			return err_set(err, ret, "cannot read %s of the sandbox: %s", name,
				       strerror(-ret));
		ret = write_text(run, to, name, &text, err);
		if (ret == 0 && i == FS_TRACE_TEXT_UNREAD)
			ret = write_unused(run, to, &text, err);
	}
	return ret;
}

int run_write_trace(struct run *run, struct err *err)
{
	auto_close int from = -1;
	auto_close int to = -1;

	if (!run->trace_dir)
		return 0;
	from = open_from(run, err);
	if (from < 0)
		return from;
	to = open_to(run, err);
	return to < 0 ? to : write_all(run, from, to, err);
}
