/* fs/message/outcome.c - an ActionResult as a tree of what the action made */
/*
 * The outputs are sorted by path, component by component, so that a parent comes before what
 * is below it, and what has the same parents comes together: one pass with the nodes of the
 * path at hand makes the tree.
 */
#include "fs/message/outcome.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/directory.h"
#include "fs/sandbox/outputs.h"

/* One output on its way into the tree. */
struct output {
	char *path; /* normalised, in the message's own memory */
	size_t at;  /* among all of its kind: the first of two equal paths wins */
	struct fs_outcome_node node;
};

struct maker {
	struct fs_outcome *o;
	struct output *outputs;
	size_t nr;
	size_t cap_nodes;
	struct err *err;
};

static int to_digest(const Reapi__Digest *from, struct cas_digest *out, struct err *err)
{
	if (from == NULL || from->size_bytes < 0 ||
	    cas_hash_parse(from->hash, strlen(from->hash), out->hash) < 0)
		return err_set(err, -EUCLEAN, "an ActionResult with a digest that is none");
	out->size = (uint64_t)from->size_bytes;
	return 0;
}

/* In place: without "" and "."; false: it is absolute, leads out, or has no good name. */
static bool normalise(char *path)
{
	char *to = path;

	if (path[0] == '/')
		return false;
	for (char *p = path; *p != '\0';) {
		size_t len = strcspn(p, "/");
		size_t step = len + (p[len] == '/');

		if (len > 0 && !(len == 1 && p[0] == '.')) {
			if (cas_name_check(p, len) < 0)
				return false;
			if (to != path)
				*to++ = '/';
			memmove(to, p, len);
			to += len;
		}
		p += step;
	}
	*to = '\0';
	return true;
}

static void take_props(const Reapi__NodeProperties *props, struct fs_outcome_node *out)
{
	if (props == NULL)
		return;
	if (props->mtime && props->mtime->nanos >= 0 && props->mtime->nanos < 1000000000) {
		out->has_mtime = true;
		out->mtime_sec = props->mtime->seconds;
		out->mtime_nsec = props->mtime->nanos;
	}
	if (props->unix_mode) {
		out->has_mode = true;
		out->mode = props->unix_mode->value & 0777;
	}
}

/* An empty path may be protobuf-c's own, which is not to be written to. */
static void add(struct maker *m, char *path, const struct fs_outcome_node *node)
{
	if (path[0] != '\0' && !normalise(path)) {
		m->o->nr_hidden++;
		return;
	}
	m->outputs[m->nr] = (struct output){path, m->nr, *node};
	m->nr++;
}

static int add_files(struct maker *m, const Reapi__ActionResult *r)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < r->n_output_files; i++) {
		const Reapi__OutputFile *f = r->output_files[i];
		struct fs_outcome_node node = {.kind = FS_OUTCOME_FILE,
					       .executable = f->is_executable,
					       .contents = f->contents.data,
					       .contents_len = f->contents.len};

		take_props(f->node_properties, &node);
		ret = to_digest(f->digest, &node.digest, m->err);
		if (ret == 0)
			add(m, f->path, &node);
	}
	return ret;
}

static int add_dirs(struct maker *m, const Reapi__ActionResult *r)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < r->n_output_directories; i++) {
		const Reapi__OutputDirectory *d = r->output_directories[i];
		struct fs_outcome_node node = {.kind = d->tree_digest ? FS_OUTCOME_TREE
								      : FS_OUTCOME_ROOT};

		ret = to_digest(d->tree_digest ? d->tree_digest : d->root_directory_digest,
				&node.digest, m->err);
		if (ret == 0)
			add(m, d->path, &node);
	}
	return ret;
}

static void add_links(struct maker *m, Reapi__OutputSymlink *const *links, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct fs_outcome_node node = {.kind = FS_OUTCOME_SYMLINK,
					       .target = links[i]->target};

		take_props(links[i]->node_properties, &node);
		/* Where no filesystem has one. */
		if (links[i]->target[0] == '\0' || strlen(links[i]->target) > CAS_TARGET_MAX)
			m->o->nr_hidden++;
		else
			add(m, links[i]->path, &node);
	}
}

