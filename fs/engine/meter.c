/* fs/engine/meter.c - how much lies in a filesystem that is a sandbox's alone, at its most */
#include "fs/engine/meter.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cas/cas.h"

#define PERIOD_NS 10000000ULL

struct fs_meter {
	struct fs_meter *next; /* lock of the meters, as what follows */
	int fd;
	struct fs_usage before;
	struct fs_usage peak;
};

struct fs_meters {
	struct lock lock; /* rank LEAF */
	pthread_cond_t wake;
	struct fs_meter *first GUARDED_BY(lock);
	bool runs GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
	pthread_t thread;
};

int fs_usage_get(int fd, struct fs_usage *out, struct err *err)
{
	struct statvfs st;

	if (fstatvfs(fd, &st) < 0)
		return err_set(err, -errno, "cannot tell what a sandbox uses: %s", strerror(errno));
	*out = (struct fs_usage){
		.bytes = (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize,
		.files = st.f_files - st.f_ffree,
	};
	return 0;
}

static void keep_most(uint64_t now, uint64_t before, uint64_t *peak)
{
	uint64_t more = now > before ? now - before : 0;

	if (more > *peak)
		*peak = more;
}

static void look(struct fs_meter *m)
{
	struct fs_usage now;

	if (fs_usage_get(m->fd, &now, NULL) < 0)
		return;
	keep_most(now.bytes, m->before.bytes, &m->peak.bytes);
	keep_most(now.files, m->before.files, &m->peak.files);
}

static void *meters_main(void *arg)
{
	struct fs_meters *meters = arg;

	lock_take(&meters->lock);
	while (!meters->stop) {
		for (struct fs_meter *m = meters->first; m; m = m->next)
			look(m);
		(void)lock_wait(&meters->lock, &meters->wake,
				meters->first ? lock_now_ns() + PERIOD_NS : 0);
	}
	lock_drop(&meters->lock);
	return NULL;
}

int fs_meters_new(struct fs_meters **out)
{
	struct fs_meters *meters = calloc(1, sizeof(*meters));

	if (!meters)
		return -ENOMEM;
	lock_init(&meters->lock, LOCK_RANK_LEAF, "meters");
	lock_cond_init(&meters->wake);
	*out = meters;
	return 0;
}

NO_LOCK_CHECK void fs_meters_free(struct fs_meters *meters)
{
	if (!meters)
		return;
	lock_take(&meters->lock);
	meters->stop = true;
	(void)pthread_cond_signal(&meters->wake);
	lock_drop(&meters->lock);
	if (meters->runs)
		(void)pthread_join(meters->thread, NULL);
	(void)pthread_cond_destroy(&meters->wake);
	lock_fini(&meters->lock);
	free(meters);
}

static int start_locked(struct fs_meters *meters) REQUIRES(meters->lock)
{
	sigset_t every, old;
	int code;

	if (meters->runs)
		return 0;
	(void)sigfillset(&every);
	(void)pthread_sigmask(SIG_SETMASK, &every, &old);
	code = pthread_create(&meters->thread, NULL, meters_main, meters);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	meters->runs = code == 0;
	return -code;
}

int fs_meter_new(struct fs_meters *meters, int fd, const struct fs_usage *before,
		 struct fs_meter **out, struct err *err)
{
	struct fs_meter *m = calloc(1, sizeof(*m));
	int ret = m ? 0 : err_set(err, -ENOMEM, "no memory to watch a sandbox");

	if (ret == 0) {
		m->fd = fd;
		m->before = *before;
		lock_take(&meters->lock);
		ret = start_locked(meters);
		if (ret == 0) {
			m->next = meters->first;
			meters->first = m;
			(void)pthread_cond_signal(&meters->wake);
		}
		lock_drop(&meters->lock);
		if (ret < 0)
			(void)err_set(err, ret, "cannot start a thread: %s", strerror(-ret));
	}
	if (ret < 0) {
		(void)close(fd);
		free(m);
		return ret;
	}
	*out = m;
	return 0;
}

void fs_meter_read(struct fs_meters *meters, struct fs_meter *meter, struct fs_usage *peak)
{
	lock_take(&meters->lock);
	look(meter);
	*peak = meter->peak;
	lock_drop(&meters->lock);
}

void fs_meter_free(struct fs_meters *meters, struct fs_meter *meter)
{
	if (!meter)
		return;
	lock_take(&meters->lock);
	for (struct fs_meter **p = &meters->first; *p; p = &(*p)->next) {
		if (*p == meter) {
			*p = meter->next;
			break;
		}
	}
	lock_drop(&meters->lock);
	(void)close(meter->fd);
	free(meter);
}
