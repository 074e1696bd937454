/* tests/unit/test_meta_packed.c - directories searched in place */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/hash.h"
#include "meta/index/packed_dir.h"

static struct cas_digest digest_of(const char *text)
{
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes(text, strlen(text), &d), 0);
	return d;
}

static void add(struct cas_directory *dir, struct cas_node node)
{
	assert_int_equal(cas_directory_add(dir, &node), 0);
}

/* Encoding sorts; the packed form and its digest come back. */
static struct meta_packed *pack(struct cas_directory *dir, struct cas_digest *digest)
{
	auto_buf struct buf b = {0};
	struct meta_packed *packed;

	assert_int_equal(cas_directory_encode(dir, &b, digest, NULL), 0);
	assert_int_equal(meta_packed_new(dir, digest, &packed), 0);
	cas_directory_free(dir);
	return packed;
}

static struct cas_directory *sample(void)
{
	struct cas_directory *dir;

	assert_int_equal(cas_directory_new(&dir), 0);
	add(dir, (struct cas_node){.kind = CAS_NODE_SYMLINK,
				   .name = "link",
				   .target = "../elsewhere",
				   .props = {.has_mtime = true, .mtime_sec = -5, .mtime_nsec = 7}});
	add(dir, (struct cas_node){.kind = CAS_NODE_FILE,
				   .name = "tool",
				   .executable = true,
				   .digest = digest_of("tool"),
				   .props = {.has_mode = true, .mode = 0100755}});
	add(dir, (struct cas_node){
			 .kind = CAS_NODE_DIRECTORY, .name = "sub", .digest = digest_of("sub")});
	add(dir, (struct cas_node){
			 .kind = CAS_NODE_FILE, .name = "a", .digest = digest_of("content of a")});
	dir->props = (struct cas_properties){.has_mode = true, .mode = 0700};
	return dir;
}

static void test_every_field_comes_back(void **state)
{
	struct meta_packed_view view;
	struct meta_dirent e;
	struct cas_digest digest, want;
	struct meta_packed *packed = pack(sample(), &digest);

	assert_int_equal(meta_packed_view_init(&view, &digest, packed->data, packed->len), 0);
	assert_int_equal(view.info.nr_entries, 4);
	assert_int_equal(view.info.nr_subdirs, 1);
	assert_true(view.info.props.has_mode);
	assert_int_equal(view.info.props.mode, 0700);
	assert_false(view.info.props.has_mtime);

	assert_int_equal(meta_packed_view_find(&view, "tool", &e), 1);
	want = digest_of("tool");
	assert_int_equal(e.kind, CAS_NODE_FILE);
	assert_true(e.executable);
	assert_true(cas_digest_equal(&e.digest, &want));
	assert_true(e.has_mode);
	assert_int_equal(e.mode, 0100755);
	assert_false(e.has_mtime);
	assert_null(e.target);
	meta_dirent_fini(&e);

	assert_int_equal(meta_packed_view_find(&view, "link", &e), 1);
	assert_int_equal(e.kind, CAS_NODE_SYMLINK);
	assert_string_equal(e.target, "../elsewhere");
	assert_true(e.has_mtime);
	assert_int_equal(e.mtime_sec, -5);
	assert_int_equal(e.mtime_nsec, 7);
	meta_dirent_fini(&e);
	assert_null(e.target);
	meta_packed_unref(packed);
}

static void test_find_takes_whole_names_only(void **state)
{
	static const char *const absent[] = {"", "a ", "A", "lin", "links", "sub/", "zzz"};
	struct meta_packed_view view;
	struct cas_digest digest;
	struct meta_dirent e;
	struct meta_packed *packed = pack(sample(), &digest);

	assert_int_equal(meta_packed_view_init(&view, &digest, packed->data, packed->len), 0);
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		assert_int_equal(meta_packed_view_find(&view, absent[i], &e), 0);
	meta_packed_unref(packed);
}

static void test_entries_come_in_order_of_name(void **state)
{
	static const char *const names[] = {"a", "link", "sub", "tool"};
	struct meta_packed_view view;
	struct cas_digest digest;
	struct meta_dirent e;
	struct meta_packed *packed = pack(sample(), &digest);

	assert_int_equal(meta_packed_view_init(&view, &digest, packed->data, packed->len), 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(meta_packed_view_get(&view, i, &e), 0);
		assert_string_equal(e.name, names[i]);
		assert_int_equal(e.name_len, strlen(names[i]));
		meta_dirent_fini(&e);
	}
	meta_packed_unref(packed);
}

static void test_small_directories_are_small(void **state)
{
	struct cas_directory *dir;
	struct meta_packed *packed;
	struct cas_digest digest;

	assert_int_equal(cas_directory_new(&dir), 0);
	add(dir, (struct cas_node){.kind = CAS_NODE_FILE, .name = "f", .digest = digest_of("f")});
	packed = pack(dir, &digest);
	assert_in_range(packed->len, 1, 100);
	meta_packed_unref(packed);
}

