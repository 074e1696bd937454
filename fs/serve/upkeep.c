/* fs/serve/upkeep.c - make index and ledger whole again, beside serving */
#include "fs/serve/upkeep.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "meta/meta.h"

/* Asking costs one flag. A walk that failed (a full disk, say) is not repeated at once. */
#define LOOK_NS	 1000000000ULL
#define AGAIN_NS 30000000000ULL

struct fs_upkeep {
	struct meta *meta;
	pthread_t thread;
	struct lock lock;
	pthread_cond_t wake;
	bool stop GUARDED_BY(lock);
};

/* True: go on. */
static bool pause_for(struct fs_upkeep *u, unsigned long long ns)
{
	unsigned long long end = lock_now_ns() + ns;
	bool stop;

	lock_take(&u->lock);
	while (!u->stop && lock_wait(&u->lock, &u->wake, end) != -ETIMEDOUT)
		;
	stop = u->stop;
	lock_drop(&u->lock);
	return !stop;
}

static void *upkeep_thread(void *arg)
{
	struct fs_upkeep *u = arg;
	bool failed = false;

	do {
		struct err err = {0};
		int ret = 0;

		if (meta_needs_reconcile(u->meta))
			ret = meta_reconcile(u->meta, NULL, &err);
		if (ret < 0 && !failed)
			log_warn("index and ledger may lack rows: %s", err_text(&err, ret));
		failed = ret < 0;
	} while (pause_for(u, failed ? AGAIN_NS : LOOK_NS));
	return NULL;
}

int fs_upkeep_new(struct meta *meta, struct fs_upkeep **out)
{
	struct fs_upkeep *u = calloc(1, sizeof(*u));
	int ret;

	if (!u)
		return -ENOMEM;
	u->meta = meta;
	lock_init(&u->lock, LOCK_RANK_QUEUE, "upkeep");
	lock_cond_init(&u->wake);
	ret = -pthread_create(&u->thread, NULL, upkeep_thread, u);
	if (ret < 0) {
		(void)pthread_cond_destroy(&u->wake);
		lock_fini(&u->lock);
		free(u);
		return ret;
	}
	*out = u;
	return 0;
}

void fs_upkeep_free(struct fs_upkeep *u)
{
	if (!u)
		return;
	lock_take(&u->lock);
	u->stop = true;
	(void)pthread_cond_signal(&u->wake);
	lock_drop(&u->lock);
	(void)pthread_join(u->thread, NULL);
	(void)pthread_cond_destroy(&u->wake);
	lock_fini(&u->lock);
	free(u);
}
