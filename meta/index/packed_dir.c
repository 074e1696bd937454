/* meta/index/packed_dir.c - a directory as bytes that are searched in place */
/*
 * Layout, all little-endian, at any alignment:
 *
 *   head                      40 bytes, checked
 *   nr_entries entries        56 bytes each, in order of name, checked one by one
 *   nr_entries props          16 bytes each, only when some entry has any
 *   strings                   per entry the name, then the link's target; no NUL
 *
 * A name is found by binary search over the entries. Each entry carries a checksum of
 * itself, its properties and its strings, seeded with the directory's digest: the index
 * has no checksums of its own, and a flipped bit must become "load it again", not
 * another file. Checking only what a search touches keeps it O(log n).
 *
 * The total length is implied by the head, so a cut value is noticed before anything
 * else is looked at. Strings are limited to 4 GiB by their offsets; an encoded Directory
 * may have at most CAS_DIRECTORY_MAX, far less.
 */
#include "meta/index/packed_dir.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PACKED_MAGIC   0x64706263U /* "cbpd" */
#define PACKED_VERSION 1

#define HEAD_HAS_MTIME	 0x01
#define HEAD_HAS_MODE	 0x02
#define HEAD_ENTRY_PROPS 0x04
#define HEAD_FLAGS	 0x07

struct packed_head {
	uint32_t magic;
	uint8_t version;
	uint8_t flags;
	uint8_t file_bits; /* as meta_dirinfo; 0 in rows of before there was such a thing */
	uint8_t zero;
	uint32_t nr_entries;
	uint32_t nr_subdirs;
	uint32_t strings_len;
	uint32_t mode;
	int64_t mtime_sec;
	int32_t mtime_nsec;
	uint32_t check;
} __attribute__((packed));
static_assert(sizeof(struct packed_head) == 40, "on-disk format");

#define ENTRY_KIND	 0x03
#define ENTRY_EXECUTABLE 0x04
#define ENTRY_HAS_MTIME	 0x08
#define ENTRY_HAS_MODE	 0x10
#define ENTRY_FLAGS	 0x1f

struct packed_entry {
	uint8_t hash[CAS_HASH_SZ];
	uint64_t size;
	uint32_t name_off;
	uint16_t target_len;
	uint8_t name_len;
	uint8_t flags;
	uint32_t zero;
	uint32_t check;
} __attribute__((packed));
static_assert(sizeof(struct packed_entry) == 56, "on-disk format");

struct packed_props {
	int64_t mtime_sec;
	int32_t mtime_nsec;
	uint32_t mode;
} __attribute__((packed));
static_assert(sizeof(struct packed_props) == 16, "on-disk format");

static uint64_t mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

static uint64_t mix_bytes(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t word;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&word, p, 8);
		h = mix(h, le64toh(word));
	}
	word = 0;
	memcpy(&word, p, len);
	return mix(h, le64toh(word) ^ ((uint64_t)len << 56));
}

static uint64_t digest_seed(const struct cas_digest *digest)
{
	return mix_bytes(mix(PACKED_VERSION, digest->size), digest->hash, CAS_HASH_SZ);
}

static uint32_t head_check(uint64_t seed, const struct packed_head *head)
{
	return (uint32_t)(mix_bytes(seed, head, offsetof(struct packed_head, check)) >> 32);
}

static uint32_t entry_check(uint64_t seed, const struct packed_entry *entry, const uint8_t *props,
			    const uint8_t *strings, size_t strings_len)
{
	uint64_t h = mix_bytes(seed, entry, offsetof(struct packed_entry, check));

	if (props)
		h = mix_bytes(h, props, sizeof(struct packed_props));
	return (uint32_t)(mix_bytes(h, strings, strings_len) >> 32);
}

static bool has_props(const struct cas_properties *props)
{
	return props->has_mtime || props->has_mode;
}

/* What a directory needs, before memory is taken. */
struct packed_size {
	uint64_t strings;
	uint64_t all_sizes; /* the sizes of its files, bit by bit */
	uint32_t nr_subdirs;
	bool entry_props;
};

/* One more than @v has binary digits. */
static uint8_t bits_above(uint64_t v)
{
	return v ? (uint8_t)(65 - __builtin_clzll(v)) : 1;
}

