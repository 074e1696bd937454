/* tests/unit/test_cas_reapi.c - a tier that speaks REAPI, against tests/lib/reapid.c */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "cas/reapi.pb-c.h"
#include "cas/tier.h"
#include "tests/lib/store.h"

#define SIZE  3000000
#define SMALL 20

static const char *program;

static void no_log(void *ctx, enum log_level level, const char *line)
{
}

/* A server in a directory, and a tier that asks it. */
struct fixture {
	const char *dir;
	pid_t pid;
	int stdin_fd;
	char port[20];
	struct cas_tier *tier;
	struct cas_call call;
	struct buf got;
	struct err err;
	unsigned char *data;
	struct cas_digest digest;
};

static const char *in(const struct fixture *f, const char *name)
{
	return tests_path(f->dir, name);
}

static void say(const struct fixture *f, const char *name, const char *text)
{
	char tmp[600];

	(void)snprintf(tmp, sizeof(tmp), "%s/%s.new", f->dir, name);
	tests_write_file(tmp, text, strlen(text), 0644);
	assert_int_equal(rename(tmp, in(f, name)), 0);
}

/* How often a line of the log begins like this. */
static unsigned count(const struct fixture *f, const char *name, const char *begin)
{
	auto_buf struct buf log = {0};
	unsigned nr = 0;

	assert_int_equal(io_read_file(AT_FDCWD, in(f, name), 1 << 20, &log), 0);
	for (const char *line = buf_str(&log); *line; line = strchr(line, '\n') + 1)
		nr += strncmp(line, begin, strlen(begin)) == 0;
	return nr;
}

static void nap(void)
{
	const struct timespec ts = {0, 10000000};

	(void)nanosleep(&ts, NULL);
}

static void server_start(struct fixture *f, char *port)
{
	char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)f->dir, port, NULL};
	posix_spawn_file_actions_t actions;
	int fds[2];

	(void)unlink(in(f, "port"));
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
	assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fds[0], 0), 0);
	assert_int_equal(posix_spawn(&f->pid, program, &actions, NULL, argv, environ), 0);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)close(fds[0]);
	f->stdin_fd = fds[1];
	while (access(in(f, "port"), F_OK) < 0) {
		assert_int_equal(waitpid(f->pid, NULL, WNOHANG), 0);
		nap();
	}
}

static void server_stop(struct fixture *f)
{
	int status;

	(void)close(f->stdin_fd);
	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	assert_int_equal(status, 0);
}

static void tier_start(struct fixture *f, const char *scheme, const char *options)
{
	auto_buf struct buf port = {0};
	char url[1000];

	assert_int_equal(io_read_file(AT_FDCWD, in(f, "port"), 20, &port), 0);
	(void)snprintf(f->port, sizeof(f->port), "%.*s", (int)strcspn(port.data, "\n"), port.data);
	(void)snprintf(url, sizeof(url), "%s://127.0.0.1:%s/some/where?%s", scheme, f->port,
		       options);
	assert_int_equal(cas_tier_open(url, &f->tier, &f->err), 0);
}

static void start(struct fixture *f, void **state, const char *options)
{
	*f = (struct fixture){.dir = *state, .data = tests_noise(SIZE, 5)};
	/* Half of it can be compressed. */
	memset(f->data + SIZE / 2, 'a', SIZE / 2);
	assert_int_equal(cas_hash_bytes(f->data, SIZE, &f->digest), 0);
	tests_write_file(in(f, "data/some/where/cas/x"), "", 0, 0644);
	tests_write_file(in(f, "data/some/where/ac/x"), "", 0, 0644);
	cas_call_init(&f->call, 0);
	server_start(f, NULL);
	tier_start(f, "grpc", options);
}

static void stop(struct fixture *f)
{
	cas_tier_close(f->tier);
	cas_call_fini(&f->call);
	buf_fini(&f->got);
	free(f->data);
	server_stop(f);
}

/* Put bytes there behind the server's back. */
static void plant(const struct fixture *f, const void *data, size_t len, struct cas_digest *out)
{
	char hash[CAS_HASH_HEX_SZ + 1];
	char name[200];

	assert_int_equal(cas_hash_bytes(data, len, out), 0);
	cas_hash_format(out->hash, hash);
	(void)snprintf(name, sizeof(name), "data/some/where/cas/%s", hash);
	tests_write_file(in(f, name), data, len, 0644);
}

