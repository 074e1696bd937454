/* cas/landing/landing_serve.c - by the process that serves the store */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/landing/landing_i.h"
#include "cas/store/store_i.h"

/*
 * The rows of all that has landed are in a table by hash. Whoever wants one takes it there:
 * the thread in order, a reader the one that he looks for. A row is taken (MOVING) under the
 * lock and moved without it; who comes meanwhile waits for that. A landing goes when its last
 * row is DONE and nobody uses it any more.
 */

#define ROWS_MAX  500000	/* then what is captured moves at once */
#define RETRY_NS  1000000000ULL /* after a failure */
#define TELL_NS	  60000000000ULL
#define MOVE_NICE 10

bool cas_landing_is_on(struct cas_store *store)
{
	struct cas_landings *s = store->landings;
	bool on;

	if (s == NULL || store->durability == CAS_DURABILITY_FULL)
		return false;
	lock_take(&s->lock);
	on = !s->stop && s->blobs < ROWS_MAX;
	lock_drop(&s->lock);
	return on;
}

void cas_landing_backlog(struct cas_store *store, struct cas_landing_backlog *out)
{
	struct cas_landings *s = store->landings;
	struct cas_landed_row *row, *tmp;

	*out = (struct cas_landing_backlog){0};
	if (s == NULL)
		return;
	lock_take(&s->lock);
	out->blobs = s->blobs;
	out->bytes = s->bytes;
	out->landed = s->nr_landed;
	HASH_ITER (hh, s->by_hash, row, tmp)
		out->failing += row->failed;
	lock_drop(&s->lock);
}

static void landed_free(struct cas_landed *l)
{
	if (l->dir_fd >= 0)
		(void)close(l->dir_fd);
	if (l->lock_fd >= 0)
		(void)close(l->lock_fd);
	cas_manifest_fini(&l->manifest);
	free(l->rows);
	free(l);
}

/* --- one row --- */

/* Lock held on entry and return. It is WAITING, and ours. */
static int move_locked(struct cas_landings *s, struct cas_landed_row *row,
		       struct cas_landing_place *place, struct err *err) REQUIRES(s->lock)
{
	struct cas_landed *l = row->landed;
	int ret;

	row->state = CAS_LANDING_MOVING;
	l->nr_users++;
	lock_drop(&s->lock);
	ret = cas_landing_move(s->store, l->dir_fd, row->row, l->manifest.same_boot, place, err);
	lock_take(&s->lock);
	l->nr_users--;
	row->failed = ret < 0;
	row->state = ret < 0 ? CAS_LANDING_WAITING : CAS_LANDING_DONE;
	if (ret == 0) {
		HASH_DEL(s->by_hash, row);
		s->blobs--;
		s->bytes -= row->row->digest.size;
		l->nr_left--;
	}
	(void)pthread_cond_broadcast(&s->moved);
	return ret;
}

static int want_served(struct cas_landings *s, const uint8_t hash[CAS_HASH_SZ])
{
	struct cas_landing_place place = {.fd = -1};
	struct cas_landed_row *row;
	struct err why = {0};
	bool found = false;
	bool ever;
	int ret = 0;

	lock_take(&s->lock);
	/* It may have been moved since it was looked for. */
	ever = s->nr_landed > 0;
	for (;;) {
		HASH_FIND(hh, s->by_hash, hash, CAS_HASH_SZ, row);
		if (row == NULL || ret < 0)
			break;
		found = true;
		if (row->state == CAS_LANDING_MOVING)
			(void)lock_wait(&s->lock, &s->moved, 0);
		else
			ret = move_locked(s, row, &place, &why);
	}
	if (found)
		(void)pthread_cond_signal(&s->work);
	lock_drop(&s->lock);
	if (place.fd >= 0)
		(void)close(place.fd);
	if (ret < 0)
		log_warn("landing: %s", err_text(&why, ret));
	return found || ever;
}

