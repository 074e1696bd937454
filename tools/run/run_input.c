/* tools/run/run_input.c - store the input of `run`, and keep it whole until a sandbox has it */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/sandbox.h"
#include "tools/run/run.h"

#define EVICTED_TRIES 4

/* Sets *cancel when a fatal signal waits; the signal stays for whoever takes it. */
struct watcher {
	pthread_t thread;
	int fatal_fd;
	int stop_fd;
	_Atomic bool *cancel;
};

static void *watch(void *arg)
{
	struct watcher *w = arg;
	struct pollfd p[2] = {{w->fatal_fd, POLLIN, 0}, {w->stop_fd, POLLIN, 0}};

	while (poll(p, 2, -1) < 0)
		continue;
	if (p[0].revents)
		atomic_store_explicit(w->cancel, true, memory_order_relaxed);
	return NULL;
}

static bool skip_output(void *ctx, const char *path, bool is_dir)
{
	const struct run *run = ctx;

	(void)is_dir;
	return fs_outputs_find(&run->outputs, path) != NULL;
}

static int ingest_watched(struct run *run, struct cas_ingest_result *result, struct err *err)
{
	struct cas_ingest_progress counted = {0};
	struct cas_ingest_options opts = {
		.follow_top = true,
		.skip = run->outputs.nr ? skip_output : NULL,
		.skip_ctx = run,
		.progress = &counted,
	};
	struct progress_source source = {"input", &counted.files, &counted.bytes, NULL};
	struct watcher w = {.fatal_fd = run->signals.fatal_fd, .cancel = &counted.cancel};
	struct progress *progress;
	uint64_t one = 1;
	int ret;

	w.stop_fd = eventfd(0, EFD_CLOEXEC);
	if (w.stop_fd < 0 || pthread_create(&w.thread, NULL, watch, &w)) {
		if (w.stop_fd >= 0)
			(void)close(w.stop_fd);
		return err_set(err, -EAGAIN, "cannot start a thread");
	}
	progress = progress_begin(&source);
	ret = cas_ingest(local_store(run->local), run->args.input, &opts, result, err);
	progress_end(progress);
	(void)!write(w.stop_fd, &one, sizeof(one));
	(void)pthread_join(w.thread, NULL);
	(void)close(w.stop_fd);
	return ret;
}

int run_input_store(struct run *run, struct err *err)
{
	struct cas_ingest_result result;
	int ret;

	if (run->have_root) {
		run->have_root = false;
		return 0;
	}
	run->epoch = cas_evict_epoch(local_store(run->local));
	if (run->action)
		return 0;
	if (run->args.root)
		return sandbox_digest(run->cli, run->args.root, run->root, err);
	if (!run->args.input) {
		(void)cas_digest_format(&cas_digest_empty, '/', run->root);
		return 0;
	}
	ret = ingest_watched(run, &result, err);
	if (ret)
		return ret;
	if (!result.is_directory)
		return err_set(err, -ENOTDIR, "--input %s is no directory", run->args.input);
	(void)cas_digest_format(&result.digest, '/', run->root);
	return local_sync(run->local, err);
}

/*
 * The sandbox has its root now, which eviction spares from then on. What it took before,
 * after we had found it there, is stored once more.
 */
static int restore_evicted(struct run *run, uint64_t epoch, struct err *err)
{
	struct cas_ingest_result result;
	char root[CAS_DIGEST_STR_SZ];
	int ret;

	if (!run->args.input || run->args.root || epoch == cas_evict_epoch(local_store(run->local)))
		return 0;
	ret = ingest_watched(run, &result, err);
	if (ret)
		return ret;
	if (strcmp(cas_digest_format(&result.digest, '/', root), run->root) != 0)
		return err_set(err, -EAGAIN, "--input %s changed while it was stored",
			       run->args.input);
	return local_sync(run->local, err);
}

static int store_and_create(struct run *run, struct err *err)
{
	int ret = run_input_store(run, err);

	return ret ? ret : run_create_sandbox(run, err);
}

/*
 * With its root whole. That may go between being stored and being used: then again, at
 * last with eviction kept out.
 */
int run_prepare_sandbox(struct run *run, struct err *err)
{
	struct cas_store *store = local_store(run->local);
	uint64_t epoch = run->have_root ? run->epoch : cas_evict_epoch(store);
	bool barred = false;
	int ret = store_and_create(run, err);

	for (int tries = 2; (ret == -ENOENT || ret == -EIO) && run->args.input &&
			    tries <= EVICTED_TRIES && epoch != cas_evict_epoch(store);
	     tries++) {
		barred = tries == EVICTED_TRIES && cas_evict_bar(store) == 0;
		epoch = cas_evict_epoch(store);
		ret = store_and_create(run, err);
	}
	if (ret == 0)
		ret = restore_evicted(run, epoch, err);
	if (barred)
		cas_evict_unbar(store);
	return ret;
}