static bool has(const struct fixture *f, const struct cas_digest *d)
{
	char hash[CAS_HASH_HEX_SZ + 1];
	char name[200];
	struct stat st;

	cas_hash_format(d->hash, hash);
	(void)snprintf(name, sizeof(name), "data/some/where/cas/%s", hash);
	return stat(in(f, name), &st) == 0 && (uint64_t)st.st_size == d->size;
}

static int take(void *ctx, const void *data, size_t len, struct err *err)
{
	return buf_append(ctx, data, len);
}

static int forget(void *ctx, struct err *err)
{
	buf_reset(ctx);
	return 0;
}

static int get(struct fixture *f, const struct cas_digest *d)
{
	const struct cas_sink sink = {.write = take, .restart = forget, .ctx = &f->got};

	f->err = (struct err){0};
	buf_reset(&f->got);
	return cas_tier_get(f->tier, d, &sink, &f->call, &f->err);
}

static int put(struct fixture *f)
{
	const struct cas_source source = {.fd = -1, .data = f->data};

	return cas_tier_put(f->tier, &f->digest, &source, &f->call, &f->err);
}

static void assert_got(const struct fixture *f)
{
	assert_int_equal(f->got.len, SIZE);
	assert_memory_equal(f->got.data, f->data, SIZE);
}

static void test_read_goes_on_where_it_ended(void **state)
{
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "");
	plant(&f, f.data, SIZE, &d);
	say(&f, "fault", "half 1");
	assert_int_equal(get(&f, &d), 0);
	assert_got(&f);
	/* The second began in the middle. */
	assert_int_equal(count(&f, "log", "GET /some/where/cas/"), 2);
	assert_int_equal(count(&f, "log", "CAPABILITIES"), 1);
	stop(&f);
}

static void test_compressed_read_goes_on_where_it_ended(void **state)
{
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "");
	say(&f, "zstd", "");
	plant(&f, f.data, SIZE, &d);
	say(&f, "fault", "truncate 1");
	assert_int_equal(get(&f, &d), 0);
	assert_got(&f);
	stop(&f);
}

static void test_what_cannot_be_decompressed_is_asked_for_as_it_is(void **state)
{
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "");
	say(&f, "zstd", "");
	plant(&f, f.data, SIZE, &d);
	say(&f, "fault", "garbage");
	assert_int_equal(get(&f, &d), 0);
	assert_got(&f);
	stop(&f);
}

static void test_range_is_sent_as_it_is(void **state)
{
	struct fixture f;
	struct cas_digest d;
	const struct cas_sink sink = {.write = take, .ctx = &f.got};

	start(&f, state, "");
	say(&f, "zstd", "");
	plant(&f, f.data, SIZE, &d);
	assert_int_equal(cas_tier_get_range(f.tier, &d, 1000, 70000, &sink, &f.call, &f.err), 0);
	assert_int_equal(f.got.len, 70000);
	assert_memory_equal(f.got.data, f.data + 1000, 70000);
	stop(&f);
}

static void test_write_is_taken_up_where_it_ended(void **state)
{
	struct fixture f;

	start(&f, state, "write=yes");
	say(&f, "put-fault", "cut 1");
	assert_int_equal(put(&f), 0);
	assert_true(has(&f, &f.digest));
	assert_int_equal(count(&f, "log", "QUERY some/where/uploads/"), 1);
	assert_int_equal(count(&f, "log", "PUT "), 2);
	/* One upload, under one name. */
	assert_int_equal(tests_count_names(in(&f, "uploads")), 1);
	stop(&f);
}

static void test_compressed_write(void **state)
{
	struct fixture f;

	start(&f, state, "write=yes");
	say(&f, "zstd", "");
	say(&f, "put-fault", "cut 1");
	assert_int_equal(put(&f), 0);
	assert_true(has(&f, &f.digest));
	assert_int_equal(put(&f), 0);
	assert_int_equal(count(&f, "log", "PUT "), 3);
	stop(&f);
}

static void test_wrong_bytes_are_refused_by_the_server(void **state)
{
	struct fixture f;

	start(&f, state, "write=yes");
	f.data[0] ^= 1;
	assert_int_equal(put(&f), -EBADMSG);
	say(&f, "put-fault", "full");
	assert_int_equal(put(&f), -ENOSPC);
	assert_false(has(&f, &f.digest));
	stop(&f);
}

