/* fs/channel/channel.c - conversations with the control file */

/*
 * One lock for all channels: it is held to move bytes and pointers, never while a command
 * runs, a request is answered or a poll is notified. A channel is a job: it is to be run
 * when it has a line and no thread works on it (busy), and then runs line after line. A
 * line that may take minutes is handed on, with all that follow, to other threads.
 * While more than UNREAD_MAX bytes of answers are unread it is left alone, whatever lines
 * it has, and the read that makes it less sets it to work again: one write may bring a
 * hundred thousand lines. It is freed by the thread that works on it, or by release when
 * none does.
 *
 * A read that has to wait is kept in the channel's list with its request. Whoever takes
 * it out of the list, under the lock, answers it: the thread that has an answer, or the
 * interrupt. libfuse calls the interrupt function with the request's own lock held, and
 * at once when the interrupt came first; it then finds no such read yet and does
 * nothing, and fs_channel_read sees the interrupt itself. Who closes after an interrupted
 * read was killed, or has given up: what runs for him is unwanted then, as everything is
 * once all is shut. Who closes without having asked for an answer did not want one before.
 */
#define FUSE_USE_VERSION 312
#include "fs/channel/channel.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/channel/channel_i.h"

#define QUEUED_MAX (1 << 20)
#define LINES_MAX  1024

static void channel_job(struct fs_job *job);
static void patient_job(struct fs_job *job);

void fs_channel_free(struct fs_channel *c)
{
	while (c->head) {
		struct fs_channel_line *line = c->head;

		c->head = line->next;
		free(line);
	}
	while (c->reads) {
		struct fs_channel_waiter *r = c->reads;

		c->reads = r->next;
		free(r);
	}
	if (c->ph)
		fuse_pollhandle_destroy(c->ph);
	for (size_t i = 0; i < c->attached.nr; i++)
		free(c->attached.ids[i]);
	free(c->attached.ids);
	control_line_fini(&c->held);
	buf_fini(&c->partial);
	buf_fini(&c->answers);
	free(c);
}

bool fs_channel_is_stuffed_locked(const struct fs_channel *c) REQUIRES(c->all->lock)
{
	return !c->released && !c->all->shut &&
	       c->answers.len - c->answers_pos > FS_CHANNEL_UNREAD_MAX;
}

bool fs_channel_set_to_work_locked(struct fs_channel *c) REQUIRES(c->all->lock)
{
	if (!c->head || c->busy || fs_channel_is_stuffed_locked(c))
		return false;
	c->busy = true;
	return true;
}

int fs_channel_new(struct fs_channels *all, struct fs_channel **out)
{
	struct fs_channel *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->job.run = channel_job;
	c->patient_job.run = patient_job;
	c->all = all;
	c->tail = &c->head;
	lock_take(&all->lock);
	c->next = all->list;
	if (c->next)
		c->next->prev = c;
	all->list = c;
	lock_drop(&all->lock);
	*out = c;
	return 0;
}

static void unlink_channel_locked(struct fs_channel *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		c->all->list = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->prev = NULL;
	c->next = NULL;
}

static int add_line_locked(struct fs_channel *c) REQUIRES(c->all->lock)
{
	size_t len = c->overlong ? 0 : c->partial.len;
	struct fs_channel_line *line = malloc(sizeof(*line) + len);

	if (!line)
		return -ENOMEM;
	*line = (struct fs_channel_line){NULL, c->overlong, len};
	if (len > 0)
		memcpy(line->text, c->partial.data, len);
	c->overlong = false;
	buf_reset(&c->partial);
	*c->tail = line;
	c->tail = &line->next;
	c->nr_pending++;
	c->nr_queued += len;
	c->all->nr_pending++;
	return 0;
}

static int take_bytes_locked(struct fs_channel *c, const char *data, size_t len)
	REQUIRES(c->all->lock)
{
	int ret = 0;

	while (len > 0 && ret == 0) {
		const char *end = memchr(data, '\n', len);
		size_t nr = end ? (size_t)(end - data) : len;

		if (c->overlong || c->partial.len + nr > CONTROL_LINE_MAX) {
			c->overlong = true;
			buf_reset(&c->partial);
		} else {
			ret = buf_append(&c->partial, data, nr);
		}
		if (ret == 0 && end)
			ret = add_line_locked(c);
		nr += end != NULL;
		data += nr;
		len -= nr;
	}
	return ret;
}

int fs_channel_write(struct fs_channel *c, const void *data, size_t len, struct fs_job **job)
{
	bool submit;
	int ret = -ENOBUFS;

	lock_take(&c->all->lock);
	if (c->answers.len - c->answers_pos <= FS_CHANNEL_UNREAD_MAX &&
	    c->nr_queued <= QUEUED_MAX && c->nr_pending < LINES_MAX)
		ret = take_bytes_locked(c, data, len);
	submit = fs_channel_set_to_work_locked(c);
	lock_drop(&c->all->lock);
	*job = submit ? &c->job : NULL;
	return ret;
}

static struct fs_channel_line *next_line(struct fs_channel *c, bool *shut)
{
	struct fs_channel_line *line;

