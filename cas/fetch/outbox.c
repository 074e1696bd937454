/* cas/fetch/outbox.c - what has still to be sent to the writable tiers */
#include "cas/fetch/outbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch.h"
#include "cas/put/put.h"
#include "cas/reapi/closure_i.h"
#include "cas/store/store_i.h"
#include "cas/tier.h"

/*
 * The directory is the list: a sender goes through it, locks an entry's file (OFD, so that
 * of two processes one sends it), sends, unlinks. An entry that fails in a way that time
 * may mend stays; the daemon goes through the list again after a pause that doubles up to
 * RETRY_MAX_MS, or as soon as something is added.
 */

#define RETRY_MS     1000
#define RETRY_MAX_MS 60000
#define NAME_SZ	     (16 + CAS_DIGEST_STR_SZ)

static const char *const kinds[] = {
	[CAS_PUSH_BLOB] = "blob",
	[CAS_PUSH_TREE] = "tree",
	[CAS_PUSH_ACTION] = "action",
	[CAS_PUSH_OUTPUTS] = "outputs",
};
#define NR_KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct cas_outbox {
	struct cas_store *store;
	struct cas_fetch *fetch;
	int dir_fd;
	struct lock lock;
	pthread_cond_t changed;
	bool added GUARDED_BY(lock);
	bool ending GUARDED_BY(lock);
	bool has_thread;
	pthread_t thread;
	struct cas_push_progress progress; /* the thread's */
};

struct cas_outbox *cas_outbox_of(const struct cas_store *store)
{
	return store->outbox;
}

static bool has_writable(const struct cas_fetch *fetch)
{
	for (size_t i = 0; i < cas_fetch_nr_tiers(fetch); i++) {
		if (cas_tier_is_writable(cas_fetch_tier(fetch, i)))
			return true;
	}
	return false;
}

static bool parse_name(const char *name, enum cas_push_kind *kind, struct cas_digest *digest)
{
	const char *dash = strchr(name, '-');

	for (size_t i = 0; dash && i < NR_KINDS; i++) {
		if (strlen(kinds[i]) == (size_t)(dash - name) &&
		    memcmp(kinds[i], name, (size_t)(dash - name)) == 0) {
			*kind = (enum cas_push_kind)i;
			return cas_digest_parse(dash + 1, digest) == 0;
		}
	}
	return false;
}

/* ---- sending ---- */

/* Will it be the same next time? */
static bool is_hopeless(int ret)
{
	return ret == -ENOENT || ret == -EFBIG || ret == -EBADMSG || ret == -EUCLEAN ||
	       ret == -EROFS || ret == -EOPNOTSUPP;
}

/* What another try may mend counts more than what it cannot; else the first. */
static int push_to_all(struct cas_outbox *o, enum cas_push_kind kind,
		       const struct cas_digest *digest, struct cas_push_progress *progress,
		       struct err *err)
{
	int worst = 0;

	for (size_t i = 0; i < cas_fetch_nr_tiers(o->fetch); i++) {
		struct cas_tier *tier = cas_fetch_tier(o->fetch, i);
		struct err why = {0};
		int ret;

		if (!cas_tier_is_writable(tier))
			continue;
		ret = cas_push(o->store, tier, kind, digest, progress, &why);
		if (ret < 0 && (worst == 0 || (is_hopeless(worst) && !is_hopeless(ret)))) {
			*err = why;
			worst = ret;
		}
	}
	return worst;
}

/* The whole entry, by who sends it. */
static bool claim(int fd)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &fl) == 0;
}

/* Its length and its name, for a moment. */
static int guard(int fd)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};

	while (fcntl(fd, F_OFD_SETLKW, &fl) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static void unguard(int fd)
{
	struct flock fl = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};

	(void)fcntl(fd, F_OFD_SETLK, &fl);
}

static off_t length_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? -1 : st.st_size;
}

/* False: somebody wanted it sent again meanwhile, and what he wants may not be what was sent. */
static bool drop_entry(struct cas_outbox *o, const char *name, int fd, off_t length)
{
	if (guard(fd) < 0 || length_of(fd) != length) {
		unguard(fd);
		return false;
	}
	if (unlinkat(o->dir_fd, name, 0) < 0 && errno != ENOENT)
		log_warn("cannot remove outbox/%s: %m", name);
	return true;
}

/* Send what a claimed entry stands for, and drop it. 0 done with it, or why it stays. */
static int send_claimed(struct cas_outbox *o, const char *name, int fd,
			struct cas_push_progress *progress, struct err *err)
{
	enum cas_push_kind kind = CAS_PUSH_BLOB;
	struct cas_digest digest = {0};
	struct err why = {0};
	off_t length;
	int ret;

