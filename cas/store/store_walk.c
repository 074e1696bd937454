/* cas/store/store_walk.c - every file below cas/, ac/ or a variant directory */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/landing/landing.h"
#include "cas/store/store_i.h"

/* "links/0444/HH/" and the longest name */
#define WALK_PATH_SZ (16 + 256 + 16)

/* Open a directory below @top_fd for reading its names; NULL and *code on failure. */
static DIR *open_names(int top_fd, const char *name, int *code)
{
	int fd = openat(top_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	*code = dir ? 0 : -errno;
	if (dir == NULL && fd >= 0)
		(void)close(fd);
	return dir;
}

static bool is_dot(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* What a name in shard @shard is, as far as the name alone tells. */
static enum cas_walk_kind classify(const char *name, unsigned shard, uint8_t hash[CAS_HASH_SZ])
{
	if (has_prefix(name, CAS_TMP_PREFIX))
		return CAS_WALK_TMP;
	if (has_prefix(name, CAS_BAD_PREFIX))
		return CAS_WALK_BAD;
	if (cas_hash_parse(name, strlen(name), hash) == 0 && cas_layout_shard(hash) == shard)
		return CAS_WALK_ENTRY;
	return CAS_WALK_FOREIGN;
}

static int visit(int dir_fd, const char *path, const char *name, enum cas_walk_kind kind,
		 const uint8_t hash[CAS_HASH_SZ], cas_walk_fn each, void *ctx, struct err *err)
{
	struct cas_walk_item item = {.kind = kind, .shard_fd = dir_fd, .name = name, .path = path};

	if (kind == CAS_WALK_ENTRY)
		memcpy(item.hash, hash, CAS_HASH_SZ);
	if (fstatat(dir_fd, name, &item.st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_set(err, -errno, "cannot stat %s: %m", path);
	if (kind == CAS_WALK_ENTRY && !S_ISREG(item.st.st_mode))
		item.kind = CAS_WALK_WRONG_TYPE;
	return each(ctx, &item);
}

/* @extras: names that may be entries are passed over, and not looked at. */
static int walk_shard(int top_fd, const char *top, unsigned shard, bool extras, cas_walk_fn each,
		      void *ctx, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	char path[WALK_PATH_SZ];
	char name[3];
	struct dirent *de;
	int code;
	int ret = 0;

	(void)snprintf(name, sizeof(name), "%02x", shard);
	dir = open_names(top_fd, name, &code);
	if (dir == NULL)
		return code == -ENOENT || code == -ENOTDIR
			       ? 0
			       : err_set(err, code, "cannot list %s/%s: %s", top, name,
					 strerrordesc_np(-code));
	for (errno = 0; ret == 0 && (de = readdir(dir)) != NULL; errno = 0) {
		uint8_t hash[CAS_HASH_SZ];
		enum cas_walk_kind kind = classify(de->d_name, shard, hash);

		if (is_dot(de->d_name) || (extras && kind == CAS_WALK_ENTRY))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s/%s", top, name, de->d_name);
		ret = visit(dirfd(dir), path, de->d_name, kind, hash, each, ctx, err);
	}
	if (ret == 0 && errno != 0)
		return err_set(err, -errno, "cannot list %s/%s: %m", top, name);
	return ret;
}

int cas_walk_shard(int top_fd, const char *top, unsigned shard, cas_walk_fn each, void *ctx,
		   struct err *err)
{
	return walk_shard(top_fd, top, shard, false, each, ctx, err);
}

int cas_walk_extras(int top_fd, const char *top, unsigned shard, cas_walk_fn each, void *ctx,
		    struct err *err)
{
	return walk_shard(top_fd, top, shard, true, each, ctx, err);
}

/* Two lower-case digits that name a directory, directly or through a symlink. */
static bool is_shard(int dir_fd, const char *name)
{
	static const char digits[] = "0123456789abcdef";
	struct stat st;

	return strlen(name) == 2 && strspn(name, digits) == 2 &&
	       fstatat(dir_fd, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

int cas_walk_beside(int top_fd, const char *top, cas_walk_fn each, void *ctx, struct err *err)
{
	auto_closedir DIR *dir = NULL;
	char path[WALK_PATH_SZ];
	struct dirent *de;
	int code;
	int ret = 0;

	dir = open_names(top_fd, ".", &code);
	if (dir == NULL)
		return err_set(err, code, "cannot list %s: %s", top, strerrordesc_np(-code));
	for (errno = 0; ret == 0 && (de = readdir(dir)) != NULL; errno = 0) {
		if (is_dot(de->d_name) || is_shard(top_fd, de->d_name))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", top, de->d_name);
		ret = visit(top_fd, path, de->d_name,
			    has_prefix(de->d_name, CAS_TMP_PREFIX) ? CAS_WALK_TMP
								   : CAS_WALK_FOREIGN,
			    NULL, each, ctx, err);
	}
	if (ret == 0 && errno != 0)
		return err_set(err, -errno, "cannot list %s: %m", top);
	return ret;
}

struct public_walk {
	int (*each)(void *ctx, const struct cas_store_blob *blob);
	int (*foreign)(void *ctx, const char *path);
	void *ctx;
};

static void blob_of(const uint8_t hash[CAS_HASH_SZ], const struct stat *st,
		    struct cas_store_blob *out)
{
	*out = (struct cas_store_blob){
		.digest.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.mode = st->st_mode & 07777,
	};
	memcpy(out->digest.hash, hash, CAS_HASH_SZ);
	cas_stamp_of(st, &out->stamp);
}

/* A name of a blob's form that is no regular file is nobody's blob: foreign here. */
static int tell(void *ctx, const struct cas_walk_item *item)
{
	struct public_walk *w = ctx;
	struct cas_store_blob blob;

	if (item->kind == CAS_WALK_TMP || item->kind == CAS_WALK_BAD)
		return 0;
	if (item->kind != CAS_WALK_ENTRY)
		return w->foreign ? w->foreign(w->ctx, item->path) : 0;
	blob_of(item->hash, &item->st, &blob);
	return w->each(w->ctx, &blob);
}

int cas_store_walk_shard(struct cas_store *store, unsigned shard,
			 int (*each)(void *ctx, const struct cas_store_blob *blob), void *ctx,
			 struct err *err)
{
	struct public_walk w = {.each = each, .ctx = ctx};

	return cas_walk_shard(store->cas_fd, "cas", shard, tell, &w, err);
}

int cas_store_look(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ],
		   struct cas_store_blob *out)
{
	struct stat st;
	int ret = cas_blob_stat(store, hash, &st);

	if (ret < 0)
		return ret == -ENOENT || ret == -ENOTDIR ? 0 : ret;
	if (!S_ISREG(st.st_mode))
		return 0;
	blob_of(hash, &st, out);
	return 1;
}

static bool is_file(int dir_fd, const struct dirent *de)
{
	struct stat st;

	if (de->d_type != DT_UNKNOWN)
		return de->d_type == DT_REG;
	return fstatat(dir_fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int cas_store_list_shard(struct cas_store *store, unsigned shard,
			 int (*each)(void *ctx, const uint8_t hash[CAS_HASH_SZ]), void *ctx,
			 struct err *err)
{
	auto_closedir DIR *dir = NULL;
	char name[3];
	struct dirent *de;
	int code;
	int ret = 0;

	(void)snprintf(name, sizeof(name), "%02x", shard);
	dir = open_names(store->cas_fd, name, &code);
	if (dir == NULL)
		return code == -ENOENT || code == -ENOTDIR
			       ? 0
			       : err_set(err, code, "cannot list cas/%s: %s", name,
					 strerrordesc_np(-code));
	for (errno = 0; ret == 0 && (de = readdir(dir)) != NULL; errno = 0) {
		uint8_t hash[CAS_HASH_SZ];

		if (classify(de->d_name, shard, hash) == CAS_WALK_ENTRY && is_file(dirfd(dir), de))
			ret = each(ctx, hash);
	}
	if (ret == 0 && errno != 0)
		return err_set(err, -errno, "cannot list cas/%s: %m", name);
	return ret;
}

int cas_store_walk(struct cas_store *store,
		   int (*each)(void *ctx, const struct cas_store_blob *blob),
		   int (*foreign)(void *ctx, const char *path), void *ctx, struct err *err)
{
	struct public_walk w = {.each = each, .foreign = foreign, .ctx = ctx};
	int ret = cas_landing_settle(store, err);

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0; i++)
		ret = cas_walk_shard(store->cas_fd, "cas", i, tell, &w, err);
	if (ret == 0 && foreign)
		ret = cas_walk_beside(store->cas_fd, "cas", tell, &w, err);
	return ret;
}
