/* fs/channel/channel_read.c - answers, and the reads that wait for them */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/channel/channel_i.h"

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
	} else if (c->answers_pos > FS_CHANNEL_UNREAD_MAX) {
		/* Who is always a little behind does not keep what he has read. */
		c->answers.len -= c->answers_pos;
		memmove(c->answers.data, c->answers.data + c->answers_pos, c->answers.len);
		c->answers_pos = 0;
	}
	(void)pthread_cond_broadcast(&c->all->changed);
}

void fs_channel_serve(struct fs_channel *c)
{
	for (;;) {
		auto_buf struct buf bytes = {0};
		struct fuse_pollhandle *ph = NULL;
		struct fs_channel_waiter *r = NULL;

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

static struct fs_channel_waiter *take_interrupted_locked(struct fs_channels *all, fuse_req_t req)
	REQUIRES(all->lock)
{
	for (struct fs_channel *c = all->list; c; c = c->next) {
		for (struct fs_channel_waiter **p = &c->reads; *p; p = &(*p)->next) {
			struct fs_channel_waiter *found = *p;

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
	struct fs_channel_waiter *found;

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

static enum read_verdict judge_read_locked(struct fs_channel *c, struct fs_channel_waiter *r,
					   bool nonblock, struct buf *bytes) REQUIRES(c->all->lock)
{
	struct fs_channel_waiter **p = &c->reads;

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
	struct fs_channel_waiter *r = calloc(1, sizeof(*r));
	auto_buf struct buf bytes = {0};
	enum read_verdict verdict;
	bool submit;

	if (!r) {
		(void)fuse_reply_err(req, ENOMEM);
		return;
	}
	*r = (struct fs_channel_waiter){NULL, req, size};
	fuse_req_interrupt_func(req, on_interrupt, c->all);
	lock_take(&c->all->lock);
	verdict = judge_read_locked(c, r, nonblock, &bytes);
	submit = fs_channel_set_to_work_locked(c);
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
