/* tests/unit/test_fs_inode.c - identity of nodes, lookup counts, listings */
#include "tests/lib/tests.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/identity.h"
#include "fs/node/inode_i.h"
#include "fs/node/readdir.h"

static struct fs_entry file_entry(const struct fs_key *dir, const char *name, uint8_t content)
{
	struct fs_entry e = {.kind = FS_KIND_FILE, .digest = {.hash = {content}, .size = 5}};

	assert_int_equal(fs_key_of_leaf(dir, name, &e, &e.key), 0);
	return e;
}

static struct fs_entry dir_entry(const struct fs_key *parent, const char *name, uint8_t content)
{
	struct fs_entry e = {.kind = FS_KIND_DIR, .digest = {.hash = {content}, .size = 9}};

	assert_int_equal(fs_key_of_path(parent, name, &e.key), 0);
	return e;
}

static struct fs_inode_table *new_table(void)
{
	struct fs_entry root = {.kind = FS_KIND_DIR};
	struct fs_inode_table *table = NULL;

	assert_int_equal(fs_inode_table_new(&root, &table), 0);
	return table;
}

#define NR_MANY 1000000

/* A million files in a thousand directories: 200 bytes each, all told (issue 3). */
static void test_million_nodes_take_200_bytes_each(void **state)
{
	struct mallinfo2 before = mallinfo2();
	struct fs_inode_table *table = new_table();
	struct mallinfo2 after;
	struct fs_inode dir = {0};
	struct fs_inode leaf;

	for (unsigned i = 0; i < NR_MANY; i++) {
		struct fs_entry file = {.kind = FS_KIND_FILE, .digest = {.size = i + 1}};
		struct fs_entry d;
		char name[32];

		(void)snprintf(name, sizeof(name), "directory-%u", i / 1000);
		if (i % 1000 == 0) {
			d = dir_entry(&fs_key_zero, name, 1);
			assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, name, &d, &dir), 0);
		}
		memcpy(file.key.bytes, &i, sizeof(i));
		assert_int_equal(
			fs_inode_lookup(table, dir.id, "a-name-of-no-account", &file, &leaf), 0);
	}
	after = mallinfo2();
	assert_int_equal(fs_inode_count(table), NR_MANY + NR_MANY / 1000 + 1);
	/* Under a sanitizer nothing is counted. */
	if (after.uordblks > before.uordblks)
		assert_in_range(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd,
				100UL * NR_MANY, 200UL * NR_MANY);
	fs_inode_table_free(table);
}

static void test_path_is_what_leads_to_a_directory(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_entry d = dir_entry(&fs_key_zero, "d", 1);
	struct fs_entry e = dir_entry(&d.key, "longer", 2);
	struct fs_entry file = file_entry(&e.key, "f", 3);
	struct fs_inode dir;
	struct fs_inode below;
	struct fs_inode leaf;
	char *path;

	assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, "d", &d, &dir), 0);
	assert_int_equal(fs_inode_lookup(table, dir.id, "longer", &e, &below), 0);
	assert_int_equal(fs_inode_lookup(table, below.id, "f", &file, &leaf), 0);
	path = fs_inode_path(table, below.id);
	assert_string_equal(path, "d/longer");
	free(path);
	assert_null(fs_inode_path(table, FS_INODE_ROOT));
	assert_null(fs_inode_path(table, 1000));
	assert_null(fs_inode_path(table, leaf.id));
	fs_inode_orphan(table, dir.id, "longer");
	assert_null(fs_inode_path(table, below.id));
	fs_inode_table_free(table);
}

static void test_file_is_stored_once_and_only_if_it_is_known(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_entry file = file_entry(&fs_key_zero, "f", 3);
	struct fs_entry known = file;
	struct fs_inode leaf;

	assert_int_equal(fs_inode_store(table, &file), 0);
	assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, "f", &known, &leaf), 0);
	assert_int_equal(fs_inode_store(table, &file), leaf.id);
	assert_int_equal(fs_inode_store(table, &file), 0);
	fs_inode_forget(table, leaf.id, 1);
	known = file;
	assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, "f", &known, &leaf), 0);
	assert_int_equal(fs_inode_store(table, &file), leaf.id);
	fs_inode_table_free(table);
}

