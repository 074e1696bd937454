/* fs/trace/trace.c - the recorder of one sandbox */

/*
 * A hash table of paths, each with bits that are only ever added. What a path costs is
 * counted; beyond the budget nothing new is taken, which a remark tells: a set that is
 * silently cut would be worse than none.
 */
#include "fs/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>
#include <utlist.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "fs/trace/trace_i.h"

#define BUDGET	   ((size_t)64 << 20)
#define FILE_MAX   (256 << 20)
#define FILE_MAGIC "casbox-trace 1"
#define CUT_REMARK "more names than are kept: this is not all"

struct remark {
	struct remark *next;
	char text[];
};

/* A node that the kernel knows, and what it is called. */
struct known {
	UT_hash_handle hh;
	uint64_t id;
	struct fs_trace_path *path;
};

/* A process that looked for names in the sandbox. */
struct visitor {
	UT_hash_handle hh;
	pid_t pid;
};

struct fs_trace {
	_Atomic enum fs_trace_kind kind;
	_Atomic unsigned nr_refs;
	struct lock lock; /* rank LEAF */
	struct fs_trace_path *paths GUARDED_BY(lock);
	struct known *known GUARDED_BY(lock);
	struct visitor *visitors GUARDED_BY(lock);
	struct remark *remarks GUARDED_BY(lock);
	size_t used GUARDED_BY(lock);
	bool lossy GUARDED_BY(lock);
};

static const char *const kind_names[] = {
	[FS_TRACE_OFF] = "off",
	[FS_TRACE_NAMES] = "names",
	[FS_TRACE_READS] = "reads",
	[FS_TRACE_EXACT] = "exact",
};

const char *fs_trace_kind_name(enum fs_trace_kind kind)
{
	return kind_names[kind];
}

