/* fs/explain/spot.c - what people name when they ask about trees */
#include "fs/explain/spot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/sandbox/record.h"
#include "meta/meta.h"

int fs_spot_sandbox(struct cas_store *store, const char *id, struct cas_digest *out,
		    struct err *err)
{
	struct fs_record rec = {0};
	auto_free char *path = NULL;
	auto_close int dir_fd = -1;
	int ret = fs_sandbox_id_check(id, err);

	if (ret < 0)
		return ret;
	if (asprintf(&path, "sandboxes/%s", id) < 0) {
		path = NULL;
		return err_set(err, -ENOMEM, "no memory to look for sandbox %s", id);
	}
	dir_fd = openat(cas_store_dir_fd(store), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return err_set(err, -errno,
			       errno == ENOENT ? "there is no sandbox %s"
					       : "cannot look into sandbox %s: %m",
			       id);
	ret = fs_record_read(dir_fd, &rec, err);
	if (ret < 0)
		return err_context(err, ret, "sandbox %s", id);
	*out = rec.root;
	fs_record_fini(&rec);
	return 0;
}

static bool starts_with_hash(const char *text)
{
	return strspn(text, "0123456789abcdef") >= CAS_HASH_HEX_SZ;
}

/* The length of HASH/SIZE at the start of @text, or of the hash alone. */
static size_t digest_len(const char *text)
{
	size_t digits;

	if (text[CAS_HASH_HEX_SZ] == '\0' || !strchr("/-:", text[CAS_HASH_HEX_SZ]))
		return CAS_HASH_HEX_SZ;
	digits = strspn(text + CAS_HASH_HEX_SZ + 1, "0123456789");
	return digits ? CAS_HASH_HEX_SZ + 1 + digits : CAS_HASH_HEX_SZ;
}

static int parse_root(struct cas_store *store, const char *word, struct cas_digest *out,
		      struct err *err)
{
	uint8_t hash[CAS_HASH_SZ];
	int ret;

	if (!starts_with_hash(word))
		return fs_spot_sandbox(store, word, out, err);
	if (cas_digest_parse(word, out) == 0)
		return 0;
	if (cas_hash_parse(word, strlen(word), hash) < 0)
		return err_set(err, -EINVAL, "'%.200s' is neither a digest nor a sandbox", word);
	ret = cas_store_resolve(store, hash, out);
	if (ret == 0)
		return err_set(err, -ENOENT, "no size is known for %s: give HASH/SIZE", word);
	return ret < 0 ? err_set(err, ret, "cannot look up %s: %s", word, strerrordesc_np(-ret))
		       : 0;
}

void fs_spot_fini(struct meta_change_side *side)
{
	free(side->target);
	side->target = NULL;
}

static int take_entry(struct meta_dirent *e, struct meta_change_side *out)
{
	*out = (struct meta_change_side){
		.kind = e->kind,
		.executable = e->executable,
		.has_mtime = e->has_mtime,
		.has_mode = e->has_mode,
		.mtime_nsec = e->has_mtime ? e->mtime_nsec : 0,
		.mtime_sec = e->has_mtime ? e->mtime_sec : 0,
		.mode = e->has_mode ? e->mode & 0777 : 0,
		.digest = e->digest,
		.target = e->kind == CAS_NODE_SYMLINK ? e->target : NULL,
	};
	if (e->kind == CAS_NODE_SYMLINK)
		e->target = NULL;
	return 0;
}

/* One step down from the directory *at. */
static int step(struct meta *meta, const char *name, const char *text, struct meta_change_side *at,
		struct err *err)
{
	struct meta_dirent found = {0};
	int ret;

	if (at->kind != CAS_NODE_DIRECTORY)
		return err_set(err, -ENOTDIR, "%.500s: what has '%.255s' below it is a %s", text,
			       name, fs_node_name(at->kind));
	ret = meta_dir_find(meta, &at->digest, name, &found, err);
	if (ret < 0)
		return ret;
	if (ret == 0)
		return err_set(err, -ENOENT, "%.500s: there is no '%.255s' in the directory %s",
			       text, name, CAS_DIGEST_TEXT(&at->digest));
	ret = take_entry(&found, at);
	meta_dirent_fini(&found);
	return ret;
}

static int take_root(struct meta *meta, const struct cas_digest *root, struct meta_change_side *out,
		     struct err *err)
{
	struct meta_dirinfo info;
	int ret = meta_dir_info(meta, root, &info, err);

	if (ret == 0)
		*out = (struct meta_change_side){
			.kind = CAS_NODE_DIRECTORY,
			.digest = *root,
			.has_mtime = info.props.has_mtime,
			.has_mode = info.props.has_mode,
			.mtime_nsec = info.props.mtime_nsec,
			.mtime_sec = info.props.mtime_sec,
			.mode = info.props.mode & 0777,
		};
	return ret;
}

int fs_spot_find(struct cas_store *store, struct meta *meta, const char *text,
		 struct meta_change_side *out, struct err *err)
{
	size_t len = starts_with_hash(text) ? digest_len(text) : strcspn(text, "/");
	auto_free char *words = strdup(text);
	struct meta_change_side at = {0};
	struct cas_digest root;
	char *save = NULL;
	char *word;
	int ret;

