/* cas/store/store_lock.c - the writer's lock and the shards' locks */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/err.h"
#include "cas/evict/evict.h"
#include "cas/store/store_i.h"

#define POLL_NS	      1000000L
#define SHARD_WAIT_NS 2000000000ULL

int cas_store_locks_init(struct cas_store *store)
{
	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS; i++) {
		lock_init(&store->shards[i].lock, LOCK_RANK_SHARD, "cas_store.shard");
		lock_cond_init(&store->shards[i].changed);
	}
	lock_init(&store->links_lock, LOCK_RANK_SHARD, "cas_store.links");
	lock_init(&store->sync_lock, LOCK_RANK_SHARD, "cas_store.sync");
	lock_init(&store->writer_lock, LOCK_RANK_LEAF, "cas_store.writer");
	lock_init(&store->pending_lock, LOCK_RANK_QUEUE, "cas_store.pending");
	lock_init(&store->missed_lock, LOCK_RANK_LEAF, "cas_store.missed");
	return 0;
}

void cas_store_locks_fini(struct cas_store *store)
{
	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS; i++) {
		(void)pthread_cond_destroy(&store->shards[i].changed);
		lock_fini(&store->shards[i].lock);
	}
	lock_fini(&store->links_lock);
	lock_fini(&store->sync_lock);
	lock_fini(&store->writer_lock);
	lock_fini(&store->pending_lock);
	lock_fini(&store->missed_lock);
}

/* Lock, wait for or unlock one byte of the lock file; -EBUSY when another has it. */
static int ofd_lock(int fd, off_t byte, short type, bool wait)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int ret;

	do
		ret = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &fl);
	while (ret < 0 && errno == EINTR);
	if (ret == 0)
		return 0;
	return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

/* As ofd_lock, giving up with -EBUSY at @deadline_ns. */
static int ofd_lock_until(int fd, off_t byte, short type, unsigned long long deadline_ns)
{
	struct timespec nap = {.tv_nsec = POLL_NS};
	int ret;

	for (;;) {
		ret = ofd_lock(fd, byte, type, false);
		if (ret != -EBUSY || lock_now_ns() >= deadline_ns)
			return ret;
		(void)nanosleep(&nap, NULL);
	}
}

/* Claim it among the threads of this process, which share one open file description. */
static bool claim_writer(struct cas_store *store)
{
	bool free_now;

	lock_take(&store->writer_lock);
	free_now = !store->writer_held;
	store->writer_held = true;
	lock_drop(&store->writer_lock);
	return free_now;
}

static void unclaim_writer(struct cas_store *store)
{
	lock_take(&store->writer_lock);
	store->writer_held = false;
	lock_drop(&store->writer_lock);
}

int cas_store_writer_lock(struct cas_store *store, int wait_ms, struct err *err)
{
	struct timespec nap = {.tv_nsec = POLL_NS};
	unsigned long long deadline =
		wait_ms < 0 ? ~0ULL : lock_now_ns() + (unsigned long long)wait_ms * 1000000ULL;
	bool claimed;
	int ret;

	if (store->read_only)
		return err_set(err, -EROFS, "store %s is read-only", store->path);
	while (!(claimed = claim_writer(store)) && lock_now_ns() < deadline)
		(void)nanosleep(&nap, NULL);
	if (!claimed)
		return err_set(err, -EBUSY, "another thread is writing to store %s", store->path);
	if (wait_ms < 0)
		ret = ofd_lock(store->lock_fd, CAS_LAYOUT_LOCK_WRITER, F_WRLCK, true);
	else
		ret = ofd_lock_until(store->lock_fd, CAS_LAYOUT_LOCK_WRITER, F_WRLCK, deadline);
	if (ret == 0)
		return 0;
	unclaim_writer(store);
	if (ret == -EBUSY)
		return err_set(err, ret, "another process holds the writer's lock of store %s",
			       store->path);
	return err_set(err, ret, "cannot lock %s/lock: %s", store->path, strerrordesc_np(-ret));
}

void cas_store_writer_unlock(struct cas_store *store)
{
	(void)ofd_lock(store->lock_fd, CAS_LAYOUT_LOCK_WRITER, F_UNLCK, false);
	unclaim_writer(store);
}

/* May a thread come in as asked, as far as the other threads are concerned? */
static bool shard_is_open(const struct cas_shard *s, bool exclusive) REQUIRES(s->lock)
{
	if (s->moving || s->exclusive)
		return false;
	return !exclusive || s->nr_shared == 0;
}

int cas_store_shard_lock(struct cas_store *store, unsigned shard, bool exclusive, bool wait)
{
	struct cas_shard *s = &store->shards[shard];
	unsigned long long deadline = wait ? lock_now_ns() + SHARD_WAIT_NS : 0;
	int ret = 0;

	if (store->read_only)
		return exclusive ? -EROFS : 0;
	lock_take(&s->lock);
	while (!shard_is_open(s, exclusive)) {
		if (!wait) {
			lock_drop(&s->lock);
			return -EBUSY;
		}
		(void)lock_wait(&s->lock, &s->changed, 0);
	}
	if (s->nr_shared == 0) {
		s->moving = true;
		lock_drop(&s->lock);
		ret = ofd_lock_until(store->lock_fd, CAS_LAYOUT_LOCK_SHARD(shard),
				     exclusive ? F_WRLCK : F_RDLCK, deadline);
		lock_take(&s->lock);
		s->moving = false;
		(void)pthread_cond_broadcast(&s->changed);
	}
	if (ret == 0 && exclusive)
		s->exclusive = true;
	else if (ret == 0)
		s->nr_shared++;
	lock_drop(&s->lock);
	return ret;
}

void cas_store_shard_unlock(struct cas_store *store, unsigned shard, bool exclusive)
{
	struct cas_shard *s = &store->shards[shard];

	if (store->read_only)
		return;
	lock_take(&s->lock);
	if (exclusive)
		s->exclusive = false;
	else
		s->nr_shared--;
	if (s->nr_shared == 0)
		(void)ofd_lock(store->lock_fd, CAS_LAYOUT_LOCK_SHARD(shard), F_UNLCK, false);
	(void)pthread_cond_broadcast(&s->changed);
	lock_drop(&s->lock);
}

int cas_store_lease_share(struct cas_store *store, unsigned long long wait_ns)
{
	return ofd_lock_until(store->lock_fd, CAS_LAYOUT_LOCK_LEASE, F_RDLCK,
			      lock_now_ns() + wait_ns);
}

int cas_evict_bar(struct cas_store *store)
{
	int ret = cas_store_lease_share(store, SHARD_WAIT_NS);

	store->barred = ret == 0;
	return ret;
}

void cas_evict_unbar(struct cas_store *store)
{
	store->barred = false;
	(void)ofd_lock(store->lock_fd, CAS_LAYOUT_LOCK_LEASE, F_UNLCK, false);
}

int cas_store_lease_block(struct cas_store *store)
{
	return ofd_lock(store->lock_fd, CAS_LAYOUT_LOCK_LEASE, F_WRLCK, false);
}