static int collect(struct maker *m, const Reapi__ActionResult *r)
{
	size_t nr = r->n_output_files + r->n_output_directories + r->n_output_symlinks +
		    r->n_output_file_symlinks + r->n_output_directory_symlinks;
	int ret;

	m->outputs = calloc(nr + 1, sizeof(*m->outputs));
	if (m->outputs == NULL)
		return -ENOMEM;
	ret = add_files(m, r);
	if (ret == 0)
		ret = add_dirs(m, r);
	if (ret < 0)
		return ret;
	add_links(m, r->output_symlinks, r->n_output_symlinks);
	add_links(m, r->output_file_symlinks, r->n_output_file_symlinks);
	add_links(m, r->output_directory_symlinks, r->n_output_directory_symlinks);
	return 0;
}

static int compare_outputs(const void *a, const void *b)
{
	const struct output *x = a;
	const struct output *y = b;
	int order = fs_path_compare(x->path, y->path);

	return order ? order : x->at < y->at ? -1 : 1;
}

static int add_node(struct maker *m, uint32_t parent, const char *name,
		    const struct fs_outcome_node *node)
{
	struct fs_outcome *o = m->o;

	if (o->nr_nodes == m->cap_nodes) {
		size_t cap = m->cap_nodes ? 2 * m->cap_nodes : 16;
		void *grown = cap < UINT32_MAX ? realloc(o->nodes, cap * sizeof(*o->nodes)) : NULL;

		if (grown == NULL)
			return -ENOMEM;
		o->nodes = grown;
		m->cap_nodes = cap;
	}
	o->nodes[o->nr_nodes] = *node;
	o->nodes[o->nr_nodes].name = name;
	o->nodes[o->nr_nodes].parent = parent;
	if (o->nr_nodes++ != 0)
		o->nodes[parent].nr_children++;
	return 0;
}

/* The latest node of @dir's, when it has this name: in sorted order no other may. */
static uint32_t last_child(const struct fs_outcome *o, uint32_t dir, const char *name)
{
	uint32_t i = (uint32_t)o->nr_nodes - 1;

	while (i != dir && o->nodes[i].parent != dir)
		i = o->nodes[i].parent;
	return i != dir && strcmp(o->nodes[i].name, name) == 0 ? i : 0;
}

static int insert(struct maker *m, struct output *output)
{
	const struct fs_outcome_node dir = {.kind = FS_OUTCOME_DIR};
	char *name = output->path;
	uint32_t at = 0;
	int ret = 0;

	for (;;) {
		char *slash = strchr(name, '/');
		uint32_t child;

		if (slash)
			*slash = '\0';
		child = last_child(m->o, at, name);
		if (child != 0 && (!slash || m->o->nodes[child].kind != FS_OUTCOME_DIR)) {
			m->o->nr_hidden++;
			return 0;
		}
		if (child == 0) {
			child = (uint32_t)m->o->nr_nodes;
			ret = add_node(m, at, name, slash ? &dir : &output->node);
		}
		if (ret < 0 || !slash)
			return ret;
		at = child;
		name = slash + 1;
	}
}

/* Where the children of each node are: nodes come in order of name below each parent. */
static int sort_children(struct fs_outcome *o)
{
	uint32_t next = 0;

	o->order = malloc((o->nr_nodes + 1) * sizeof(*o->order));
	if (o->order == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < o->nr_nodes; i++) {
		o->nodes[i].first_child = next;
		next += o->nodes[i].nr_children;
		o->nodes[i].nr_children = 0;
	}
	for (size_t i = 1; i < o->nr_nodes; i++) {
		struct fs_outcome_node *parent = &o->nodes[o->nodes[i].parent];

		o->order[parent->first_child + parent->nr_children++] = (uint32_t)i;
	}
	return 0;
}