static void test_directory_is_to_be_listed_once_when_asked_twice(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_entry one = dir_entry(&fs_key_zero, "one", 1);
	struct fs_entry two = dir_entry(&fs_key_zero, "two", 2);
	struct fs_inode dir;

	assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, "one", &one, &dir), 0);
	assert_false(fs_inode_asked(table, dir.id));
	assert_true(fs_inode_asked(table, dir.id));
	assert_false(fs_inode_asked(table, dir.id));
	assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, "two", &two, &dir), 0);
	fs_inode_listed(table, dir.id);
	assert_false(fs_inode_asked(table, dir.id));
	assert_false(fs_inode_asked(table, dir.id));
	assert_false(fs_inode_asked(table, 1000));
	fs_inode_table_free(table);
}

static void test_key_changes_with_everything_that_makes_a_file_differ(void **state)
{
	struct fs_entry base = file_entry(&fs_key_zero, "a", 1);
	struct fs_entry e = base;
	struct fs_key key;

	assert_int_equal(fs_key_of_leaf(&fs_key_zero, "a", &e, &key), 0);
	assert_true(fs_key_equal(&key, &base.key));
	assert_int_equal(fs_key_of_leaf(&fs_key_zero, "b", &e, &key), 0);
	assert_false(fs_key_equal(&key, &base.key));
	assert_int_equal(fs_key_of_leaf(&base.key, "a", &e, &key), 0);
	assert_false(fs_key_equal(&key, &base.key));
	e.executable = true;
	assert_int_equal(fs_key_of_leaf(&fs_key_zero, "a", &e, &key), 0);
	assert_false(fs_key_equal(&key, &base.key));
	e = base;
	e.digest.hash[31] = 1;
	assert_int_equal(fs_key_of_leaf(&fs_key_zero, "a", &e, &key), 0);
	assert_false(fs_key_equal(&key, &base.key));
	e = base;
	e.has_mtime = true;
	assert_int_equal(fs_key_of_leaf(&fs_key_zero, "a", &e, &key), 0);
	assert_false(fs_key_equal(&key, &base.key));
	e = base;
	e.has_mode = true;
	e.mode = 0600;
	assert_int_equal(fs_key_of_leaf(&fs_key_zero, "a", &e, &key), 0);
	assert_false(fs_key_equal(&key, &base.key));
}

static void test_inode_number_has_60_bits_and_is_never_0_or_1(void **state)
{
	struct fs_key key;

	memset(key.bytes, 0xff, sizeof(key.bytes));
	assert_int_equal(fs_key_ino(&key), (UINT64_C(1) << 60) - 1);
	assert_int_equal(fs_key_ino(&fs_key_zero), 2);
	memset(key.bytes, 0, sizeof(key.bytes));
	key.bytes[0] = 1;
	assert_int_equal(fs_key_ino(&key), 3);
}

static struct fs_inode look(struct fs_inode_table *table, uint64_t dir, const char *name,
			    struct fs_entry e)
{
	struct fs_inode out = {0};

	assert_int_equal(fs_inode_lookup(table, dir, name, &e, &out), 0);
	return out;
}

/* The top of a slot, and directories and files below it by content. */
static struct fs_inode look_top(struct fs_inode_table *table, const char *name, uint64_t serial,
				uint8_t content)
{
	struct fs_entry e = {
		.kind = FS_KIND_DIR, .serial = serial, .digest = {.hash = {content}, .size = 9}};

	return look(table, FS_INODE_ROOT, name, e);
}

static struct fs_inode look_dir(struct fs_inode_table *table, const struct fs_inode *dir,
				const char *name, uint8_t content)
{
	return look(table, dir->id, name, dir_entry(&dir->entry.key, name, content));
}

static bool known(struct fs_inode_table *table, uint64_t id)
{
	struct fs_inode out;

	return fs_inode_get(table, id, &out);
}