	(void)parse_name(name, &kind, &digest);
	do {
		length = length_of(fd);
		ret = push_to_all(o, kind, &digest, progress, &why);
		if (ret < 0 && !is_hopeless(ret)) {
			if (err)
				*err = why;
			return ret;
		}
		if (ret < 0)
			log_warn("%s %s will not be sent: %s", kinds[kind],
				 CAS_DIGEST_TEXT(&digest), err_text(&why, ret));
	} while (!drop_entry(o, name, fd, length) && !atomic_load(&progress->cancel));
	return ret == 0 ? 0 : err_set(err, ret, "%s", err_text(&why, ret));
}

static int send_entry(struct cas_outbox *o, const char *name, struct cas_push_progress *progress,
		      struct err *err)
{
	enum cas_push_kind kind;
	struct cas_digest digest;
	auto_close int fd = -1;

	if (!parse_name(name, &kind, &digest))
		return 0;
	fd = openat(o->dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0
				       : err_set(err, -errno, "cannot open outbox/%s: %m", name);
	/* Unless another process is at it. */
	return claim(fd) ? send_claimed(o, name, fd, progress, err) : 0;
}

/* Once through the list; *failed: something stays that may be sent later. */
static int send_all(struct cas_outbox *o, struct cas_push_progress *progress, bool *failed,
		    struct err *err)
{
	int fd = openat(o->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;
	int first = 0;

	*failed = false;
	if (dir == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return err_set(err, -EIO, "cannot list the outbox");
	}
	while ((de = readdir(dir)) != NULL && !atomic_load(&progress->cancel)) {
		struct err why = {0};
		int ret = send_entry(o, de->d_name, progress, &why);

		if (ret < 0 && first == 0 && err)
			*err = why;
		if (ret < 0 && first == 0)
			first = ret;
		*failed |= ret < 0 && !is_hopeless(ret);
	}
	return first;
}

int cas_outbox_send(struct cas_outbox *outbox, struct cas_push_progress *progress, struct err *err)
{
	bool failed;

	return send_all(outbox, progress, &failed, err);
}

/* ---- a daemon's thread ---- */

/* False: it is time to end. */
static bool wait_for_work(struct cas_outbox *o, unsigned retry_ms)
{
	unsigned long long until = retry_ms ? lock_now_ns() + retry_ms * 1000000ULL : 0;
	bool go_on;

	lock_take(&o->lock);
	while (!o->added && !o->ending && (until == 0 || lock_now_ns() < until))
		(void)lock_wait(&o->lock, &o->changed, until);
	o->added = false;
	go_on = !o->ending;
	lock_drop(&o->lock);
	return go_on;
}

static void *outbox_main(void *arg)
{
	struct cas_outbox *o = arg;
	unsigned retry_ms = 0;

	do {
		struct err why = {0};
		bool failed;
		int ret = send_all(o, &o->progress, &failed, &why);

		if (failed && retry_ms == 0 && ret != -ECANCELED)
			log_warn("waiting to send to the tiers: %s", err_text(&why, ret));
		if (!failed)
			retry_ms = 0;
		else
			retry_ms = retry_ms == 0		 ? RETRY_MS
				   : retry_ms < RETRY_MAX_MS / 2 ? retry_ms * 2
								 : RETRY_MAX_MS;
	} while (wait_for_work(o, retry_ms));
	return NULL;
}

static int start_thread(struct cas_outbox *o)
{
	sigset_t all;
	sigset_t old;
	int ret;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&o->thread, NULL, outbox_main, o);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	o->has_thread = ret == 0;
	return -ret;
}

NO_LOCK_CHECK int cas_outbox_open(struct cas_store *store, struct cas_fetch *fetch, bool serve,
				  struct cas_outbox **out, struct err *err)
{
	struct cas_outbox *o;
	int ret;