int fs_trace_kind_parse(const char *word, enum fs_trace_kind *out)
{
	for (size_t i = 0; i < sizeof(kind_names) / sizeof(kind_names[0]); i++) {
		if (strcmp(kind_names[i], word) == 0) {
			*out = (enum fs_trace_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

int fs_trace_new(enum fs_trace_kind kind, struct fs_trace **out)
{
	struct fs_trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return -ENOMEM;
	trace->kind = kind;
	atomic_store(&trace->nr_refs, 1);
	lock_init(&trace->lock, LOCK_RANK_LEAF, "trace of a sandbox");
	*out = trace;
	return 0;
}

struct fs_trace *fs_trace_ref(struct fs_trace *trace)
{
	if (trace)
		(void)atomic_fetch_add(&trace->nr_refs, 1);
	return trace;
}

static NO_LOCK_CHECK void free_trace(struct fs_trace *trace)
{
	struct fs_trace_path *path, *next_path;
	struct known *known, *next_known;
	struct visitor *visitor, *next_visitor;
	struct remark *remark, *next_remark;

	HASH_ITER (hh, trace->known, known, next_known) {
		HASH_DEL(trace->known, known);
		free(known);
	}
	HASH_ITER (hh, trace->visitors, visitor, next_visitor) {
		HASH_DEL(trace->visitors, visitor);
		free(visitor);
	}
	HASH_ITER (hh, trace->paths, path, next_path) {
		HASH_DEL(trace->paths, path);
		free(path);
	}
	LL_FOREACH_SAFE(trace->remarks, remark, next_remark)
	free(remark);
	lock_fini(&trace->lock);
	free(trace);
}

void fs_trace_unref(struct fs_trace *trace)
{
	if (trace && atomic_fetch_sub(&trace->nr_refs, 1) == 1)
		free_trace(trace);
}

enum fs_trace_kind fs_trace_kind_of(const struct fs_trace *trace)
{
	return trace ? trace->kind : FS_TRACE_OFF;
}

void fs_trace_lower(struct fs_trace *trace)
{
	atomic_store(&trace->kind, FS_TRACE_NAMES);
	fs_trace_remark(trace, "reads was asked for, but we are not told of opens here");
}

static void remark_locked(struct fs_trace *trace, const char *text) REQUIRES(trace->lock)
{
	struct remark *r;

	LL_FOREACH (trace->remarks, r) {
		if (strcmp(r->text, text) == 0)
			return;
	}
	r = malloc(sizeof(*r) + strlen(text) + 1);
	if (!r)
		return;
	r->next = NULL;
	(void)strcpy(r->text, text);
	LL_APPEND(trace->remarks, r);
}

void fs_trace_remark(struct fs_trace *trace, const char *text)
{
	lock_take(&trace->lock);
	remark_locked(trace, text);
	lock_drop(&trace->lock);
}

static void lose_locked(struct fs_trace *trace, const char *text) REQUIRES(trace->lock)
{
	remark_locked(trace, text);
	trace->lossy = true;
}

void fs_trace_lose(struct fs_trace *trace, const char *text)
{
	lock_take(&trace->lock);
	lose_locked(trace, text);
	lock_drop(&trace->lock);
}

bool fs_trace_is_lossy(struct fs_trace *trace)
{
	bool lossy;

	lock_take(&trace->lock);
	lossy = trace->lossy;
	lock_drop(&trace->lock);
	return lossy;
}

/* Room for @sz bytes more? */
static bool afford_locked(struct fs_trace *trace, size_t sz) REQUIRES(trace->lock)
{
	if (trace->used + sz <= BUDGET) {
		trace->used += sz;
		return true;
	}
	lose_locked(trace, CUT_REMARK);
	return false;
}

/* NULL: no room, or no memory. */
static struct fs_trace_path *add_locked(struct fs_trace *trace, const char *path, size_t len)
	REQUIRES(trace->lock)
{
	struct fs_trace_path *p;

	HASH_FIND(hh, trace->paths, path, len, p);
	if (p)
		return p;
	if (!afford_locked(trace, sizeof(*p) + len + 1))
		return NULL;
	p = calloc(1, sizeof(*p) + len + 1);
	if (p) {
		memcpy(p->text, path, len);
		HASH_ADD_KEYPTR(hh, trace->paths, p->text, len, p);
		if (p->hh.tbl)
			return p;
		free(p);
	}
	lose_locked(trace, CUT_REMARK);
	return NULL;
}

static struct fs_trace_path *note_locked(struct fs_trace *trace, unsigned what, const char *dir,
					 const char *name) REQUIRES(trace->lock)
{
	char space[512];
	size_t dir_len = strlen(dir);
	size_t name_len = strlen(name);
	size_t len = dir_len + (dir_len > 0 && name_len > 0) + name_len;
	auto_free char *heap = len < sizeof(space) ? NULL : malloc(len + 1);
	char *path = len < sizeof(space) ? space : heap;
	struct fs_trace_path *p;

	if (!path) {
		lose_locked(trace, CUT_REMARK);
		return NULL;
	}
	memcpy(path, dir, dir_len);
	if (dir_len > 0 && name_len > 0)
		path[dir_len++] = '/';
	memcpy(path + dir_len, name, name_len);
	p = add_locked(trace, path, len);
	if (p)
		p->bits |= what;
	return p;
}

void fs_trace_note(struct fs_trace *trace, unsigned what, const char *dir, const char *name)
{
	lock_take(&trace->lock);
	(void)note_locked(trace, what, dir, name);
	lock_drop(&trace->lock);
}

static void visit_locked(struct fs_trace *trace, pid_t pid) REQUIRES(trace->lock)
{
	struct visitor *v;

	HASH_FIND(hh, trace->visitors, &pid, sizeof(pid), v);
	if (v || !afford_locked(trace, sizeof(*v)))
		return;
	v = calloc(1, sizeof(*v));
	if (!v)
		return;
	v->pid = pid;
	HASH_ADD(hh, trace->visitors, pid, sizeof(v->pid), v);
	if (!v->hh.tbl)
		free(v);
}

static void know_locked(struct fs_trace *trace, uint64_t id, struct fs_trace_path *path)
	REQUIRES(trace->lock)
{
	struct known *k;

	HASH_FIND(hh, trace->known, &id, sizeof(id), k);
	if (k || !afford_locked(trace, sizeof(*k)))
		return;
	k = calloc(1, sizeof(*k));
	if (k) {
		k->id = id;
		k->path = path;
		HASH_ADD(hh, trace->known, id, sizeof(k->id), k);
		if (k->hh.tbl)
			return;
		free(k);
	}
	lose_locked(trace, CUT_REMARK);
}

void fs_trace_looked(struct fs_trace *trace, const char *dir, const char *name, uint64_t node,
		     bool leaf, pid_t pid)
{
	struct fs_trace_path *path;

	lock_take(&trace->lock);
	path = note_locked(trace, node ? FS_TRACE_LOOKED : FS_TRACE_MISSED, dir, name);
	if (path && node && leaf)
		know_locked(trace, node, path);
	if (trace->kind != FS_TRACE_EXACT)
		visit_locked(trace, pid);
	lock_drop(&trace->lock);
}

void fs_trace_read(struct fs_trace *trace, uint64_t node, pid_t pid)
{
	struct known *k;
	struct visitor *v = NULL;

	lock_take(&trace->lock);
	HASH_FIND(hh, trace->known, &node, sizeof(node), k);
	if (k && trace->kind != FS_TRACE_EXACT)
		HASH_FIND(hh, trace->visitors, &pid, sizeof(pid), v);
	/* Other sandboxes may show the same node, and somebody reads it there. */
	if (k && (v || trace->kind == FS_TRACE_EXACT))
		k->path->bits |= FS_TRACE_READ;
	lock_drop(&trace->lock);
}

/* --- what was recorded --- */

static int compare(const void *a, const void *b)
{
	const struct fs_trace_path *x = *(struct fs_trace_path *const *)a;
	const struct fs_trace_path *y = *(struct fs_trace_path *const *)b;

	return strcmp(x->text, y->text);
}

/* Paths stay where they are as long as there is a trace. */
static struct fs_trace_path **sorted(struct fs_trace *trace, unsigned what, size_t *nr)
{
	struct fs_trace_path **list;
	struct fs_trace_path *p;

	*nr = 0;
	lock_take(&trace->lock);
	list = calloc(HASH_COUNT(trace->paths) + 1, sizeof(struct fs_trace_path *));
	for (p = trace->paths; list && p; p = p->hh.next) {
		if (p->bits & what)
			list[(*nr)++] = p;
	}
	lock_drop(&trace->lock);
	if (list)
		qsort(list, *nr, sizeof(struct fs_trace_path *), compare);
	return list;
}

int fs_trace_each(struct fs_trace *trace, unsigned what,
		  int (*each)(void *ctx, const char *path, unsigned bits), void *ctx)
{
	size_t nr;
	auto_free struct fs_trace_path **list = sorted(trace, what, &nr);
	int ret = list ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = each(ctx, list[i]->text, list[i]->bits);
	return ret < 0 ? ret : 0;
}

int fs_trace_each_remark(struct fs_trace *trace, int (*each)(void *ctx, const char *text),
			 void *ctx)
{
	struct remark *r;
	int ret = 0;

	lock_take(&trace->lock);
	r = trace->remarks;
	lock_drop(&trace->lock);
	/* They only ever grow at the end. */
	while (r && ret == 0) {
		ret = each(ctx, r->text);
		lock_take(&trace->lock);
		r = r->next;
		lock_drop(&trace->lock);
	}
	return ret < 0 ? ret : 0;
}

unsigned fs_trace_bits(struct fs_trace *trace, const char *path)
{
	struct fs_trace_path *p;
	unsigned bits;

	lock_take(&trace->lock);
	HASH_FIND_STR(trace->paths, path, p);
	bits = p ? p->bits : 0;
	lock_drop(&trace->lock);
	return bits;
}

size_t fs_trace_count(struct fs_trace *trace, unsigned what)
{
	struct fs_trace_path *p;
	size_t nr = 0;

	lock_take(&trace->lock);
	for (p = trace->paths; p; p = p->hh.next)
		nr += (p->bits & what) != 0;
	lock_drop(&trace->lock);
	return nr;
}

/*
 * --- its file: the magic, the kind, remarks (#TEXT), LOSSY, paths (BITS PATH), each with a NUL ---
 */

#define LOSSY "!"

static int put_item(struct buf *out, const char *text)
{
	return buf_append(out, text, strlen(text) + 1);
}

static int put_remark(void *ctx, const char *text)
{
	int ret = buf_append_char(ctx, '#');

	return ret < 0 ? ret : put_item(ctx, text);
}

static int put_path(void *ctx, const char *path, unsigned bits)
{
	int ret = buf_printf(ctx, "%u ", bits);

	return ret < 0 ? ret : put_item(ctx, path);
}

int fs_trace_save(struct fs_trace *trace, int dir_fd, struct err *err)
{
	auto_buf struct buf text = {0};
	int ret = put_item(&text, FILE_MAGIC);

	if (ret == 0)
		ret = put_item(&text, kind_names[trace->kind]);
	if (ret == 0)
		ret = fs_trace_each_remark(trace, put_remark, &text);
	if (ret == 0 && fs_trace_is_lossy(trace))
		ret = put_item(&text, LOSSY);
	if (ret == 0)
		ret = fs_trace_each(trace, ~0u, put_path, &text);
	if (ret == 0)
		ret = io_overwrite_file(dir_fd, FS_TRACE_NAME, text.data, text.len, 0600, false);
	return ret < 0 ? err_set(err, ret, "cannot keep the trace of a sandbox: %s",
				 strerrordesc_np(-ret))
		       : 0;
}

static int load_item(struct fs_trace *trace, char *item)
{
	char *end;
	unsigned long bits;

	if (*item == '#') {
		fs_trace_remark(trace, item + 1);
		return 0;
	}
	if (strcmp(item, LOSSY) == 0) {
		lock_take(&trace->lock);
		trace->lossy = true;
		lock_drop(&trace->lock);
		return 0;
	}
	bits = strtoul(item, &end, 10);
	if (end == item || *end != ' ' || bits > 255)
		return -EUCLEAN;
	fs_trace_note(trace, (unsigned)bits, "", end + 1);
	return 0;
}

static int load_text(struct buf *text, struct fs_trace **out)
{
	size_t at = sizeof(FILE_MAGIC);
	struct fs_trace *trace = NULL;
	enum fs_trace_kind kind;
	int ret;

	if (text->len <= at || text->data[text->len - 1] != '\0' ||
	    strcmp(text->data, FILE_MAGIC) != 0 || fs_trace_kind_parse(text->data + at, &kind) < 0)
		return -EUCLEAN;
	ret = fs_trace_new(kind, &trace);
	for (at += strlen(text->data + at) + 1; ret == 0 && at < text->len;
	     at += strlen(text->data + at) + 1)
		ret = load_item(trace, text->data + at);
	if (ret < 0)
		fs_trace_unref(trace);
	else
		*out = trace;
	return ret;
}

int fs_trace_load(int dir_fd, struct fs_trace **out, struct err *err)
{
	auto_buf struct buf text = {0};
	int ret = io_read_file(dir_fd, FS_TRACE_NAME, FILE_MAX, &text);

	if (ret == 0)
		ret = load_text(&text, out);
	return ret < 0 ? err_set(err, ret, "cannot read the trace of a sandbox: %s",
				 ret == -EUCLEAN ? "it is damaged" : strerrordesc_np(-ret))
		       : 0;
}