	lock_take(&c->all->lock);
	while (!c->all->open && !c->all->shut)
		(void)lock_wait(&c->all->lock, &c->all->changed, 0);
	*shut = c->all->shut;
	line = fs_channel_is_stuffed_locked(c) ? NULL : c->head;
	if (line) {
		c->head = line->next;
		c->nr_queued -= line->len;
		if (!c->head)
			c->tail = &c->head;
	}
	lock_drop(&c->all->lock);
	return line;
}

static int refuse(const struct fs_channel_line *line, bool shut, struct buf *out)
{
	if (line->too_long)
		return control_refuse(-E2BIG, "a command is longer than 1 MiB", out);
	return shut ? control_refuse(-ESHUTDOWN, "the mount is ending", out) : 1;
}

static void add_answer(struct fs_channel *c, const struct buf *answer)
{
	lock_take(&c->all->lock);
	if (!c->released)
		(void)buf_append(&c->answers, answer->data, answer->len);
	c->nr_pending--;
	c->all->nr_pending--;
	(void)pthread_cond_broadcast(&c->all->changed);
	lock_drop(&c->all->lock);
	fs_channel_serve(c);
}

/* No line is to be run: true when the channel was released and is ours to end. */
static bool stop_working(struct fs_channel *c, bool *more)
{
	bool ended;

	lock_take(&c->all->lock);
	*more = c->head != NULL && !fs_channel_is_stuffed_locked(c);
	ended = !*more && c->released;
	if (!*more && !ended)
		c->busy = false;
	lock_drop(&c->all->lock);
	return ended;
}

/*
 * While shutting down sandboxes stay: the next daemon brings them back. It may be reopened,
 * though.
 */
static void end_channel(struct fs_channel *c)
{
	struct fs_channels *all = c->all;
	bool abandon = c->attached.nr > 0;

	lock_take(&all->lock);
	c->parked = all->shut && abandon;
	if (c->parked) {
		lock_drop(&all->lock);
		return;
	}
	all->nr_pending += abandon;
	lock_drop(&all->lock);
	if (abandon)
		control_abandon(all->env, &c->attached);
	lock_take(&all->lock);
	all->nr_pending -= abandon;
	(void)pthread_cond_broadcast(&all->changed);
	unlink_channel_locked(c);
	lock_drop(&all->lock);
	fs_channel_free(c);
}

static void answer_line(struct fs_channel *c, int ret, struct buf *answer)
{
	if (ret < 0) {
		buf_reset(answer);
		(void)buf_append_str(
			answer,
			"{\"ok\":false,\"errno\":\"ENOMEM\",\"error\":\"out of memory\"}\n");
	}
	add_answer(c, answer);
}

static void run_held(struct fs_channel *c, bool shut)
{
	auto_buf struct buf answer = {0};
	int ret = shut ? control_refuse(-ESHUTDOWN, "the mount is ending", &answer)
		       : control_run(c->all->env, &c->attached, &c->unwanted, &c->held, &answer);

	control_line_fini(&c->held);
	answer_line(c, ret, &answer);
}

/* False: it takes long, is held, and is to be handed on. */
static bool do_line(struct fs_channel *c, const struct fs_channel_line *line, bool shut,
		    bool patient)
{
	auto_buf struct buf answer = {0};
	int ret = refuse(line, shut, &answer);

	if (ret != 1) {
		answer_line(c, ret, &answer);
		return true;
	}
	c->held = (struct control_line){0};
	control_line_parse(&c->held, line->text, line->len);
	if (!patient && c->held.code == 0 && control_takes_long(&c->held.req))
		return false;
	run_held(c, false);
	return true;
}

/* Until there is nothing to do, or others go on with it: the channel may be gone then. */
static void work(struct fs_channel *c, bool patient)
{
	struct fs_channel_line *line;
	bool more = true;
	bool shut;

	while (more) {
		while ((line = next_line(c, &shut)) != NULL) {
			bool done = do_line(c, line, shut, patient);

			free(line);
			if (!done) {
				fs_executor_submit(c->all->patient, &c->patient_job);
				return;
			}
		}
		if (stop_working(c, &more)) {
			end_channel(c);
			return;
		}
	}
}

static void channel_job(struct fs_job *job)
{
	work((struct fs_channel *)job, false);
}

static void patient_job(struct fs_job *job)
{
	struct fs_channel *c =
		(struct fs_channel *)((char *)job - offsetof(struct fs_channel, patient_job));
	bool shut;

	lock_take(&c->all->lock);
	shut = c->all->shut;
	lock_drop(&c->all->lock);
	run_held(c, shut);
	work(c, true);
}

void fs_channel_release(struct fs_channel *c)
{
	size_t unfinished;
	bool submit;

	lock_take(&c->all->lock);
	c->released = true;
	if (c->interrupted) {
		atomic_store(&c->unwanted, true);
		atomic_store(&c->attached.left, true);
	}
	unfinished = c->overlong ? CONTROL_LINE_MAX : c->partial.len;
	submit = !c->busy && !c->all->shut;
	c->parked = !c->busy && c->all->shut;
	c->busy = true;
	(void)pthread_cond_broadcast(&c->all->changed);
	lock_drop(&c->all->lock);
	if (unfinished > 0)
		log_warn("control was closed within a line: %zu bytes without a newline are no "
			 "command",
			 unfinished);
	if (submit)
		fs_executor_submit(c->all->executor, &c->job);
}