int cas_landing_want(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ])
{
	struct err why = {0};
	int ret;

	if (store->landings)
		return want_served(store->landings, hash);
	if (store->blobs_path)
		return 0;
	/* Mostly there is nothing, but what there was may have been moved since. */
	if (faccessat(store->dir_fd, CAS_LANDING_DIR, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 1;
	ret = cas_landing_settle_all(store, &why);
	if (ret < 0)
		log_warn("landing: %s", err_text(&why, ret));
	return 1;
}

/* --- all of them --- */

/* Lock held on entry and return. Its rows that nobody is at, then those that somebody was at. */
static int drain_locked(struct cas_landings *s, struct cas_landed *l, struct err *err)
	REQUIRES(s->lock)
{
	struct cas_landing_place place = {.fd = -1};
	int ret = 0;

	l->nr_users++;
	for (size_t i = 0; i < l->manifest.nr; i++) {
		struct err why = {0};
		int code = 0;

		while (l->rows[i].state == CAS_LANDING_MOVING)
			(void)lock_wait(&s->lock, &s->moved, 0);
		if (l->rows[i].state == CAS_LANDING_WAITING)
			code = move_locked(s, &l->rows[i], &place, &why);
		if (code < 0 && ret == 0)
			ret = err_set(err, code, "%s", err_text(&why, code));
	}
	l->nr_users--;
	if (place.fd >= 0)
		(void)close(place.fd);
	return ret;
}

/* Lock held on entry and return; all its rows are DONE. */
static int remove_locked(struct cas_landings *s, struct cas_landed *l, struct err *err)
	REQUIRES(s->lock)
{
	int ret;

	DL_DELETE(s->all, l);
	s->nr_removing++;
	lock_drop(&s->lock);
	ret = cas_landing_remove(s->store, l->dir_fd, l->name, err);
	landed_free(l);
	lock_take(&s->lock);
	s->nr_removing--;
	(void)pthread_cond_broadcast(&s->moved);
	return ret;
}

/* Once through all. Lock held on entry and return. */
static int pass_locked(struct cas_landings *s, struct err *err) REQUIRES(s->lock)
{
	struct cas_landed *l = s->all;
	int ret = 0;

	while (l) {
		struct err why = {0};
		int code = drain_locked(s, l, &why);
		bool gone = code == 0 && l->nr_left == 0 && l->nr_users == 0;

		if (gone)
			code = remove_locked(s, l, &why);
		if (code < 0 && ret == 0)
			ret = err_set(err, code, "%s", err_text(&why, code));
		/* The lock was dropped: where it was nothing may be any more. */
		l = gone ? s->all : l->next;
	}
	return ret;
}

/* A failure is told once in a while. */
static void tell(int ret, struct err *why, unsigned long long *told_ns)
{
	unsigned long long now = lock_now_ns();

	if (*told_ns != 0 && now < *told_ns + TELL_NS)
		return;
	log_warn("landing: %s; trying again", err_text(why, ret));
	*told_ns = now;
}

static void *landing_thread(void *arg)
{
	struct cas_landings *s = arg;
	unsigned long long told_ns = 0;

	(void)pthread_setname_np(pthread_self(), "landing");
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), MOVE_NICE);
	lock_take(&s->lock);
	while (!s->stop) {
		struct err why = {0};
		int ret = pass_locked(s, &why);

		if (ret < 0) {
			lock_drop(&s->lock);
			tell(ret, &why, &told_ns);
			lock_take(&s->lock);
		}
		/* What is all moved and in use still is removed by whoever uses it. */
		if (!s->stop && (ret < 0 || s->blobs == 0))
			(void)lock_wait(&s->lock, &s->work, ret < 0 ? lock_now_ns() + RETRY_NS : 0);
	}
	lock_drop(&s->lock);
	return NULL;
}

int cas_landing_settle(struct cas_store *store, struct err *err)
{
	struct cas_landings *s = store->landings;
	int ret;

	if (store->blobs_path)
		return 0;
	if (s == NULL)
		return cas_landing_settle_all(store, err);
	lock_take(&s->lock);
	ret = pass_locked(s, err);
	/* The thread removes those that it was at. */
	while (ret == 0 && s->blobs == 0 && (s->all || s->nr_removing > 0) && !s->stop)
		(void)lock_wait(&s->lock, &s->moved, lock_now_ns() + RETRY_NS / 100);
	lock_drop(&s->lock);
	return ret;
}

/* --- one more --- */

/* Its rows into the table. */
static int enter(struct cas_landings *s, struct cas_landed *l)
{
	int ret = 0;

	l->rows = calloc(l->manifest.nr + 1, sizeof(*l->rows));
	if (l->rows == NULL)
		return -ENOMEM;
	lock_take(&s->lock);
	for (size_t i = 0; ret == 0 && i < l->manifest.nr; i++) {
		struct cas_landed_row *row = &l->rows[i];

		row->landed = l;
		row->row = &l->manifest.rows[i];
		HASH_ADD_KEYPTR(hh, s->by_hash, row->row->digest.hash, CAS_HASH_SZ, row);
		if (row->hh.tbl == NULL) {
			ret = -ENOMEM;
			break;
		}
		l->nr_left++;
		s->bytes += row->row->digest.size;
	}
	s->blobs += l->nr_left;
	if (ret == 0) {
		s->nr_landed += l->nr_left;
		DL_APPEND(s->all, l);
	}
	for (size_t i = 0; ret < 0 && i < l->nr_left; i++) {
		HASH_DEL(s->by_hash, &l->rows[i]);
		s->blobs--;
		s->bytes -= l->rows[i].row->digest.size;
	}
	(void)pthread_cond_signal(&s->work);
	lock_drop(&s->lock);
	return ret;
}