static void test_a_file_is_its_place_and_content_and_a_directory_its_parent(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_inode a = look_top(table, "s1", 1, 10);
	struct fs_inode b = look_top(table, "s2", 2, 10);
	struct fs_inode da = look_dir(table, &a, "d", 1);
	struct fs_inode db = look_dir(table, &b, "d", 1);
	struct fs_inode fa = look(table, da.id, "f", file_entry(&da.entry.key, "f", 1));
	struct fs_inode fb = look(table, db.id, "f", file_entry(&db.entry.key, "f", 1));

	assert_true(a.id != b.id && da.id != db.id);
	assert_int_equal(fs_key_ino(&da.entry.key), fs_key_ino(&db.entry.key));
	assert_int_equal(fa.id, fb.id);
	assert_int_equal(look_dir(table, &a, "d", 1).id, da.id);
	assert_int_equal(look_top(table, "s1", 1, 10).id, a.id);
	assert_true(fs_key_equal(&da.up, &a.entry.key));
	/* Two lookups: the first forget leaves it. */
	fs_inode_forget(table, fa.id, 1);
	assert_true(known(table, fa.id));
	fs_inode_forget(table, fa.id, 1);
	assert_false(known(table, fa.id));
	fs_inode_table_free(table);
}

static void test_forget_frees_at_zero_and_ids_are_never_reused(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_entry f = file_entry(&fs_key_zero, "f", 1);
	uint64_t id = look(table, FS_INODE_ROOT, "f", f).id;

	fs_inode_forget(table, id, 1);
	assert_false(known(table, id));
	fs_inode_forget(table, id, 1); /* of a node that is gone: nothing happens */
	assert_int_equal(fs_inode_count(table), 1);
	assert_int_equal(look(table, FS_INODE_ROOT, "f", f).id, id + 1);
	fs_inode_forget(table, FS_INODE_ROOT, 100);
	assert_true(known(table, FS_INODE_ROOT));
	/* More than there were: the number is the kernel's, and no reason to end. */
	fs_inode_forget(table, id + 1, 1000);
	assert_false(known(table, id + 1));
	fs_inode_table_free(table);
}

static void test_directory_stays_while_a_directory_below_it_lives(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_inode a = look_top(table, "a", 7, 1);
	struct fs_inode b = look_dir(table, &a, "b", 2);

	fs_inode_forget(table, a.id, 1);
	assert_true(known(table, a.id));
	fs_inode_forget(table, b.id, 1);
	assert_int_equal(fs_inode_count(table), 1);
	fs_inode_table_free(table);
}

static void test_many_nodes_survive_growth_and_stay_small(void **state)
{
	struct fs_inode_table *table = new_table();
	char name[24];

	/* With its two table slots and malloc's header a node stays below 200 bytes. */
	assert_true(sizeof(struct fs_node) + 2 * sizeof(void *) + 16 <= 200);
	for (int i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(
			look(table, FS_INODE_ROOT, name, file_entry(&fs_key_zero, name, 1)).id,
			i + 2);
	}
	for (uint64_t id = 2; id < 20002; id++) {
		struct fs_inode out;

		assert_true(fs_inode_get(table, id, &out));
		assert_int_equal(out.id, id);
	}
	for (uint64_t id = 2; id < 20002; id++)
		fs_inode_forget(table, id, 1);
	assert_int_equal(fs_inode_count(table), 1);
	fs_inode_table_free(table);
}

static void test_top_that_shows_something_else_by_now_is_stale(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_inode top = look_top(table, "x", 5, 1);
	struct fs_entry e = {.kind = FS_KIND_DIR, .serial = 5, .digest = {.hash = {2}, .size = 9}};
	struct fs_inode out;
	char *name;

	assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, "x", &e, &out), -ESTALE);
	assert_int_equal(fs_inode_top_set(table, 5, FS_TOP_LIVE, FS_TOP_RETIRED), top.id);
	assert_int_equal(fs_inode_top_set(table, 5, FS_TOP_LIVE, FS_TOP_SWAPPED), 0);
	assert_int_equal(fs_inode_top_set(table, 5, FS_TOP_RETIRED, FS_TOP_SWAPPED), top.id);
	assert_int_equal(fs_inode_lookup(table, FS_INODE_ROOT, "x", &e, &out), -ESTALE);
	fs_inode_swap(table, top.id, &e);
	assert_int_equal(fs_inode_top_set(table, 5, FS_TOP_SWAPPED, FS_TOP_LIVE), top.id);
	/* Who began to read what it was before finds that gone, not damaged. */
	assert_false(fs_inode_ended(table, top.id, &e.digest));
	assert_true(fs_inode_ended(table, top.id, &top.entry.digest));
	assert_int_equal(look_top(table, "y", 5, 2).id, top.id);
	name = fs_inode_top_name(table, 5);
	assert_string_equal(name, "y");
	free(name);
	/* What the kernel has forgotten is of no use. */
	fs_inode_forget(table, top.id, 2);
	assert_int_equal(fs_inode_top_set(table, 5, FS_TOP_LIVE, FS_TOP_RETIRED), 0);
	fs_inode_table_free(table);
}