	*out = NULL;
	if (fetch == NULL || !has_writable(fetch) || store->read_only)
		return 0;
	o = calloc(1, sizeof(*o));
	if (o == NULL)
		return -ENOMEM;
	o->store = store;
	o->fetch = fetch;
	lock_init(&o->lock, LOCK_RANK_QUEUE, "cas_outbox.lock");
	lock_cond_init(&o->changed);
	ret = cas_store_mkdir(store, store->dir_fd, "outbox", 0700);
	o->dir_fd =
		ret < 0 ? -1 : openat(store->dir_fd, "outbox", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret == 0 && o->dir_fd < 0)
		ret = -errno;
	if (ret == 0 && serve)
		ret = start_thread(o);
	if (ret < 0) {
		cas_outbox_close(o);
		return err_set(err, ret, "cannot open %s/outbox: %s", store->path,
			       strerrordesc_np(-ret));
	}
	store->outbox = o;
	*out = o;
	return 0;
}

NO_LOCK_CHECK void cas_outbox_close(struct cas_outbox *outbox)
{
	if (outbox == NULL)
		return;
	if (outbox->store->outbox == outbox)
		outbox->store->outbox = NULL;
	atomic_store(&outbox->progress.cancel, true);
	lock_take(&outbox->lock);
	outbox->ending = true;
	(void)pthread_cond_broadcast(&outbox->changed);
	lock_drop(&outbox->lock);
	if (outbox->has_thread)
		(void)pthread_join(outbox->thread, NULL);
	if (outbox->dir_fd >= 0)
		(void)close(outbox->dir_fd);
	(void)pthread_cond_destroy(&outbox->changed);
	lock_fini(&outbox->lock);
	free(outbox);
}

/*
 * An entry grows by a byte each time: what it stands for may have been replaced while it is
 * being sent, and then it stays. 1; 0: it went meanwhile, so once more.
 */
static int want_again(struct cas_outbox *o, const char *name)
{
	auto_close int fd =
		openat(o->dir_fd, name, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;
	int ret = fd < 0 ? -errno : guard(fd);

	if (ret < 0)
		return ret;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return 0;
	return write(fd, "+", 1) == 1 ? 1 : -EIO;
}

int cas_outbox_add(struct cas_outbox *outbox, enum cas_push_kind kind,
		   const struct cas_digest *digest, struct err *err)
{
	char name[NAME_SZ];
	char text[CAS_DIGEST_STR_SZ];
	int ret = 0;

	if (outbox == NULL || (kind == CAS_PUSH_BLOB && cas_digest_is_empty(digest)))
		return 0;
	(void)snprintf(name, sizeof(name), "%s-%s", kinds[kind],
		       cas_digest_format(digest, '-', text));
	while (ret == 0)
		ret = want_again(outbox, name);
	if (ret < 0)
		return err_set(err, ret, "cannot make outbox/%s: %s", name, strerrordesc_np(-ret));
	lock_take(&outbox->lock);
	outbox->added = true;
	(void)pthread_cond_broadcast(&outbox->changed);
	lock_drop(&outbox->lock);
	return 0;
}

int cas_outbox_add_outputs(struct cas_outbox *outbox, const void *data, size_t len, struct err *err)
{
	struct cas_digest digest;
	int ret;

	if (outbox == NULL || len == 0)
		return 0;
	ret = cas_put_bytes(outbox->store, data, len, &digest, err);
	return ret < 0 ? ret : cas_outbox_add(outbox, CAS_PUSH_OUTPUTS, &digest, err);
}

/* ---- what is in it ---- */

static int each_entry(struct cas_store *store,
		      int (*each)(void *ctx, enum cas_push_kind kind,
				  const struct cas_digest *digest, struct err *err),
		      void *ctx, struct err *err)
{
	int fd = openat(store->dir_fd, "outbox", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;
	int ret = 0;

	if (dir == NULL) {
		ret = errno == ENOENT ? 0 : -errno;
		if (fd >= 0)
			(void)close(fd);
		return ret == 0 ? 0 : err_set(err, ret, "cannot list %s/outbox", store->path);
	}
	while (ret == 0 && (de = readdir(dir)) != NULL) {
		enum cas_push_kind kind;
		struct cas_digest digest;

		if (parse_name(de->d_name, &kind, &digest))
			ret = each(ctx, kind, &digest, err);
	}
	return ret;
}

static int count_one(void *ctx, enum cas_push_kind kind, const struct cas_digest *digest,
		     struct err *err)
{
	++*(size_t *)ctx;
	return 0;
}

size_t cas_outbox_count(struct cas_store *store)
{
	size_t nr = 0;

	(void)each_entry(store, count_one, &nr, NULL);
	return nr;
}

struct roots {
	struct cas_store *store;
	int (*root)(void *arg, const struct cas_digest *d, bool is_directory);
	void *arg;
};

static int each_of(const struct roots *r, const struct cas_digests *list)
{
	int ret = 0;

	for (size_t i = 0; i < list->nr && ret == 0; i++)
		ret = r->root(r->arg, &list->at[i], false);
	return ret;
}

static int roots_of_entry(void *ctx, enum cas_push_kind kind, const struct cas_digest *digest,
			  struct err *err)
{
	const struct roots *r = ctx;
	static const _Atomic bool never = false;
	struct cas_closure c;
	struct err why = {0};
	int ret;

	if (kind == CAS_PUSH_BLOB || kind == CAS_PUSH_TREE)
		return r->root(r->arg, digest, kind == CAS_PUSH_TREE);
	/* As much as can be found: what is missing cannot be evicted either. */
	cas_closure_init(&c, r->store, &never);
	(void)(kind == CAS_PUSH_ACTION ? cas_closure_add_action(&c, digest, &why)
				       : cas_closure_add_outputs(&c, digest, &why));
	ret = each_of(r, &c.files);
	if (ret == 0)
		ret = each_of(r, &c.dirs);
	if (ret == 0 && kind == CAS_PUSH_OUTPUTS)
		ret = r->root(r->arg, digest, false);
	cas_closure_fini(&c);
	return ret;
}

int cas_outbox_roots(struct cas_store *store,
		     int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		     void *arg, struct err *err)
{
	struct roots r = {store, root, arg};

	return each_entry(store, roots_of_entry, &r, err);
}