static void test_two_hundred_thousand_entries_are_found(void **state)
{
	enum { NR = 200000 };
	struct cas_directory *dir;
	struct meta_packed_view view;
	struct meta_packed *packed;
	struct cas_digest digest;
	struct meta_dirent e;
	char name[32];

	assert_int_equal(cas_directory_new(&dir), 0);
	for (int i = 0; i < NR; i++) {
		struct cas_node node = {
			.kind = CAS_NODE_FILE, .name = name, .digest = digest_of("same")};

		node.digest.size = (uint64_t)i + 1;
		(void)snprintf(name, sizeof(name), "file-%d", i);
		add(dir, node);
	}
	packed = pack(dir, &digest);
	assert_int_equal(meta_packed_view_init(&view, &digest, packed->data, packed->len), 0);
	assert_int_equal(view.info.nr_entries, NR);
	for (int i = 0; i < NR; i += 37) {
		(void)snprintf(name, sizeof(name), "file-%d", i);
		assert_int_equal(meta_packed_view_find(&view, name, &e), 1);
		assert_int_equal(e.digest.size, i + 1);
		(void)snprintf(name, sizeof(name), "file-%d.", i);
		assert_int_equal(meta_packed_view_find(&view, name, &e), 0);
	}
	meta_packed_unref(packed);
}

static void test_another_digest_is_refused(void **state)
{
	struct cas_digest digest, other = digest_of("another");
	struct meta_packed_view view;
	struct meta_packed *packed = pack(sample(), &digest);

	assert_int_equal(meta_packed_view_init(&view, &other, packed->data, packed->len), -EUCLEAN);
	other = digest;
	other.size++;
	assert_int_equal(meta_packed_view_init(&view, &other, packed->data, packed->len), -EUCLEAN);
	meta_packed_unref(packed);
}

/* Ask everything of some bytes; the count of entries that came back as they were. */
static int read_all(const struct cas_digest *digest, const uint8_t *data, size_t len)
{
	static const char *const names[] = {"a", "link", "sub", "tool"};
	struct meta_packed_view view;
	struct meta_dirent e;
	int nr_right = 0;

	if (meta_packed_view_init(&view, digest, data, len) < 0)
		return 0;
	for (uint32_t i = 0; i < view.nr_entries; i++) {
		if (meta_packed_view_get(&view, i, &e) < 0)
			continue;
		assert_string_equal(e.name, names[i]);
		nr_right++;
		meta_dirent_fini(&e);
	}
	for (int i = 0; i < 4; i++) {
		int ret = meta_packed_view_find(&view, names[i], &e);

		/* Damage may hide nothing: found as it was, or said to be damaged. */
		assert_true(ret == 1 || ret == -EUCLEAN);
		if (ret == 1)
			meta_dirent_fini(&e);
	}
	return nr_right;
}

static void test_flipped_bits_are_noticed(void **state)
{
	struct cas_digest digest;
	struct meta_packed *packed = pack(sample(), &digest);

	assert_int_equal(read_all(&digest, packed->data, packed->len), 4);
	for (size_t bit = 0; bit < packed->len * 8; bit++) {
		/* A copy of exactly that length, so that a sanitizer sees a step beyond it. */
		uint8_t *copy = malloc(packed->len);

		assert_non_null(copy);
		memcpy(copy, packed->data, packed->len);
		copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		assert_true(read_all(&digest, copy, packed->len) < 4);
		free(copy);
	}
	meta_packed_unref(packed);
}

static void test_cut_and_padded_bytes_are_refused(void **state)
{
	struct meta_packed_view view;
	struct cas_digest digest;
	struct meta_packed *packed = pack(sample(), &digest);
	uint8_t *longer = calloc(1, packed->len + 1);

	assert_non_null(longer);
	memcpy(longer, packed->data, packed->len);
	assert_int_equal(meta_packed_view_init(&view, &digest, longer, packed->len + 1), -EUCLEAN);
	free(longer);
	for (size_t len = 0; len < packed->len; len++) {
		uint8_t *cut = malloc(len + 1);

		assert_non_null(cut);
		memcpy(cut, packed->data, len);
		assert_int_equal(meta_packed_view_init(&view, &digest, cut, len), -EUCLEAN);
		free(cut);
	}
	meta_packed_unref(packed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_field_comes_back),
		cmocka_unit_test(test_find_takes_whole_names_only),
		cmocka_unit_test(test_entries_come_in_order_of_name),
		cmocka_unit_test(test_small_directories_are_small),
		cmocka_unit_test(test_two_hundred_thousand_entries_are_found),
		cmocka_unit_test(test_another_digest_is_refused),
		cmocka_unit_test(test_flipped_bits_are_noticed),
		cmocka_unit_test(test_cut_and_padded_bytes_are_refused),
	};

	return cmocka_run_group_tests_name("meta_packed", tests, NULL, NULL);
}