static void test_orphan_has_no_place_and_what_is_below_it_stays(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_inode top = look_top(table, "x", 5, 1);
	struct fs_inode d = look_dir(table, &top, "d", 1);
	struct fs_inode below = look_dir(table, &d, "below", 1);
	struct fs_inode again;

	assert_false(fs_inode_ended(table, below.id, &below.entry.digest));
	fs_inode_orphan(table, top.id, "d");
	assert_true(fs_inode_ended(table, below.id, &below.entry.digest));
	assert_false(fs_inode_child(table, top.id, "d", &again));
	again = look_dir(table, &top, "d", 1);
	assert_true(again.id != d.id);
	assert_true(known(table, d.id) && known(table, below.id));
	assert_int_equal(look_dir(table, &d, "below", 1).id, below.id);
	fs_inode_forget(table, below.id, 2);
	fs_inode_forget(table, d.id, 1);
	assert_false(known(table, d.id));
	/* A node of what was there before a swap is not found by who asks after it. */
	assert_true(look_dir(table, &top, "d", 2).id != again.id);
	assert_true(fs_inode_ended(table, again.id, &again.entry.digest));
	fs_inode_table_free(table);
}

static void test_directory_is_adopted_from_a_retired_top_with_all_below(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_inode a = look_top(table, "a", 1, 1);
	struct fs_inode src = look_dir(table, &a, "src", 2);
	struct fs_inode lib = look_dir(table, &src, "lib", 3);
	struct fs_inode b = look_top(table, "b", 2, 9);
	struct fs_inode c = look_top(table, "c", 3, 9);
	struct fs_inode_name *given;
	struct fs_inode got;

	fs_inode_table_adopt(table, true);
	/* Not from a live one, and not other content. */
	got = look_dir(table, &b, "src", 2);
	assert_true(got.id != src.id);
	fs_inode_forget(table, got.id, 1);
	assert_int_equal(fs_inode_top_set(table, 1, FS_TOP_LIVE, FS_TOP_RETIRED), a.id);
	got = look_dir(table, &b, "src", 7);
	assert_true(got.id != src.id);
	assert_int_equal(fs_inode_adopted(table), 0);
	/* One level further down the way there need not be equal. */
	assert_int_equal(look_dir(table, &got, "lib", 3).id, lib.id);
	fs_inode_forget(table, lib.id, 1);
	assert_int_equal(fs_inode_adopted(table), 1);
	/* What has given something stays, with all above it, until that is dealt with. */
	assert_true(look_dir(table, &c, "src", 2).id != src.id);
	given = fs_inode_given(table, 1);
	assert_non_null(given);
	assert_null(given->next);
	assert_int_equal(given->dir, src.id);
	assert_string_equal(given->name, "lib");
	fs_inode_names_free(given);
	assert_null(fs_inode_given(table, 1));
	assert_false(fs_inode_child(table, src.id, "lib", &got));
	/* Not while it is swapped, nor when it was dropped. */
	assert_int_equal(fs_inode_top_set(table, 1, FS_TOP_RETIRED, FS_TOP_SWAPPED), a.id);
	got = look_top(table, "d", 4, 1);
	assert_true(look_dir(table, &got, "src", 2).id != src.id);
	fs_inode_table_free(table);
}

/* A view of @ctx numbered files. */
static int numbers_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
			fs_view_each_fn each, void *ctx, struct err *err)
{
	for (uint64_t i = start; i < (uint64_t)(uintptr_t)view->ctx; i++) {
		struct fs_entry e = {.view = view, .kind = FS_KIND_SYMLINK, .target = "t"};
		char name[24];
		int ret;

		(void)snprintf(name, sizeof(name), "%llu", (unsigned long long)i);
		ret = each(ctx, i, name, &e);
		if (ret != 0)
			return ret < 0 ? ret : 0;
	}
	return 0;
}

