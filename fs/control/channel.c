/* fs/control/channel.c - conversations with the control file */

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
#include "fs/control/channel.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/control/control.h"
#include "fs/serve/executor.h"

struct line {
	struct line *next;
	bool too_long; /* no text: the line was over the limit */
	size_t len;
	char text[];
};

struct waiting_read {
	struct waiting_read *next;
	struct fuse_req *req;
	size_t size;
};

struct fs_channel {
	struct fs_job job; /* first: the job is the channel */
	struct fs_job patient_job;
	struct control_line held; /* what patient_job begins with */
	struct fs_channels *all;
	struct fs_channel *prev; /* all->lock, as everything but attached */
	struct fs_channel *next;
	struct buf partial; /* bytes after the last newline */
	bool overlong;	    /* dropping the rest of a line over the limit */
	struct line *head;
	struct line **tail;
	size_t nr_pending; /* lines not yet answered, the running one included */
	size_t nr_queued;  /* bytes of those that wait */
	bool busy;
	bool released;
	bool parked; /* released, and kept: a next daemon, or a reopen, is to see to it */
	struct buf answers;
	size_t answers_pos; /* of them, so many were read */
	struct waiting_read *reads;
	bool interrupted;      /* the last read was */
	_Atomic bool unwanted; /* nobody waits for the answer any more */
	struct fuse_pollhandle *ph;
	struct control_attached attached; /* the thread that works on it */
};

struct fs_channels {
	const struct control_env *env;
	struct fs_executor *executor;
	struct fs_executor *patient;
	struct lock lock;
	pthread_cond_t changed; /* pending or unread went down */
	size_t nr_pending GUARDED_BY(lock);
	bool open GUARDED_BY(lock);
	bool shut GUARDED_BY(lock);
	struct fs_channel *list GUARDED_BY(lock);
};

/* Who reads no answers does not get to fill the memory. */
#define UNREAD_MAX (1 << 20)
#define QUEUED_MAX (1 << 20)
#define LINES_MAX  1024

static void channel_job(struct fs_job *job);
static void patient_job(struct fs_job *job);

int fs_channels_new(const struct control_env *env, struct fs_executor *executor,
		    struct fs_executor *patient, struct fs_channels **out)
{
	struct fs_channels *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->env = env;
	all->executor = executor;
	all->patient = patient;
	lock_init(&all->lock, LOCK_RANK_SESSION, "control channels");
	lock_cond_init(&all->changed);
	*out = all;
	return 0;
}