static int measure(const struct cas_directory *dir, struct packed_size *out)
{
	*out = (struct packed_size){0};
	for (size_t i = 0; i < dir->nr_nodes; i++) {
		const struct cas_node *node = &dir->nodes[i];

		out->strings += strlen(node->name);
		if (node->kind == CAS_NODE_SYMLINK)
			out->strings += strlen(node->target);
		if (node->kind == CAS_NODE_FILE)
			out->all_sizes |= node->digest.size;
		out->nr_subdirs += node->kind == CAS_NODE_DIRECTORY;
		out->entry_props |= node->kind != CAS_NODE_DIRECTORY && has_props(&node->props);
	}
	return dir->nr_nodes > UINT32_MAX / 2 || out->strings > UINT32_MAX ? -EFBIG : 0;
}

static void fill_head(struct packed_head *head, const struct cas_directory *dir,
		      const struct packed_size *size, uint64_t seed)
{
	const struct cas_properties *props = &dir->props;

	*head = (struct packed_head){
		.magic = htole32(PACKED_MAGIC),
		.version = PACKED_VERSION,
		.file_bits = bits_above(size->all_sizes),
		.nr_entries = htole32((uint32_t)dir->nr_nodes),
		.nr_subdirs = htole32(size->nr_subdirs),
		.strings_len = htole32((uint32_t)size->strings),
	};
	if (size->entry_props)
		head->flags |= HEAD_ENTRY_PROPS;
	if (props->has_mtime) {
		head->flags |= HEAD_HAS_MTIME;
		head->mtime_sec = (int64_t)htole64((uint64_t)props->mtime_sec);
		head->mtime_nsec = (int32_t)htole32((uint32_t)props->mtime_nsec);
	}
	if (props->has_mode) {
		head->flags |= HEAD_HAS_MODE;
		head->mode = htole32(props->mode);
	}
	head->check = htole32(head_check(seed, head));
}

static void fill_props(struct packed_props *out, struct packed_entry *entry,
		       const struct cas_properties *props)
{
	*out = (struct packed_props){0};
	if (props->has_mtime) {
		entry->flags |= ENTRY_HAS_MTIME;
		out->mtime_sec = (int64_t)htole64((uint64_t)props->mtime_sec);
		out->mtime_nsec = (int32_t)htole32((uint32_t)props->mtime_nsec);
	}
	if (props->has_mode) {
		entry->flags |= ENTRY_HAS_MODE;
		out->mode = htole32(props->mode);
	}
}

/* Returns the bytes of strings used. */
static size_t fill_entry(struct packed_entry *entry, uint8_t *props, uint8_t *strings, size_t off,
			 const struct cas_node *node, uint64_t seed)
{
	bool link = node->kind == CAS_NODE_SYMLINK;
	size_t name_len = strlen(node->name);
	size_t target_len = link ? strlen(node->target) : 0;

	*entry = (struct packed_entry){
		.name_off = htole32((uint32_t)off),
		.target_len = htole16((uint16_t)target_len),
		.name_len = (uint8_t)name_len,
		.flags = (uint8_t)node->kind,
	};
	if (!link) {
		memcpy(entry->hash, node->digest.hash, CAS_HASH_SZ);
		entry->size = htole64(node->digest.size);
	}
	if (node->kind == CAS_NODE_FILE && node->executable)
		entry->flags |= ENTRY_EXECUTABLE;
	if (props) {
		static const struct cas_properties none;
		bool dir = node->kind == CAS_NODE_DIRECTORY;
		struct packed_props packed;

		fill_props(&packed, entry, dir ? &none : &node->props);
		memcpy(props, &packed, sizeof(packed));
	}
	memcpy(strings + off, node->name, name_len);
	if (link)
		memcpy(strings + off + name_len, node->target, target_len);
	entry->check =
		htole32(entry_check(seed, entry, props, strings + off, name_len + target_len));
	return name_len + target_len;
}

int meta_packed_new(const struct cas_directory *dir, const struct cas_digest *digest,
		    struct meta_packed **out)
{
	uint64_t seed = digest_seed(digest);
	struct packed_size size;
	struct meta_packed *packed;
	uint8_t *entries, *props, *strings;
	size_t per, len, off = 0;
	int ret = measure(dir, &size);