static const struct fs_view_ops numbers_ops = {.list = numbers_list};

static int read_all(const struct fs_inode *dir, size_t size, bool plus)
{
	uint64_t off = 0;
	int nr = 0;

	for (;;) {
		struct fs_dirlist list;

		assert_int_equal(fs_dirlist_collect(dir, off, size, plus, &list, NULL), 0);
		if (list.nr == 0)
			return nr;
		for (size_t i = 0; i < list.nr; i++, nr++) {
			char name[24];

			(void)snprintf(name, sizeof(name), "%d", nr - 2);
			assert_string_equal(list.items[i].name, nr == 0	  ? "."
								: nr == 1 ? ".."
									  : name);
			assert_int_equal(list.items[i].next_off, nr + 1);
			assert_int_equal(list.items[i].is_dot, nr < 2);
			if (nr >= 2 && plus)
				assert_string_equal(list.items[i].entry.target, "t");
			off = list.items[i].next_off;
		}
		fs_dirlist_fini(&list);
	}
}

static void test_listing_in_pieces_gives_every_name_once(void **state)
{
	struct fs_view view = {&numbers_ops, (void *)(uintptr_t)1000};
	struct fs_inode dir = {.entry = {.view = &view, .kind = FS_KIND_DIR}};

	assert_int_equal(read_all(&dir, 4096, false), 1002);
	assert_int_equal(read_all(&dir, 4096, true), 1002);
	assert_int_equal(read_all(&dir, 200, false), 1002);
	assert_int_equal(read_all(&dir, 1 << 20, true), 1002);
	view.ctx = NULL;
	assert_int_equal(read_all(&dir, 4096, true), 2);
}

static void test_listing_takes_only_what_fits(void **state)
{
	struct fs_view view = {&numbers_ops, (void *)(uintptr_t)10};
	struct fs_inode dir = {.entry = {.view = &view, .kind = FS_KIND_DIR}};
	struct fs_dirlist list;

	/* "." and ".." take 32 bytes each in the kernel's form, 160 with attributes. */
	assert_int_equal(fs_dirlist_collect(&dir, 0, 64, false, &list, NULL), 0);
	assert_int_equal(list.nr, 2);
	fs_dirlist_fini(&list);
	assert_int_equal(fs_dirlist_collect(&dir, 0, 63, false, &list, NULL), 0);
	assert_int_equal(list.nr, 1);
	fs_dirlist_fini(&list);
	assert_int_equal(fs_dirlist_collect(&dir, 2, 3 * 160, true, &list, NULL), 0);
	assert_int_equal(list.nr, 3);
	assert_string_equal(list.items[0].name, "0");
	fs_dirlist_fini(&list);
	assert_int_equal(fs_dirlist_collect(&dir, 12, 4096, true, &list, NULL), 0);
	assert_int_equal(list.nr, 0);
	fs_dirlist_fini(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key_changes_with_everything_that_makes_a_file_differ),
		cmocka_unit_test(test_inode_number_has_60_bits_and_is_never_0_or_1),
		cmocka_unit_test(test_a_file_is_its_place_and_content_and_a_directory_its_parent),
		cmocka_unit_test(test_forget_frees_at_zero_and_ids_are_never_reused),
		cmocka_unit_test(test_directory_stays_while_a_directory_below_it_lives),
		cmocka_unit_test(test_many_nodes_survive_growth_and_stay_small),
		cmocka_unit_test(test_top_that_shows_something_else_by_now_is_stale),
		cmocka_unit_test(test_orphan_has_no_place_and_what_is_below_it_stays),
		cmocka_unit_test(test_directory_is_adopted_from_a_retired_top_with_all_below),
		cmocka_unit_test(test_million_nodes_take_200_bytes_each),
		cmocka_unit_test(test_path_is_what_leads_to_a_directory),
		cmocka_unit_test(test_file_is_stored_once_and_only_if_it_is_known),
		cmocka_unit_test(test_directory_is_to_be_listed_once_when_asked_twice),
		cmocka_unit_test(test_listing_in_pieces_gives_every_name_once),
		cmocka_unit_test(test_listing_takes_only_what_fits),
	};

	return cmocka_run_group_tests_name("fs_inode", tests, NULL, NULL);
}