static void free_channel(struct fs_channel *c)
{
	while (c->head) {
		struct line *line = c->head;

		c->head = line->next;
		free(line);
	}
	while (c->reads) {
		struct waiting_read *r = c->reads;

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

NO_LOCK_CHECK void fs_channels_free(struct fs_channels *all)
{
	if (!all)
		return;
	while (all->list) {
		struct fs_channel *c = all->list;

		all->list = c->next;
		free_channel(c);
	}
	(void)pthread_cond_destroy(&all->changed);
	lock_fini(&all->lock);
	free(all);
}

size_t fs_channels_nr_pending(struct fs_channels *all)
{
	size_t nr;

	lock_take(&all->lock);
	nr = all->nr_pending;
	lock_drop(&all->lock);
	return nr;
}

void fs_channels_open(struct fs_channels *all)
{
	lock_take(&all->lock);
	all->open = true;
	(void)pthread_cond_broadcast(&all->changed);
	lock_drop(&all->lock);
}

/* Are so many answers unread that no more are to be made? Nobody reads those of a released one. */
static bool is_stuffed_locked(const struct fs_channel *c) REQUIRES(c->all->lock)
{
	return !c->released && !c->all->shut && c->answers.len - c->answers_pos > UNREAD_MAX;
}

/* True: it is the caller's to submit, and is busy from now on. */
static bool set_to_work_locked(struct fs_channel *c) REQUIRES(c->all->lock)
{
	if (!c->head || c->busy || is_stuffed_locked(c))
		return false;
	c->busy = true;
	return true;
}

/* Once all is shut: one that has lines and nobody who works on it, to be submitted. */
static struct fs_channel *find_left_locked(struct fs_channels *all) REQUIRES(all->lock)
{
	struct fs_channel *c = all->list;

	while (c && (!c->head || c->busy))
		c = c->next;
	if (c)
		c->busy = true;
	return c;
}

/* Lines of those that were left alone are refused now, like all. */
void fs_channels_shut(struct fs_channels *all)
{
	struct fs_channel *c;

	lock_take(&all->lock);
	all->shut = true;
	for (c = all->list; c; c = c->next)
		atomic_store(&c->unwanted, true);
	(void)pthread_cond_broadcast(&all->changed);
	while ((c = find_left_locked(all)) != NULL) {
		lock_drop(&all->lock);
		fs_executor_submit(all->executor, &c->job);
		lock_take(&all->lock);
	}
	lock_drop(&all->lock);
}

bool fs_channels_shut_if(struct fs_channels *all, size_t nr)
{
	bool may;

	lock_take(&all->lock);
	may = all->nr_pending <= nr;
	if (may)
		all->shut = true;
	lock_drop(&all->lock);
	return may;
}

static struct fs_channel *find_parked_locked(struct fs_channels *all) REQUIRES(all->lock)
{
	struct fs_channel *c = all->list;

	while (c && !c->parked)
		c = c->next;
	return c;
}

void fs_channels_reopen(struct fs_channels *all)
{
	struct fs_channel *c;

	lock_take(&all->lock);
	all->shut = false;
	while ((c = find_parked_locked(all)) != NULL) {
		c->parked = false;
		lock_drop(&all->lock);
		fs_executor_submit(all->executor, &c->job);
		lock_take(&all->lock);
	}
	lock_drop(&all->lock);
}

bool fs_channels_wait(struct fs_channels *all, size_t nr, unsigned long long deadline_ns)
{
	int ret = 0;
	bool done;

	lock_take(&all->lock);
	while (all->nr_pending > nr && ret == 0)
		ret = lock_wait(&all->lock, &all->changed, deadline_ns);
	done = all->nr_pending <= nr;
	lock_drop(&all->lock);
	return done;
}

static bool has_unread_locked(const struct fs_channels *all) REQUIRES(all->lock)
{
	for (const struct fs_channel *c = all->list; c; c = c->next)
		if (!c->released && c->answers.len > c->answers_pos)
			return true;
	return false;
}

bool fs_channels_wait_read(struct fs_channels *all, unsigned long long deadline_ns)
{
	int ret = 0;
	bool done;

	lock_take(&all->lock);
	while (has_unread_locked(all) && ret == 0)
		ret = lock_wait(&all->lock, &all->changed, deadline_ns);
	done = !has_unread_locked(all);
	lock_drop(&all->lock);
	return done;
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
	struct line *line = malloc(sizeof(*line) + len);

	if (!line)
		return -ENOMEM;
	*line = (struct line){NULL, c->overlong, len};
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
	if (c->answers.len - c->answers_pos <= UNREAD_MAX && c->nr_queued <= QUEUED_MAX &&
	    c->nr_pending < LINES_MAX)
		ret = take_bytes_locked(c, data, len);
	submit = set_to_work_locked(c);
	lock_drop(&c->all->lock);
	*job = submit ? &c->job : NULL;
	return ret;
}

static struct line *next_line(struct fs_channel *c, bool *shut)
{
	struct line *line;

	lock_take(&c->all->lock);
	while (!c->all->open && !c->all->shut)
		(void)lock_wait(&c->all->lock, &c->all->changed, 0);
	*shut = c->all->shut;
	line = is_stuffed_locked(c) ? NULL : c->head;
	if (line) {
		c->head = line->next;
		c->nr_queued -= line->len;
		if (!c->head)
			c->tail = &c->head;
	}
	lock_drop(&c->all->lock);
	return line;
}

static int refuse(const struct line *line, bool shut, struct buf *out)
{
	if (line->too_long)
		return control_refuse(-E2BIG, "a command is longer than 1 MiB", out);
	return shut ? control_refuse(-ESHUTDOWN, "the mount is ending", out) : 1;
}

/* Bytes for one read, or an end: the reader must be out of every list. */
static void answer_read(struct fuse_req *req, struct buf *bytes)
{
	(void)fuse_reply_buf(req, bytes->data, bytes->len);
}

/* Move up to @size unread bytes to @out. */
static void take_answers_locked(struct fs_channel *c, size_t size, struct buf *out)
	REQUIRES(c->all->lock)
{
	size_t left = c->answers.len - c->answers_pos;
	size_t nr = left < size ? left : size;

	if (nr == 0 || buf_append(out, c->answers.data + c->answers_pos, nr) < 0)
		return;
	c->answers_pos += nr;
	if (c->answers_pos == c->answers.len) {
		buf_fini(&c->answers);
		c->answers = (struct buf){0};
		c->answers_pos = 0;
	} else if (c->answers_pos > UNREAD_MAX) {
		/* Who is always a little behind does not keep what he has read. */
		c->answers.len -= c->answers_pos;
		memmove(c->answers.data, c->answers.data + c->answers_pos, c->answers.len);
		c->answers_pos = 0;
	}
	(void)pthread_cond_broadcast(&c->all->changed);
}

/* Answer what waits while there is something to say: bytes, or that nothing comes. */
static void serve_reads(struct fs_channel *c)
{
	for (;;) {
		auto_buf struct buf bytes = {0};
		struct fuse_pollhandle *ph = NULL;
		struct waiting_read *r = NULL;

		lock_take(&c->all->lock);
		if (c->answers.len > c->answers_pos || c->nr_pending == 0) {
			ph = c->ph;
			c->ph = NULL;
			r = c->reads;
			if (r) {
				c->reads = r->next;
				take_answers_locked(c, r->size, &bytes);
			}
		}
		lock_drop(&c->all->lock);
		if (ph) {
			(void)fuse_lowlevel_notify_poll(ph);
			fuse_pollhandle_destroy(ph);
		}
		if (!r)
			return;
		answer_read(r->req, &bytes);
		free(r);
	}
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
	serve_reads(c);
}

/* No line is to be run: true when the channel was released and is ours to end. */
static bool stop_working(struct fs_channel *c, bool *more)
{
	bool ended;

	lock_take(&c->all->lock);
	*more = c->head != NULL && !is_stuffed_locked(c);
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
	free_channel(c);
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
static bool do_line(struct fs_channel *c, const struct line *line, bool shut, bool patient)
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
	struct line *line;
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
	if (c->interrupted)
		atomic_store(&c->unwanted, true);
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

static struct waiting_read *take_interrupted_locked(struct fs_channels *all, fuse_req_t req)
	REQUIRES(all->lock)
{
	for (struct fs_channel *c = all->list; c; c = c->next) {
		for (struct waiting_read **p = &c->reads; *p; p = &(*p)->next) {
			struct waiting_read *found = *p;

			if (found->req != req)
				continue;
			*p = found->next;
			c->interrupted = true;
			return found;
		}
	}
	return NULL;
}

/* Given all channels, since the read's own may be gone when this comes late. */
static void on_interrupt(fuse_req_t req, void *data)
{
	struct fs_channels *all = data;
	struct waiting_read *found;

	/* libfuse forgets @data when the request is answered meanwhile. */
	if (!all)
		return;
	lock_take(&all->lock);
	found = take_interrupted_locked(all, req);
	lock_drop(&all->lock);
	if (found) {
		(void)fuse_reply_err(req, EINTR);
		free(found);
	}
}

enum read_verdict { READ_NOW, READ_AGAIN, READ_UNFINISHED, READ_INTERRUPTED, READ_WAITS };

static enum read_verdict judge_read_locked(struct fs_channel *c, struct waiting_read *r,
					   bool nonblock, struct buf *bytes) REQUIRES(c->all->lock)
{
	struct waiting_read **p = &c->reads;

	c->interrupted = fuse_req_interrupted(r->req) != 0;
	if (c->answers.len == c->answers_pos && c->nr_pending == 0 &&
	    (c->partial.len > 0 || c->overlong))
		return READ_UNFINISHED;
	if (c->answers.len > c->answers_pos || c->nr_pending == 0) {
		take_answers_locked(c, r->size, bytes);
		return READ_NOW;
	}
	if (nonblock)
		return READ_AGAIN;
	if (c->interrupted)
		return READ_INTERRUPTED;
	while (*p)
		p = &(*p)->next;
	*p = r;
	return READ_WAITS;
}

void fs_channel_read(struct fs_channel *c, struct fuse_req *req, size_t size, bool nonblock)
{
	struct waiting_read *r = calloc(1, sizeof(*r));
	auto_buf struct buf bytes = {0};
	enum read_verdict verdict;
	bool submit;

	if (!r) {
		(void)fuse_reply_err(req, ENOMEM);
		return;
	}
	*r = (struct waiting_read){NULL, req, size};
	fuse_req_interrupt_func(req, on_interrupt, c->all);
	lock_take(&c->all->lock);
	verdict = judge_read_locked(c, r, nonblock, &bytes);
	submit = set_to_work_locked(c);
	lock_drop(&c->all->lock);
	if (submit)
		fs_executor_submit(c->all->executor, &c->job);
	switch (verdict) {
	case READ_WAITS:
		return;
	case READ_NOW:
		answer_read(req, &bytes);
		break;
	case READ_AGAIN:
		(void)fuse_reply_err(req, EAGAIN);
		break;
	case READ_UNFINISHED:
		(void)fuse_reply_err(req, EPROTO);
		break;
	case READ_INTERRUPTED:
		(void)fuse_reply_err(req, EINTR);
		break;
	}
	free(r);
}

unsigned fs_channel_poll(struct fs_channel *c, struct fuse_pollhandle *ph)
{
	struct fuse_pollhandle *old = NULL;
	unsigned events = POLLOUT;

	lock_take(&c->all->lock);
	if (c->answers.len > c->answers_pos || c->nr_pending == 0)
		events |= POLLIN;
	if (ph) {
		old = c->ph;
		c->ph = ph;
	}
	lock_drop(&c->all->lock);
	if (old)
		fuse_pollhandle_destroy(old);
	return events;
}