struct batch {
	struct cas_digest digests[SMALL];
	struct cas_source sources[SMALL];
	char texts[SMALL][2000];
	int status[SMALL];
	unsigned nr;
};

static void batch_init(struct batch *b)
{
	memset(b, 0, sizeof(*b));
	for (int i = 0; i < SMALL; i++) {
		memset(b->texts[i], 'a' + i, sizeof(b->texts[i]));
		assert_int_equal(cas_hash_bytes(b->texts[i], 2000, &b->digests[i]), 0);
		b->sources[i] = (struct cas_source){.fd = -1, .data = b->texts[i]};
		b->status[i] = 1;
	}
}

static int check_one(void *ctx, size_t i, int status, const void *data, size_t len)
{
	struct batch *b = ctx;

	assert_int_equal(b->status[i], 1);
	b->status[i] = status;
	b->nr++;
	if (status == 0 && data) {
		assert_int_equal(len, 2000);
		assert_memory_equal(data, b->texts[i], 2000);
	}
	return 0;
}

static void check_batches(void **state, bool zstd)
{
	struct fixture f;
	static struct batch b;
	bool missing[SMALL];

	start(&f, state, "write=yes");
	say(&f, "batch", "9000");
	if (zstd)
		say(&f, "zstd", "");
	batch_init(&b);
	assert_int_equal(cas_tier_put_many(f.tier, b.digests, b.sources, SMALL - 1, check_one, &b,
					   &f.call, &f.err),
			 0);
	assert_int_equal(b.nr, SMALL - 1);
	/* Four of 2,000 bytes each at once. */
	assert_int_equal(count(&f, "log", "BATCH-UPDATE"), 5);
	assert_int_equal(cas_tier_find_missing(f.tier, b.digests, SMALL, missing, &f.call, &f.err),
			 0);
	assert_false(missing[0]);
	assert_true(missing[SMALL - 1]);
	batch_init(&b);
	assert_int_equal(
		cas_tier_get_many(f.tier, b.digests, SMALL, check_one, &b, &f.call, &f.err), 0);
	assert_int_equal(b.nr, SMALL);
	assert_int_equal(count(&f, "log", "BATCH-READ"), 5);
	assert_int_equal(b.status[3], 0);
	assert_int_equal(b.status[SMALL - 1], -ENOENT);
	stop(&f);
}

static void test_batches_keep_to_the_limit(void **state)
{
	check_batches(state, false);
}

static void test_batches_are_compressed(void **state)
{
	check_batches(state, true);
}

static void test_one_blob_above_the_limit_is_named(void **state)
{
	static struct batch b;
	struct fixture f;

	start(&f, state, "");
	say(&f, "batch", "1000");
	batch_init(&b);
	assert_int_equal(cas_tier_get_many(f.tier, b.digests, 1, check_one, &b, &f.call, &f.err),
			 0);
	assert_int_equal(b.status[0], -EFBIG);
	stop(&f);
}

static void test_status_of_each_blob_counts(void **state)
{
	static struct batch b;
	struct fixture f;

	start(&f, state, "write=yes");
	say(&f, "put-fault", "full");
	batch_init(&b);
	assert_int_equal(
		cas_tier_put_many(f.tier, b.digests, b.sources, 2, check_one, &b, &f.call, &f.err),
		0);
	assert_int_equal(b.status[0] + b.status[1], -ENOSPC);
	assert_int_equal(b.nr, 2);
	stop(&f);
}

static void test_unanswered_blobs_are_asked_for_again(void **state)
{
	static struct batch b;
	struct fixture f;

	start(&f, state, "");
	batch_init(&b);
	for (int i = 0; i < SMALL; i++)
		plant(&f, b.texts[i], 2000, &b.digests[i]);
	say(&f, "fault", "chunks 1");
	assert_int_equal(
		cas_tier_get_many(f.tier, b.digests, SMALL, check_one, &b, &f.call, &f.err), 0);
	assert_int_equal(b.nr, SMALL);
	for (int i = 0; i < SMALL; i++)
		assert_int_equal(b.status[i], 0);
	assert_int_equal(count(&f, "log", "BATCH-READ 20"), 1);
	assert_int_equal(count(&f, "log", "BATCH-READ 10"), 1);
	stop(&f);
}

struct seen {
	struct cas_digest digests[40];
	unsigned nr;
};