	if (ret < 0)
		return ret;
	per = sizeof(struct packed_entry) + (size.entry_props ? sizeof(struct packed_props) : 0);
	len = sizeof(struct packed_head) + dir->nr_nodes * per + size.strings;
	packed = malloc(sizeof(*packed) + len);
	if (!packed)
		return -ENOMEM;
	atomic_init(&packed->refs, 1);
	packed->len = len;
	fill_head((struct packed_head *)packed->data, dir, &size, seed);
	entries = packed->data + sizeof(struct packed_head);
	props = entries + dir->nr_nodes * sizeof(struct packed_entry);
	strings = packed->data + len - size.strings;
	for (size_t i = 0; i < dir->nr_nodes; i++)
		off += fill_entry((struct packed_entry *)entries + i,
				  size.entry_props ? props + i * sizeof(struct packed_props) : NULL,
				  strings, off, &dir->nodes[i], seed);
	*out = packed;
	return 0;
}

struct meta_packed *meta_packed_ref(struct meta_packed *packed)
{
	atomic_fetch_add_explicit(&packed->refs, 1, memory_order_relaxed);
	return packed;
}

void meta_packed_unref(struct meta_packed *packed)
{
	/* Partner: the same decrement of the other holders. */
	if (packed && atomic_fetch_sub_explicit(&packed->refs, 1, memory_order_acq_rel) == 1)
		free(packed);
}

static void view_info(struct meta_packed_view *view, const struct packed_head *head)
{
	view->info = (struct meta_dirinfo){
		.nr_entries = view->nr_entries,
		.nr_subdirs = le32toh(head->nr_subdirs),
		.file_bits = head->file_bits,
		.props =
			{
				.has_mtime = (head->flags & HEAD_HAS_MTIME) != 0,
				.has_mode = (head->flags & HEAD_HAS_MODE) != 0,
				.mtime_sec = (int64_t)le64toh((uint64_t)head->mtime_sec),
				.mtime_nsec = (int32_t)le32toh((uint32_t)head->mtime_nsec),
				.mode = le32toh(head->mode),
			},
	};
}

int meta_packed_view_init(struct meta_packed_view *view, const struct cas_digest *digest,
			  const void *data, size_t len)
{
	const uint8_t *bytes = data;
	struct packed_head head;
	uint64_t seed = digest_seed(digest), want;
	size_t entries_sz, props_sz;

	if (len < sizeof(head))
		return -EUCLEAN;
	memcpy(&head, bytes, sizeof(head));
	if (le32toh(head.magic) != PACKED_MAGIC || head.version != PACKED_VERSION ||
	    (head.flags & ~HEAD_FLAGS) != 0 || le32toh(head.check) != head_check(seed, &head))
		return -EUCLEAN;
	entries_sz = (size_t)le32toh(head.nr_entries) * sizeof(struct packed_entry);
	props_sz = (head.flags & HEAD_ENTRY_PROPS) == 0
			   ? 0
			   : (size_t)le32toh(head.nr_entries) * sizeof(struct packed_props);
	want = (uint64_t)sizeof(head) + entries_sz + props_sz + le32toh(head.strings_len);
	if (want != len)
		return -EUCLEAN;
	*view = (struct meta_packed_view){
		.entries = bytes + sizeof(head),
		.props = props_sz ? bytes + sizeof(head) + entries_sz : NULL,
		.strings = bytes + sizeof(head) + entries_sz + props_sz,
		.strings_len = le32toh(head.strings_len),
		.seed = seed,
		.nr_entries = le32toh(head.nr_entries),
	};
	view_info(view, &head);
	return 0;
}

/* One entry, checked; its strings start at *strings: name, then target. */
static int view_entry(const struct meta_packed_view *view, uint32_t index, struct packed_entry *out,
		      const uint8_t **strings)
{
	const uint8_t *props =
		view->props ? view->props + (size_t)index * sizeof(struct packed_props) : NULL;
	size_t off, len;

	memcpy(out, view->entries + (size_t)index * sizeof(*out), sizeof(*out));
	off = le32toh(out->name_off);
	len = (size_t)out->name_len + le16toh(out->target_len);
	if (off > view->strings_len || len > view->strings_len - off || out->name_len == 0 ||
	    (out->flags & ~ENTRY_FLAGS) != 0 || (out->flags & ENTRY_KIND) > CAS_NODE_SYMLINK)
		return -EUCLEAN;
	if (le32toh(out->check) != entry_check(view->seed, out, props, view->strings + off, len))
		return -EUCLEAN;
	*strings = view->strings + off;
	return 0;
}

int meta_packed_view_check(const struct meta_packed_view *view)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < view->nr_entries; i++) {
		struct packed_entry entry;
		const uint8_t *strings;

		ret = view_entry(view, i, &entry, &strings);
	}
	return ret;
}