	if (words == NULL)
		return err_set(err, -ENOMEM, "no memory to look for %.500s", text);
	if (words[len] != '\0' && words[len] != '/')
		return err_set(err, -EINVAL, "'%.200s' is neither a digest nor a sandbox", text);
	word = words[len] ? words + len + 1 : words + len;
	words[len] = '\0';
	ret = parse_root(store, words, &root, err);
	if (ret == 0)
		ret = take_root(meta, &root, &at, err);
	for (word = strtok_r(word, "/", &save); ret == 0 && word; word = strtok_r(NULL, "/", &save))
		if (strcmp(word, ".") != 0)
			ret = step(meta, word, text, &at, err);
	if (ret < 0)
		fs_spot_fini(&at);
	else
		*out = at;
	return ret;
}

static bool spots_equal(const struct meta_change_side *a, const struct meta_change_side *b)
{
	if (a->kind != b->kind || a->has_mtime != b->has_mtime || a->has_mode != b->has_mode ||
	    a->mtime_sec != b->mtime_sec || a->mtime_nsec != b->mtime_nsec || a->mode != b->mode)
		return false;
	if (a->kind == CAS_NODE_SYMLINK)
		return strcmp(a->target, b->target) == 0;
	return a->executable == b->executable && cas_digest_equal(&a->digest, &b->digest);
}

/* Takes over what the sides own. */
static int one_change(struct meta_change_side *old, struct meta_change_side *new,
		      struct meta_changes *out)
{
	struct meta_changes got = {0};

	if (spots_equal(old, new)) {
		*out = got;
		return 0;
	}
	got.list = calloc(1, sizeof(*got.list));
	if (got.list == NULL)
		return -ENOMEM;
	got.list[0].path = strdup("");
	if (got.list[0].path == NULL) {
		free(got.list);
		return -ENOMEM;
	}
	got.nr = got.cap = 1;
	got.list[0].kind = old->kind == new->kind ? META_CHANGE_MODIFIED : META_CHANGE_TYPE;
	got.list[0].old = *old;
	got.list[0].new = *new;
	old->target = NULL;
	new->target = NULL;
	*out = got;
	return 0;
}

int fs_spot_diff(struct cas_store *store, struct meta *meta, const char *a, const char *b,
		 bool whole, size_t max, struct meta_changes *out, struct err *err)
{
	struct meta_change_side old = {0};
	struct meta_change_side new = {0};
	int ret = fs_spot_find(store, meta, a, &old, err);

	if (ret == 0)
		ret = fs_spot_find(store, meta, b, &new, err);
	if (ret == 0 && old.kind == CAS_NODE_DIRECTORY && new.kind == CAS_NODE_DIRECTORY)
		ret = meta_tree_diff(meta, &old.digest, &new.digest, whole, max, out, err);
	else if (ret == 0)
		ret = one_change(&old, &new, out);
	fs_spot_fini(&old);
	fs_spot_fini(&new);
	return ret == -ENOMEM ? err_set(err, ret, "no memory to compare two trees") : ret;
}

const char *fs_change_name(const struct meta_change *change)
{
	static const char *const names[] = {
		[META_CHANGE_ADDED] = "added",
		[META_CHANGE_DELETED] = "deleted",
		[META_CHANGE_MODIFIED] = "modified",
		[META_CHANGE_TYPE] = "type",
	};

	return names[change->kind];
}

char fs_change_letter(const struct meta_change *change)
{
	return "ADMT"[change->kind];
}

const char *fs_node_name(enum cas_node_kind kind)
{
	switch (kind) {
	case CAS_NODE_DIRECTORY:
		return "directory";
	case CAS_NODE_SYMLINK:
		return "symlink";
	case CAS_NODE_FILE:
		break;
	}
	return "file";
}

unsigned fs_side_mode(const struct meta_change_side *side)
{
	if (side->kind == CAS_NODE_SYMLINK)
		return 0777;
	if (side->has_mode)
		return side->mode;
	if (side->kind == CAS_NODE_DIRECTORY)
		return 0755;
	return side->executable ? 0555 : 0444;
}

json_t *fs_side_describe(const struct meta_change_side *side)
{
	json_t *obj = json_pack("{s:s}", "kind", fs_node_name(side->kind));
	int ret = obj ? 0 : -1;

	if (ret == 0 && side->kind == CAS_NODE_SYMLINK)
		ret = json_object_set_new(obj, "target", json_string(side->target));
	if (ret == 0 && side->kind != CAS_NODE_SYMLINK)
		ret = json_object_set_new(obj, "digest",
					  json_string(CAS_DIGEST_TEXT(&side->digest)));
	if (ret == 0 && side->kind == CAS_NODE_FILE)
		ret = json_object_set_new(obj, "size", json_integer((json_int_t)side->digest.size));
	if (ret == 0 && side->kind == CAS_NODE_FILE)
		ret = json_object_set_new(obj, "executable", json_boolean(side->executable));
	if (ret == 0 && side->has_mode)
		ret = json_object_set_new(obj, "mode", json_integer(side->mode));
	if (ret == 0 && side->has_mtime)
		ret = json_object_set_new(obj, "mtime_s", json_integer(side->mtime_sec));
	if (ret == 0 && side->has_mtime)
		ret = json_object_set_new(obj, "mtime_ns", json_integer(side->mtime_nsec));
	if (ret < 0) {
		json_decref(obj);
		return NULL;
	}
	return obj;
}

json_t *fs_change_describe(const struct meta_change *change)
{
	json_t *obj =
		json_pack("{s:s, s:s}", "change", fs_change_name(change), "path", change->path);
	int ret = obj ? 0 : -1;

	if (ret == 0 && change->kind != META_CHANGE_ADDED)
		ret = json_object_set_new(obj, "old", fs_side_describe(&change->old));
	if (ret == 0 && change->kind != META_CHANGE_DELETED)
		ret = json_object_set_new(obj, "new", fs_side_describe(&change->new));
	if (ret == 0 && change->other)
		ret = json_object_set_new(obj, "other_properties", json_true());
	if (ret < 0) {
		json_decref(obj);
		return NULL;
	}
	return obj;
}