static int see(void *ctx, const void *data, size_t len)
{
	struct seen *seen = ctx;

	return cas_hash_bytes(data, len, &seen->digests[seen->nr++]);
}

/* A chain of @nr Directories; the root. */
static void plant_chain(const struct fixture *f, unsigned nr, struct cas_digest *digests)
{
	for (unsigned i = 0; i < nr; i++) {
		Reapi__Directory dir = REAPI__DIRECTORY__INIT;
		Reapi__DirectoryNode node = REAPI__DIRECTORY_NODE__INIT;
		Reapi__DirectoryNode *list = &node;
		Reapi__Digest digest = REAPI__DIGEST__INIT;
		char hash[CAS_HASH_HEX_SZ + 1];
		uint8_t packed[200];

		if (i > 0) {
			cas_hash_format(digests[i - 1].hash, hash);
			digest.hash = hash;
			digest.size_bytes = (int64_t)digests[i - 1].size;
			node.name = (char *)(uintptr_t) "below";
			node.digest = &digest;
			dir.n_directories = 1;
			dir.directories = &list;
		}
		if (i == 0) {
			digests[0] = cas_digest_empty;
			continue;
		}
		plant(f, packed, reapi__directory__pack(&dir, packed), &digests[i]);
	}
}

static void test_tree_comes_in_pages(void **state)
{
	struct cas_digest digests[20];
	struct seen seen = {.nr = 0};
	struct fixture f;

	start(&f, state, "");
	plant_chain(&f, 20, digests);
	assert_int_equal(cas_tier_get_tree(f.tier, &digests[19], see, &seen, &f.call, &f.err), 0);
	/* With the empty one at its end, which the server found named. */
	assert_int_equal(seen.nr, 20);
	for (unsigned i = 0; i < 20; i++)
		assert_true(cas_digest_equal(&seen.digests[i], &digests[19 - i]));
	assert_int_equal(count(&f, "log", "TREE"), 4);
	/* Parents are told of first, whatever the order they come in. */
	say(&f, "leaves-first", "");
	seen.nr = 0;
	assert_int_equal(cas_tier_get_tree(f.tier, &digests[19], see, &seen, &f.call, &f.err), 0);
	assert_int_equal(seen.nr, 19);
	assert_true(cas_digest_equal(&seen.digests[0], &digests[19]));
	/* What nobody named is told to nobody. */
	say(&f, "fault", "wrong");
	seen.nr = 0;
	assert_int_equal(cas_tier_get_tree(f.tier, &digests[19], see, &seen, &f.call, &f.err),
			 -ENOENT);
	assert_int_equal(seen.nr, 0);
	stop(&f);
}

/* A Directory of some 400 KB: links with long targets, and @below when it is not NULL. */
static void plant_wide(const struct fixture *f, const struct cas_digest *below,
		       struct cas_digest *out)
{
	enum { LINKS = 100, TARGET = 4000 };
	static char names[LINKS][8];
	static char target[TARGET + 1];
	Reapi__Directory dir = REAPI__DIRECTORY__INIT;
	Reapi__DirectoryNode node = REAPI__DIRECTORY_NODE__INIT;
	Reapi__DirectoryNode *list = &node;
	Reapi__Digest digest = REAPI__DIGEST__INIT;
	Reapi__SymlinkNode links[LINKS];
	Reapi__SymlinkNode *pointers[LINKS];
	char hash[CAS_HASH_HEX_SZ + 1];
	uint8_t *packed;

	memset(target, 'x', TARGET);
	for (unsigned i = 0; i < LINKS; i++) {
		links[i] = (Reapi__SymlinkNode)REAPI__SYMLINK_NODE__INIT;
		(void)snprintf(names[i], sizeof(names[i]), "l%03u", i);
		links[i].name = names[i];
		links[i].target = target;
		pointers[i] = &links[i];
	}
	dir.n_symlinks = LINKS;
	dir.symlinks = pointers;
	if (below) {
		cas_hash_format(below->hash, hash);
		digest.hash = hash;
		digest.size_bytes = (int64_t)below->size;
		node.name = (char *)(uintptr_t) "below";
		node.digest = &digest;
		dir.n_directories = 1;
		dir.directories = &list;
	}
	packed = malloc(reapi__directory__get_packed_size(&dir));
	assert_non_null(packed);
	plant(f, packed, reapi__directory__pack(&dir, packed), out);
	free(packed);
}

