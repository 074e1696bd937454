/* fs/mount/watchdog.c - notice a wedged session and break its connection */

/*
 * The helper, which nobody waits for, asks each session something that only a thread of
 * ours can answer. When no answer comes in time, waiting longer would leave every user
 * of the mount in an unkillable sleep: the connection is aborted, they get errors, and
 * the daemon ends with a failure for the next one to recover.
 */
#include "fs/mount/watchdog.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "fs/helper/helper.h"
#include "fs/mount/mountfd.h"

struct fs_watchdog {
	struct fs_watchdog_options opts;
	pthread_t thread;
	struct lock lock;
	pthread_cond_t wake;
	_Atomic bool ending; /* set under the lock, so that nobody waits past it */
};

/* False when it is time to end. */
static bool wait_period(struct fs_watchdog *dog)
{
	unsigned long long end =
		lock_now_ns() + (unsigned long long)dog->opts.period_ms * 1000000ULL;
	int ret = 0;

	lock_take(&dog->lock);
	while (!atomic_load(&dog->ending) && ret == 0)
		ret = lock_wait(&dog->lock, &dog->wake, end);
	lock_drop(&dog->lock);
	return !atomic_load(&dog->ending);
}

static void abort_session(const struct fs_watchdog *dog, int i)
{
	struct err err = {0};
	int ret = fs_mount_abort(dog->opts.devs[i], &err);

	if (ret < 0)
		log_error("%s does not answer and cannot be aborted: %s", dog->opts.paths[i],
			  err_text(&err, ret));
	else
		log_error("%s did not answer for %d ms: its connection is aborted",
			  dog->opts.paths[i], dog->opts.timeout_ms);
}

/* True when a session had to be aborted. */
static bool check_sessions(struct fs_watchdog *dog)
{
	for (int i = 0; i < 2 && dog->opts.paths[i]; i++) {
		struct err err = {0};
		int ret = fs_helper_ping_unless(dog->opts.helper, dog->opts.paths[i],
						dog->opts.timeout_ms, &dog->ending, &err);

		if (atomic_load(&dog->ending))
			return false;
		if (ret == -ETIMEDOUT) {
			abort_session(dog, i);
			return true;
		}
		if (ret < 0)
			log_warn("the watchdog cannot look at %s: %s", dog->opts.paths[i],
				 err_text(&err, ret));
	}
	return false;
}

static void *watchdog_thread(void *arg)
{
	struct fs_watchdog *dog = arg;

	while (wait_period(dog)) {
		if (check_sessions(dog)) {
			dog->opts.wedged(dog->opts.ctx);
			break;
		}
	}
	return NULL;
}

NO_LOCK_CHECK int fs_watchdog_new(const struct fs_watchdog_options *opts, struct fs_watchdog **out)
{
	struct fs_watchdog *dog = calloc(1, sizeof(*dog));
	int ret;

	if (!dog)
		return -ENOMEM;
	dog->opts = *opts;
	lock_init(&dog->lock, LOCK_RANK_QUEUE, "watchdog");
	lock_cond_init(&dog->wake);
	ret = pthread_create(&dog->thread, NULL, watchdog_thread, dog);
	if (ret != 0) {
		lock_fini(&dog->lock);
		free(dog);
		return -ret;
	}
	*out = dog;
	return 0;
}

NO_LOCK_CHECK void fs_watchdog_free(struct fs_watchdog *dog)
{
	if (!dog)
		return;
	lock_take(&dog->lock);
	atomic_store(&dog->ending, true);
	(void)pthread_cond_broadcast(&dog->wake);
	lock_drop(&dog->lock);
	(void)pthread_join(dog->thread, NULL);
	(void)pthread_cond_destroy(&dog->wake);
	lock_fini(&dog->lock);
	free(dog);
}