static int make_tree(struct maker *m)
{
	struct fs_outcome_node top = {.kind = FS_OUTCOME_DIR};
	int ret;

	if (m->nr > 1)
		qsort(m->outputs, m->nr, sizeof(*m->outputs), compare_outputs);
	/* The empty path comes first of all, and everything else is in it. */
	if (m->nr > 0 && m->outputs[0].path[0] == '\0' &&
	    (m->outputs[0].node.kind == FS_OUTCOME_TREE ||
	     m->outputs[0].node.kind == FS_OUTCOME_ROOT))
		top = m->outputs[0].node;
	ret = add_node(m, 0, "", &top);
	for (size_t i = 0; ret == 0 && i < m->nr; i++) {
		if (top.kind != FS_OUTCOME_DIR || m->outputs[i].path[0] == '\0')
			m->o->nr_hidden += i > 0 || top.kind == FS_OUTCOME_DIR;
		else
			ret = insert(m, &m->outputs[i]);
	}
	return ret < 0 ? ret : sort_children(m->o);
}

static int take_stream(const Reapi__Digest *digest, const ProtobufCBinaryData *raw,
		       struct fs_outcome_stream *out, struct err *err)
{
	out->digest = cas_digest_empty;
	out->has_digest = digest != NULL;
	out->raw = raw->data;
	out->raw_len = raw->len;
	return digest ? to_digest(digest, &out->digest, err) : 0;
}

static void outcome_free(struct fs_outcome *o)
{
	if (o->message)
		reapi__action_result__free_unpacked(o->message, NULL);
	free(o->nodes);
	free(o->order);
	free(o->data);
	free(o);
}

static int fill(struct maker *m, const void *data, size_t len)
{
	struct fs_outcome *o = m->o;
	Reapi__ActionResult *r;
	int ret;

	o->data = malloc(len + 1);
	if (o->data == NULL)
		return -ENOMEM;
	memcpy(o->data, data, len);
	o->data_len = len;
	r = reapi__action_result__unpack(NULL, len, data);
	if (r == NULL)
		return err_set(m->err, -EUCLEAN, "not an ActionResult");
	o->message = r;
	o->exit_code = r->exit_code;
	ret = take_stream(r->stdout_digest, &r->stdout_raw, &o->out, m->err);
	if (ret == 0)
		ret = take_stream(r->stderr_digest, &r->stderr_raw, &o->error, m->err);
	if (ret == 0)
		ret = collect(m, r);
	return ret < 0 ? ret : make_tree(m);
}

int fs_outcome_new(const void *data, size_t len, struct fs_outcome **out, struct err *err)
{
	struct maker m = {.o = calloc(1, sizeof(*m.o)), .err = err};
	int ret;

	if (m.o == NULL)
		return err_set(err, -ENOMEM, "no memory for a result");
	atomic_init(&m.o->refs, 1);
	ret = fill(&m, data, len);
	free(m.outputs);
	if (ret < 0) {
		outcome_free(m.o);
		return ret == -EUCLEAN ? ret : err_set(err, ret, "no memory for a result");
	}
	*out = m.o;
	return 0;
}

struct fs_outcome *fs_outcome_ref(struct fs_outcome *outcome)
{
	atomic_fetch_add_explicit(&outcome->refs, 1, memory_order_relaxed);
	return outcome;
}

void fs_outcome_unref(struct fs_outcome *outcome)
{
	/* Partner: the same decrement of the other holders. */
	if (outcome && atomic_fetch_sub_explicit(&outcome->refs, 1, memory_order_acq_rel) == 1)
		outcome_free(outcome);
}

const struct fs_outcome_node *fs_outcome_child(const struct fs_outcome *outcome, uint32_t dir,
					       uint64_t index)
{
	const struct fs_outcome_node *d;

	if (dir >= outcome->nr_nodes)
		return NULL;
	d = &outcome->nodes[dir];
	return index < d->nr_children ? &outcome->nodes[outcome->order[d->first_child + index]]
				      : NULL;
}

const struct fs_outcome_node *fs_outcome_find(const struct fs_outcome *outcome, uint32_t dir,
					      const char *name)
{
	size_t low = 0;
	size_t high = dir < outcome->nr_nodes ? outcome->nodes[dir].nr_children : 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct fs_outcome_node *node = fs_outcome_child(outcome, dir, mid);
		int order = strcmp(node->name, name);

		if (order == 0)
			return node;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}