static int see_again(void *ctx, const void *data, size_t len)
{
	unsigned *nr = ctx;

	(*nr)++;
	return 0;
}

/* More than 1 MiB comes with each attempt, the same each time. */
static void test_tree_that_breaks_off_is_not_asked_for_for_ever(void **state)
{
	struct cas_digest digests[8];
	struct fixture f;
	unsigned nr = 0;

	start(&f, state, "tries=3");
	for (unsigned i = 0; i < 8; i++)
		plant_wide(&f, i > 0 ? &digests[i - 1] : NULL, &digests[i]);
	say(&f, "fault", "truncate");
	assert_int_not_equal(
		cas_tier_get_tree(f.tier, &digests[7], see_again, &nr, &f.call, &f.err), 0);
	assert_int_equal(count(&f, "log", "TREE"), 3);
	assert_int_equal(nr, 9);
	stop(&f);
}

static void test_server_without_trees_is_asked_once(void **state)
{
	struct cas_digest digests[3];
	struct seen seen = {.nr = 0};
	struct fixture f;

	start(&f, state, "");
	say(&f, "no-trees", "");
	plant_chain(&f, 3, digests);
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			cas_tier_get_tree(f.tier, &digests[2], see, &seen, &f.call, &f.err),
			-EOPNOTSUPP);
	assert_int_equal(count(&f, "log", "TREE"), 1);
	stop(&f);
}

static void test_results_go_as_they_are(void **state)
{
	/* exit_code 7, and a field that nobody knows. */
	static const char result[] = "\x20\x07\xf8\x7f\x01";
	auto_buf struct buf got = {0};
	char line[200];
	struct fixture f;

	start(&f, state, "write=yes");
	assert_int_equal(cas_tier_action_get(f.tier, &f.digest, &got, &f.call, &f.err), -ENOENT);
	assert_int_equal(cas_tier_action_put(f.tier, &f.digest, result, 5, &f.call, &f.err), 0);
	assert_int_equal(cas_tier_action_get(f.tier, &f.digest, &got, &f.call, &f.err), 0);
	assert_int_equal(got.len, 5);
	assert_memory_equal(got.data, result, 5);
	(void)snprintf(line, sizeof(line), "GetActionResult casbox %s ", CASBOX_VERSION);
	assert_int_equal(count(&f, "metadata", line), 2);
	(void)snprintf(line, sizeof(line), "%.64s", CAS_DIGEST_TEXT(&f.digest));
	got.len = 0;
	assert_int_equal(io_read_file(AT_FDCWD, in(&f, "metadata"), 1 << 20, &got), 0);
	assert_non_null(strstr(got.data, line));
	stop(&f);
}

static void test_retry_info_is_waited_for(void **state)
{
	unsigned long long begin;
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "");
	plant(&f, f.data, SIZE, &d);
	say(&f, "fault", "busy 1");
	begin = lock_now_ns();
	assert_int_equal(get(&f, &d), 0);
	assert_got(&f);
	/* It asks for a second; a backoff of ours would be 100 ms. */
	assert_true(lock_now_ns() - begin >= 1000000000);
	stop(&f);
}

static void *cancel_when_asked(void *arg)
{
	struct fixture *f = arg;

	while (count(f, "log", "GET ") == 0)
		nap();
	cas_call_cancel(&f->call);
	return NULL;
}

static void test_silent_server_does_not_hold_a_cancelled_call(void **state)
{
	pthread_t thread;
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "deadline=10m");
	plant(&f, f.data, SIZE, &d);
	say(&f, "fault", "hang");
	assert_int_equal(pthread_create(&thread, NULL, cancel_when_asked, &f), 0);
	assert_int_equal(get(&f, &d), -ECANCELED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	stop(&f);
}

static void test_silent_server_ends_at_the_deadline(void **state)
{
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "deadline=300ms");
	plant(&f, f.data, SIZE, &d);
	say(&f, "fault", "silent");
	assert_int_equal(get(&f, &d), -ETIMEDOUT);
	say(&f, "fault", "none");
	assert_int_equal(get(&f, &d), 0);
	assert_got(&f);
	stop(&f);
}

