/* fs/explain/explain.c - what is asked about */
#include "fs/explain/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/explain/explain_i.h"
#include "fs/explain/spot.h"
#include "meta/meta.h"

/* The id in a path that leads into a sandbox, and what is below it; NULL: none. Caller frees. */
static char *id_in_path(const char *path, const char **below)
{
	static const char *const places[] = {"/sandboxes/", "/traced/"};

	for (size_t i = 0; i < 2; i++) {
		const char *at = strstr(path, places[i]);
		const char *id = at ? at + strlen(places[i]) : NULL;
		size_t len = id ? strcspn(id, "/") : 0;

		if (len == 0)
			continue;
		*below = id[len] == '/' ? id + len + 1 : id + len;
		return strndup(id, len);
	}
	return NULL;
}

static int explain_digest(const struct fs_explain *ex, const char *text, const char *path,
			  json_t **out, struct err *err)
{
	uint8_t hash[CAS_HASH_SZ];
	struct cas_digest digest;
	struct cas_digest known;
	int ret;

	if (cas_digest_parse(text, &digest) == 0) {
		if (cas_store_resolve(ex->store, digest.hash, &known) == 1 &&
		    known.size != digest.size)
			return err_set(err, -ENOENT, "%s: that hash belongs to %llu bytes",
				       CAS_DIGEST_TEXT(&digest), (unsigned long long)known.size);
	} else {
		if (cas_hash_parse(text, strlen(text), hash) < 0)
			return err_set(err, -EINVAL, "'%.200s' is neither a digest nor a sandbox",
				       text);
		ret = cas_store_resolve(ex->store, hash, &digest);
		if (ret <= 0)
			return err_set(err, ret < 0 ? ret : -ENOENT,
				       "no size is known for %s: give HASH/SIZE", text);
	}
	return path ? fs_explain_name(ex, &digest, NULL, path, out, err)
		    : fs_explain_blob(ex, &digest, out, err);
}

/* The root of one that is, or was. */
static int root_of(const struct fs_explain *ex, const char *id, struct cas_digest *root,
		   struct err *err)
{
	struct meta_sandbox_facts facts = {0};
	int ret = fs_spot_sandbox(ex->store, id, root, err);

	if (ret != -ENOENT || meta_sandbox_find(ex->meta, id, &facts, NULL) != 1)
		return ret;
	ret = cas_digest_parse(facts.root, root);
	meta_sandbox_facts_fini(&facts);
	return ret < 0 ? err_set(err, -ENOENT, "the root of sandbox %s is not known", id) : 0;
}

static int explain_box(const struct fs_explain *ex, const char *id, const char *path, json_t **out,
		       struct err *err)
{
	struct cas_digest root;
	int ret;

	if (!path)
		return fs_explain_sandbox(ex, id, out, err);
	ret = root_of(ex, id, &root, err);
	return ret < 0 ? ret : fs_explain_name(ex, &root, id, path, out, err);
}

int fs_explain(const struct fs_explain *ex, const char *what, const char *path, json_t **out,
	       struct err *err)
{
	const char *below = NULL;
	auto_free char *id = NULL;

	if (strspn(what, "0123456789abcdef") >= CAS_HASH_HEX_SZ)
		return explain_digest(ex, what, path, out, err);
	if (!strchr(what, '/'))
		return explain_box(ex, what, path, out, err);
	id = id_in_path(what, &below);
	if (!id || path)
		return err_set(err, -EINVAL, "'%.200s' is neither a digest nor a sandbox", what);
	return explain_box(ex, id, *below ? below : NULL, out, err);
}
