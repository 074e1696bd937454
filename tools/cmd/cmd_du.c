/* tools/cmd/cmd_du.c - `casbox du`: what trees, or the store, take on the disk */
/*
 * A tree is walked by the packed directories of the index, and of each blob its file is
 * looked at once: no blob is read. A blob that was counted, for this tree or for one named
 * before it, is not counted again, so that the total is what removing all of them would free.
 */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1
/* The key starts with a hash or an inode number, as good as what uthash would make of it. */
#define HASH_FUNCTION(key, len, out) ((void)(len), memcpy(&(out), (key), sizeof(out)))
#include <uthash.h>

#include "cas/cas.h"
#include "cas/reapi/directory.h"
#include "cas/store/blob_place.h"
#include "meta/meta.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"

struct du_args {
	bool json;
};

static const struct cli_option options[] = {
	{"json", 0, CLI_FLAG, offsetof(struct du_args, json), NULL,
	 "one JSON object a digest, or of the store", false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

struct seen {
	uint8_t key[CAS_HASH_SZ];
	UT_hash_handle hh;
};

/* A directory that waits to be listed. A stack of our own: trees may be 10,000 deep. */
struct todo {
	struct todo *next;
	struct cas_digest digest;
};

struct sizes {
	uint64_t nr;
	uint64_t bytes;
	uint64_t disk;
	uint64_t nr_missing; /* named, and not here; not in the others */
};

struct du {
	struct cli *cli;
	struct cas_store *store;
	struct meta *meta;
	struct seen *seen;
	struct todo *todo;
	struct sizes sum; /* of the digest or kind at hand */
	uint64_t nr_unread;
};

/* 1: for the first time, 0, or -ENOMEM. */
static int see(struct du *du, const uint8_t key[CAS_HASH_SZ])
{
	struct seen *seen = NULL;

	HASH_FIND(hh, du->seen, key, CAS_HASH_SZ, seen);
	if (seen)
		return 0;
	seen = malloc(sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	memcpy(seen->key, key, CAS_HASH_SZ);
	HASH_ADD(hh, du->seen, key, CAS_HASH_SZ, seen);
	if (!seen->hh.tbl) {
		free(seen);
		return -ENOMEM;
	}
	return 1;
}

static void du_fini(struct du *du)
{
	struct seen *seen, *tmp;

	HASH_ITER (hh, du->seen, seen, tmp) {
		HASH_DEL(du->seen, seen);
		free(seen);
	}
	while (du->todo) {
		struct todo *next = du->todo->next;

		free(du->todo);
		du->todo = next;
	}
}

static void add(struct sizes *to, const struct sizes *what)
{
	to->nr += what->nr;
	to->bytes += what->bytes;
	to->disk += what->disk;
	to->nr_missing += what->nr_missing;
}

/* What a blob takes that is not in cas/: on its way there, or empty and without a file. */
static int spooled(struct du *du, const struct cas_digest *digest, uint64_t *disk)
{
	struct cas_blob_place place = {0};
	struct stat st;
	int ret = cas_store_place(du->store, digest, &place);

	*disk = 0;
	if (ret == 0 && place.spool && stat(place.spool, &st) == 0)
		*disk = (uint64_t)st.st_blocks * 512;
	cas_blob_place_fini(&place);
	return ret;
}

/* 1: it was not counted before. */
static int count_blob(struct du *du, const struct cas_digest *digest)
{
	struct cas_store_blob blob;
	uint64_t disk = 0;
	int fresh = see(du, digest->hash);
	int ret;

	if (fresh <= 0)
		return fresh;
	ret = cas_store_look(du->store, digest->hash, &blob);
	if (ret == 1 && blob.digest.size == digest->size) {
		disk = blob.blocks * 512;
	} else if (ret >= 0) {
		ret = cas_store_has(du->store, digest);
		if (ret == 1)
			ret = spooled(du, digest, &disk) < 0 ? -ENOMEM : 1;
	}
	if (ret < 0)
		return ret;
	if (ret == 1)
		add(&du->sum, &(struct sizes){1, digest->size, disk, 0});
	else
		du->sum.nr_missing++;
	return 1;
}

static int count_dir(struct du *du, const struct cas_digest *digest)
{
	int ret = count_blob(du, digest);
	struct todo *todo;

	if (ret <= 0)
		return ret;
	todo = malloc(sizeof(*todo));
	if (!todo)
		return -ENOMEM;
	*todo = (struct todo){du->todo, *digest};
	du->todo = todo;
	return 0;
}

static int count_entry(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	int ret;

	(void)index;
	if (entry->kind == CAS_NODE_SYMLINK)
		return 0;
	if (entry->kind == CAS_NODE_DIRECTORY)
		return count_dir(ctx, &entry->digest);
	ret = count_blob(ctx, &entry->digest);
	return ret < 0 ? ret : 0;
}

static int count_tree(struct du *du, const struct cas_digest *root, struct err *err)
{
	int ret = count_dir(du, root);

	while (ret == 0 && du->todo) {
		struct todo *at = du->todo;

		du->todo = at->next;
		ret = meta_dir_list(du->meta, &at->digest, 0, count_entry, du, err);
		if (ret == -ENOENT) {
			du->nr_unread++;
			ret = 0;
		}
		free(at);
	}
	return ret;
}

/* A tree, or else a blob. */
static int count_digest(struct du *du, const struct cas_digest *digest, struct err *err)
{
	struct meta_dirinfo info;
	int ret = cas_store_has(du->store, digest);

	if (ret == 0)
		return err_set(err, -ENOENT, "%s is not in the store", CAS_DIGEST_TEXT(digest));
	if (ret == 1 && digest->size <= CAS_DIRECTORY_MAX &&
	    meta_dir_info(du->meta, digest, &info, NULL) == 0)
		ret = count_tree(du, digest, err);
	else if (ret == 1)
		ret = count_blob(du, digest);
	return ret < 0 ? ret : 0;
}

static json_t *sizes_object(const struct sizes *sum, const char *what)
{
	return json_pack("{s:I, s:I, s:I}", what, (json_int_t)sum->nr, "bytes",
			 (json_int_t)sum->bytes, "disk_bytes", (json_int_t)sum->disk);
}

static int print_sum(const struct du_args *args, const struct sizes *sum, const char *digest)
{
	json_t *object;

	if (!args->json) {
		(void)printf("%15" PRIu64 " %15" PRIu64 " %9" PRIu64 " %9" PRIu64 "  %s\n",
			     sum->bytes, sum->disk, sum->nr, sum->nr_missing,
			     digest ? digest : "total");
		return 0;
	}
	object = sizes_object(sum, "blobs");
	if (object &&
	    (json_object_set_new(object, "missing", json_integer((json_int_t)sum->nr_missing)) ||
	     json_object_set_new(object, digest ? "digest" : "total",
				 digest ? json_string(digest) : json_true()))) {
		json_decref(object);
		object = NULL;
	}
	return cli_print_json(object);
}

static int du_digests(struct du *du, const struct du_args *args, const struct cli_words *words,
		      struct err *err)
{
	struct sizes total = {0};
	int ret = 0;

	if (!args->json)
		(void)printf("%15s %15s %9s %9s\n", "bytes", "disk", "blobs", "missing");
	for (int i = 0; ret == 0 && i < words->argc; i++) {
		struct cas_digest digest;

		du->sum = (struct sizes){0};
		ret = cli_digest(du->cli, du->store, words->argv[i], &digest, err);
		if (ret == 0)
			ret = count_digest(du, &digest, err);
		if (ret == 0)
			ret = print_sum(args, &du->sum, CAS_DIGEST_TEXT(&digest));
		add(&total, &du->sum);
	}
	if (ret == 0 && words->argc > 1)
		ret = print_sum(args, &total, NULL);
	if (ret == 0 && du->nr_unread > 0)
		cli_warn(du->cli,
			 "%" PRIu64 " directories are not here; what is in them is not counted",
			 du->nr_unread);
	return ret;
}

/* --- the store by kind --- */

static int count_file(struct du *du, const struct stat *st)
{
	uint64_t key[CAS_HASH_SZ / sizeof(uint64_t)] = {st->st_ino, st->st_dev};
	int ret = st->st_nlink > 1 ? see(du, (const uint8_t *)key) : 1;

	if (ret == 1)
		add(&du->sum,
		    &(struct sizes){1, (uint64_t)st->st_size, (uint64_t)st->st_blocks * 512, 0});
	return ret < 0 ? ret : 0;
}

/* The files below @base/@name; what comes and goes meanwhile is no error. */
static int count_files(struct du *du, const char *base, const char *name, struct err *err)
{
	auto_free char *path = NULL;
	char *paths[2] = {NULL, NULL};
	FTSENT *at;
	FTS *fts;
	int ret = 0;

	if (asprintf(&path, "%s/%s", base, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	paths[0] = path;
	fts = fts_open(paths, FTS_PHYSICAL, NULL);
	if (!fts)
		return -ENOMEM;
	while (ret == 0 && (at = fts_read(fts)) != NULL) {
		if (at->fts_info == FTS_F)
			ret = count_file(du, at->fts_statp);
		else if ((at->fts_info == FTS_DNR || at->fts_info == FTS_ERR ||
			  at->fts_info == FTS_NS) &&
			 at->fts_errno != ENOENT)
			ret = err_set(err, -at->fts_errno, "cannot look at %s: %s", at->fts_path,
				      strerrordesc_np(at->fts_errno));
	}
	(void)fts_close(fts);
	return ret;
}

static int print_kind(json_t *object, const char *kind, const struct sizes *sum)
{
	if (object)
		return json_object_set_new(object, kind, sizes_object(sum, "files")) ? -ENOMEM : 0;
	(void)printf("%15" PRIu64 " %15" PRIu64 " %9" PRIu64 "  %s\n", sum->bytes, sum->disk,
		     sum->nr, kind);
	return 0;
}

static int du_kinds(struct du *du, const char *path, json_t *object, struct err *err)
{
	static const char *const kinds[][2] = {
		{"results", "ac"},	    {"hardlinks", "links"}, {"trees", "trees"},
		{"sandboxes", "sandboxes"}, {"spool", "spool"},	    {"landing", "landing"},
		{"outbox", "outbox"},	    {"index", "meta"},
	};
	struct meta_stat st = {0};
	struct sizes total = {0};
	int ret = meta_stat(du->meta, &st, err);

	/* The ledger knows what the blobs are without a look at each. */
	du->sum = (struct sizes){st.blobs, st.bytes, st.disk, 0};
	for (size_t i = 0; ret == 0; i++) {
		ret = print_kind(object, i == 0 ? "blobs" : kinds[i - 1][0], &du->sum);
		add(&total, &du->sum);
		if (ret || i == sizeof(kinds) / sizeof(kinds[0]))
			break;
		du->sum = (struct sizes){0};
		ret = count_files(du, i == 0 && du->cli->blobs ? du->cli->blobs : path, kinds[i][1],
				  err);
	}
	return ret == 0 ? print_kind(object, "total", &total) : ret;
}

static int du_store(struct du *du, const struct du_args *args, const char *path, struct err *err)
{
	json_t *object = args->json ? json_object() : NULL;
	int ret;

	if (args->json && !object)
		return -ENOMEM;
	if (!object)
		(void)printf("%15s %15s %9s\n", "bytes", "disk", "files");
	ret = du_kinds(du, path, object, err);
	if (ret == 0 && object)
		return cli_print_json(object);
	json_decref(object);
	return ret;
}

int cmd_du(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct du_args args = {0};
	struct cli_words words = {0};
	struct local *local = NULL;
	struct du du = {.cli = cli};
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = local_open(cli, LOCAL_READ, &local, err);
	if (ret < 0)
		return ret;
	du.store = local_store(local);
	du.meta = local_meta(local);
	ret = words.argc > 0 ? du_digests(&du, &args, &words, err)
			     : du_store(&du, &args, local_path(local), err);
	if (ret == -ENOMEM)
		ret = err_set(err, ret, "out of memory");
	du_fini(&du);
	local_close(local);
	return ret;
}