static void test_server_that_is_killed_comes_back(void **state)
{
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "deadline=3s");
	plant(&f, f.data, SIZE, &d);
	assert_int_equal(get(&f, &d), 0);
	server_stop(&f);
	assert_int_equal(get(&f, &d), -EAGAIN);
	server_start(&f, f.port);
	/* The breaker may be open for some seconds. */
	for (int i = 0; i < 1500 && get(&f, &d) != 0; i++)
		nap();
	assert_got(&f);
	stop(&f);
}

static void test_server_without_sha256_is_refused(void **state)
{
	struct fixture f;

	start(&f, state, "");
	say(&f, "no-sha256", "");
	assert_int_equal(get(&f, &f.digest), -EOPNOTSUPP);
	assert_non_null(strstr(f.err.msg, "SHA-256"));
	stop(&f);
}

static void test_token_comes_from_a_file_each_time(void **state)
{
	char options[300];
	struct fixture f;
	struct cas_digest d;

	start(&f, state, "");
	plant(&f, f.data, SIZE, &d);
	say(&f, "auth", "Bearer sesame\n");
	assert_int_equal(get(&f, &d), -EACCES);
	cas_tier_close(f.tier);
	say(&f, "token", "wrong\n");
	(void)snprintf(options, sizeof(options), "token-file=%s", in(&f, "token"));
	tier_start(&f, "grpc", options);
	assert_int_equal(get(&f, &d), -EACCES);
	assert_null(strstr(f.err.msg, "wrong"));
	say(&f, "token", "sesame\n");
	assert_int_equal(get(&f, &d), 0);
	assert_got(&f);
	stop(&f);
}

static void test_token_does_not_travel_in_plain_text(void **state)
{
	struct cas_tier *tier = NULL;
	struct err err = {0};
	char url[300];

	tests_write_file(tests_path(*state, "token"), "sesame", 6, 0600);
	(void)snprintf(url, sizeof(url), "grpc://example.org/?token-file=%s",
		       tests_path(*state, "token"));
	assert_int_equal(cas_tier_open(url, &tier, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "plain text"));
	(void)snprintf(url, sizeof(url), "grpc://host/?ca-file=%s", tests_path(*state, "token"));
	assert_int_equal(cas_tier_open(url, &tier, &err), -EINVAL);
	assert_int_equal(cas_tier_open("grpc://host/a/blobs/b", &tier, &err), -EINVAL);
	assert_int_equal(cas_tier_open("grpc://host/a?ca=b", &tier, &err), -EINVAL);
	assert_null(tier);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_read_goes_on_where_it_ended),
		TESTS_IN_DIR(test_compressed_read_goes_on_where_it_ended),
		TESTS_IN_DIR(test_what_cannot_be_decompressed_is_asked_for_as_it_is),
		TESTS_IN_DIR(test_range_is_sent_as_it_is),
		TESTS_IN_DIR(test_write_is_taken_up_where_it_ended),
		TESTS_IN_DIR(test_compressed_write),
		TESTS_IN_DIR(test_wrong_bytes_are_refused_by_the_server),
		TESTS_IN_DIR(test_batches_keep_to_the_limit),
		TESTS_IN_DIR(test_batches_are_compressed),
		TESTS_IN_DIR(test_one_blob_above_the_limit_is_named),
		TESTS_IN_DIR(test_status_of_each_blob_counts),
		TESTS_IN_DIR(test_unanswered_blobs_are_asked_for_again),
		TESTS_IN_DIR(test_tree_comes_in_pages),
		TESTS_IN_DIR(test_tree_that_breaks_off_is_not_asked_for_for_ever),
		TESTS_IN_DIR(test_server_without_trees_is_asked_once),
		TESTS_IN_DIR(test_results_go_as_they_are),
		TESTS_IN_DIR(test_retry_info_is_waited_for),
		TESTS_IN_DIR(test_silent_server_does_not_hold_a_cancelled_call),
		TESTS_IN_DIR(test_silent_server_ends_at_the_deadline),
		TESTS_IN_DIR(test_server_that_is_killed_comes_back),
		TESTS_IN_DIR(test_server_without_sha256_is_refused),
		TESTS_IN_DIR(test_token_comes_from_a_file_each_time),
		TESTS_IN_DIR(test_token_does_not_travel_in_plain_text),
	};

	if (argc != 2) {
		(void)fprintf(stderr, "usage: test_cas_reapi REAPID\n");
		return 2;
	}
	program = argv[1];
	log_set_sink(no_log, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