static void copy_props(const struct meta_packed_view *view, uint32_t index, struct meta_dirent *out)
{
	struct packed_props props;

	if (!view->props)
		return;
	memcpy(&props, view->props + (size_t)index * sizeof(props), sizeof(props));
	if (out->has_mtime) {
		out->mtime_sec = (int64_t)le64toh((uint64_t)props.mtime_sec);
		out->mtime_nsec = (int32_t)le32toh((uint32_t)props.mtime_nsec);
	}
	if (out->has_mode)
		out->mode = le32toh(props.mode);
}

static int copy_entry(const struct meta_packed_view *view, uint32_t index,
		      const struct packed_entry *entry, const uint8_t *strings,
		      struct meta_dirent *out)
{
	enum cas_node_kind kind = (enum cas_node_kind)(entry->flags & ENTRY_KIND);
	char *target = NULL;

	if (cas_name_check((const char *)strings, entry->name_len) < 0)
		return -EUCLEAN;
	if (kind == CAS_NODE_SYMLINK) {
		target = strndup((const char *)strings + entry->name_len,
				 le16toh(entry->target_len));
		if (!target)
			return -ENOMEM;
	}
	out->kind = kind;
	out->executable = (entry->flags & ENTRY_EXECUTABLE) != 0;
	out->has_mtime = (entry->flags & ENTRY_HAS_MTIME) != 0;
	out->has_mode = (entry->flags & ENTRY_HAS_MODE) != 0;
	out->mtime_nsec = 0;
	out->mtime_sec = 0;
	out->mode = 0;
	copy_props(view, index, out);
	memcpy(out->digest.hash, entry->hash, CAS_HASH_SZ);
	out->digest.size = le64toh(entry->size);
	out->name_len = entry->name_len;
	memcpy(out->name, strings, entry->name_len);
	out->name[entry->name_len] = '\0';
	out->target = target;
	return 0;
}

int meta_packed_view_get(const struct meta_packed_view *view, uint32_t index,
			 struct meta_dirent *out)
{
	struct packed_entry entry;
	const uint8_t *strings;
	int ret = view_entry(view, index, &entry, &strings);

	return ret < 0 ? ret : copy_entry(view, index, &entry, strings, out);
}

static int compare_names(const char *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

int meta_packed_view_find(const struct meta_packed_view *view, const char *name,
			  struct meta_dirent *out)
{
	size_t name_len = strlen(name);
	uint32_t low = 0, high = view->nr_entries;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		struct packed_entry entry;
		const uint8_t *strings;
		int ret = view_entry(view, mid, &entry, &strings), order;

		if (ret < 0)
			return ret;
		order = compare_names(name, name_len, strings, entry.name_len);
		if (order == 0) {
			ret = copy_entry(view, mid, &entry, strings, out);
			return ret < 0 ? ret : 1;
		}
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return 0;
}

static bool same_props(const struct meta_packed_view *a, uint32_t i,
		       const struct meta_packed_view *b, uint32_t j)
{
	static const struct packed_props none;
	const void *x = a->props ? a->props + (size_t)i * sizeof(none) : (const void *)&none;
	const void *y = b->props ? b->props + (size_t)j * sizeof(none) : (const void *)&none;

	return memcmp(x, y, sizeof(none)) == 0;
}

int meta_packed_view_compare(const struct meta_packed_view *a, uint32_t i,
			     const struct meta_packed_view *b, uint32_t j, int *order, bool *same)
{
	struct packed_entry x, y;
	const uint8_t *x_strings, *y_strings;
	int ret = view_entry(a, i, &x, &x_strings);

	if (ret == 0)
		ret = view_entry(b, j, &y, &y_strings);
	if (ret < 0)
		return ret;
	*order = compare_names((const char *)x_strings, x.name_len, y_strings, y.name_len);
	*same = *order == 0 && x.flags == y.flags && x.size == y.size &&
		x.target_len == y.target_len && memcmp(x.hash, y.hash, sizeof(x.hash)) == 0 &&
		memcmp(x_strings, y_strings, (size_t)x.name_len + le16toh(x.target_len)) == 0 &&
		same_props(a, i, b, j);
	return 0;
}

void meta_dirent_fini(struct meta_dirent *entry)
{
	if (!entry)
		return;
	free(entry->target);
	entry->target = NULL;
}