/* Open, lock and read @dir_fd/@name. */
static int landed_open(int dir_fd, const char *name, struct cas_landed **out)
{
	struct cas_landed *l = calloc(1, sizeof(*l));
	int ret = 0;

	if (l == NULL)
		return -ENOMEM;
	l->lock_fd = -1;
	l->dir_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	ret = l->dir_fd < 0 ? -errno : cas_landing_lock(l->dir_fd, false, &l->lock_fd);
	if (ret == 0)
		ret = cas_manifest_read(l->lock_fd, &l->manifest);
	if (ret < 0)
		landed_free(l);
	else
		*out = l;
	return ret;
}

/* To STORE/landing/@name, from where nobody else looks. */
static int rename_in(struct cas_store *store, int dir_fd, const char *from, const char *name)
{
	for (int tries = 0; tries < 8; tries++) {
		auto_close int top_fd = cas_landing_open(store, true);

		if (top_fd >= 0 && renameat2(dir_fd, from, top_fd, name, RENAME_NOREPLACE) == 0)
			return 0;
		/* Somebody found it empty, and removed it. */
		if (top_fd < 0 ? top_fd != -ENOENT : errno != ENOENT)
			return top_fd < 0 ? top_fd : -errno;
	}
	return -ENOENT;
}

int cas_landing_take(struct cas_store *store, int dir_fd, const char *name, struct err *err)
{
	struct cas_landings *s = store->landings;
	struct cas_landed *l = NULL;
	char to[sizeof(l->name)];
	int ret = s ? landed_open(dir_fd, name, &l) : -EOPNOTSUPP;

	if (ret == 0)
		ret = io_random_hex(to, sizeof(to) / 2);
	if (ret == 0) {
		memcpy(l->name, to, sizeof(to));
		ret = rename_in(store, dir_fd, name, to);
	}
	/* From here on it is there; a table without it would only make readers miss it. */
	if (ret == 0 && enter(s, l) < 0) {
		landed_free(l);
		return cas_landing_settle_all(store, err);
	}
	if (ret < 0 && l)
		landed_free(l);
	return ret < 0 ? err_set(err, ret, "cannot bring outputs to %s/landing: %s", store->path,
				 strerrordesc_np(-ret))
		       : 0;
}

/* --- life --- */

static int start_thread(struct cas_landings *s)
{
	sigset_t every;
	sigset_t old;
	int code;

	(void)sigfillset(&every);
	(void)pthread_sigmask(SIG_SETMASK, &every, &old);
	code = pthread_create(&s->thread, NULL, landing_thread, s);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	s->runs = code == 0;
	return -code;
}

NO_LOCK_CHECK int cas_landing_start(struct cas_store *store, struct err *err)
{
	struct cas_landings *s;
	struct err why = {0};
	int ret;

	if (store->read_only || store->blobs_path || store->landings)
		return 0;
	/* What was left by a crash, before there is anybody to wait for it. */
	ret = cas_landing_settle_all(store, &why);
	if (ret < 0)
		log_error("landing: %s", err_text(&why, ret));
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return err_set(err, -ENOMEM, "no memory for outputs that land");
	s->store = store;
	lock_init(&s->lock, LOCK_RANK_LEAF, "cas_landings.lock");
	lock_cond_init(&s->work);
	lock_cond_init(&s->moved);
	store->landings = s;
	ret = start_thread(s);
	if (ret < 0) {
		cas_landing_stop(store);
		return err_set(err, ret, "cannot start a thread: %s", strerrordesc_np(-ret));
	}
	return 0;
}

NO_LOCK_CHECK void cas_landing_stop(struct cas_store *store)
{
	struct cas_landings *s = store->landings;
	struct cas_landed *l, *next;
	struct err why = {0};

	if (s == NULL)
		return;
	if (cas_landing_settle(store, &why) < 0)
		log_warn("landing: %s; left for the next start", why.msg);
	lock_take(&s->lock);
	s->stop = true;
	(void)pthread_cond_broadcast(&s->work);
	lock_drop(&s->lock);
	if (s->runs)
		(void)pthread_join(s->thread, NULL);
	store->landings = NULL;
	HASH_CLEAR(hh, s->by_hash);
	DL_FOREACH_SAFE(s->all, l, next)
	landed_free(l);
	(void)pthread_cond_destroy(&s->work);
	(void)pthread_cond_destroy(&s->moved);
	lock_fini(&s->lock);
	free(s);
}
