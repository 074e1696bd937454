/* fs/serve/upkeep.c - make index and ledger whole again, beside serving */
#include "fs/serve/upkeep.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "fs/control/control.h"
#include "fs/control/quota.h"
#include "meta/meta.h"

/* Asking costs one flag. A walk that failed (a full disk, say) is not repeated at once. */
#define LOOK_NS	 1000000000ULL
#define AGAIN_NS 30000000000ULL
#define SHARD_NS 10000000000ULL

struct fs_upkeep {
	const struct control_env *env;
	struct control_quota *quota;
	unsigned shard;		     /* compared next */
	unsigned long long shard_ns; /* not before */
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

/* A shard now and then: names alone, so that it costs next to nothing. */
static void compare_shard(struct fs_upkeep *u)
{
	struct err err = {0};

	if (lock_now_ns() < u->shard_ns)
		return;
	u->shard_ns = lock_now_ns() + SHARD_NS;
	if (meta_recount_shard(u->env->meta, u->shard, &err) < 0)
		log_warn("cannot compare shard %02x with the ledger: %s", u->shard,
			 err_text(&err, err.code));
	u->shard = (u->shard + 1) % CAS_LAYOUT_NR_SHARDS;
}

static void *upkeep_thread(void *arg)
{
	struct fs_upkeep *u = arg;
	bool failed = false;

	do {
		struct err err = {0};
		int ret = 0;

		if (meta_needs_reconcile(u->env->meta))
			ret = meta_reconcile(u->env->meta, NULL, &err);
		else
			compare_shard(u);
		if (ret < 0 && !failed)
			log_warn("index and ledger may lack rows: %s", err_text(&err, ret));
		failed = ret < 0;
		control_quota(u->env, u->quota);
	} while (pause_for(u, failed ? AGAIN_NS : LOOK_NS));
	return NULL;
}

int fs_upkeep_new(const struct control_env *env, struct control_quota *quota,
		  struct fs_upkeep **out)
{
	struct fs_upkeep *u = calloc(1, sizeof(*u));
	int ret;

	if (!u)
		return -ENOMEM;
	u->env = env;
	u->quota = quota;
	u->shard_ns = lock_now_ns() + SHARD_NS;
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
