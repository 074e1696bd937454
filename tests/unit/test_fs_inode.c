/* tests/unit/test_fs_inode.c - identity of nodes, lookup counts, listings */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/serve/identity.h"
#include "fs/serve/inode.h"
#include "fs/serve/readdir.h"

static struct fs_entry file_entry(const struct fs_key *dir, const char *name, uint8_t content)
{
	struct fs_entry e = {.kind = FS_KIND_FILE, .digest = {.hash = {content}, .size = 5}};

	assert_int_equal(fs_key_of_leaf(dir, name, &e, &e.key), 0);
	return e;
}

static struct fs_entry dir_entry(const struct fs_key *parent, const char *name, uint64_t serial)
{
	struct fs_entry e = {.kind = FS_KIND_DIR, .serial = serial};

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

static void test_same_identity_is_one_node_and_another_serial_another(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_node *root = fs_inode_find(table, FS_INODE_ROOT);
	struct fs_entry d1 = dir_entry(&fs_key_zero, "d", 1);
	struct fs_entry d2 = dir_entry(&fs_key_zero, "d", 2);
	struct fs_entry f = file_entry(&fs_key_zero, "f", 1);
	struct fs_node *a, *b, *c, *x, *y;

	assert_int_equal(fs_inode_lookup(table, root, "d", &d1, &a), 0);
	assert_int_equal(fs_inode_lookup(table, root, "d", &d1, &b), 0);
	assert_int_equal(fs_inode_lookup(table, root, "d", &d2, &c), 0);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	assert_int_equal(fs_key_ino(&a->entry.key), fs_key_ino(&c->entry.key));
	assert_string_equal(a->name, "d");
	assert_ptr_equal(a->parent, root);
	assert_int_equal(fs_inode_lookup(table, a, "f", &f, &x), 0);
	assert_int_equal(fs_inode_lookup(table, c, "f", &f, &y), 0);
	assert_ptr_equal(x, y);
	assert_int_equal(x->nr_lookups, 2);
	fs_inode_table_free(table);
}

static void test_forget_frees_at_zero_and_ids_are_never_reused(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_node *root = fs_inode_find(table, FS_INODE_ROOT);
	struct fs_entry f = file_entry(&fs_key_zero, "f", 1);
	struct fs_node *node;
	uint64_t id;

	assert_int_equal(fs_inode_lookup(table, root, "f", &f, &node), 0);
	assert_int_equal(fs_inode_lookup(table, root, "f", &f, &node), 0);
	id = node->id;
	fs_inode_forget(table, id, 1);
	assert_ptr_equal(fs_inode_find(table, id), node);
	fs_inode_forget(table, id, 1);
	assert_null(fs_inode_find(table, id));
	fs_inode_forget(table, id, 1); /* of a node that is gone: nothing happens */
	assert_int_equal(fs_inode_count(table), 1);
	assert_int_equal(fs_inode_lookup(table, root, "f", &f, &node), 0);
	assert_int_equal(node->id, id + 1);
	fs_inode_forget(table, FS_INODE_ROOT, 100);
	assert_non_null(fs_inode_find(table, FS_INODE_ROOT));
	fs_inode_table_free(table);
}

static void test_directory_stays_while_a_directory_below_it_lives(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_node *root = fs_inode_find(table, FS_INODE_ROOT);
	struct fs_entry e = dir_entry(&fs_key_zero, "a", 7);
	struct fs_node *a, *b;
	uint64_t id_a;

	assert_int_equal(fs_inode_lookup(table, root, "a", &e, &a), 0);
	e = dir_entry(&a->entry.key, "b", 7);
	assert_int_equal(fs_inode_lookup(table, a, "b", &e, &b), 0);
	id_a = a->id;
	fs_inode_forget(table, id_a, 1);
	assert_ptr_equal(fs_inode_find(table, id_a), a);
	assert_ptr_equal(b->parent, a);
	fs_inode_forget(table, b->id, 1);
	assert_int_equal(fs_inode_count(table), 1);
	assert_null(fs_inode_find(table, id_a));
	fs_inode_table_free(table);
}

static void test_many_nodes_survive_growth_and_stay_small(void **state)
{
	struct fs_inode_table *table = new_table();
	struct fs_node *root = fs_inode_find(table, FS_INODE_ROOT);
	char name[24];

	/* With its two table slots and malloc's header a node stays below 200 bytes. */
	assert_true(sizeof(struct fs_node) + 2 * sizeof(void *) + 16 <= 200);
	for (int i = 0; i < 20000; i++) {
		struct fs_node *node;
		struct fs_entry e;

		(void)snprintf(name, sizeof(name), "f%d", i);
		e = file_entry(&fs_key_zero, name, 1);
		assert_int_equal(fs_inode_lookup(table, root, name, &e, &node), 0);
		assert_int_equal(node->id, i + 2);
	}
	for (uint64_t id = 2; id < 20002; id++)
		assert_int_equal(fs_inode_find(table, id)->id, id);
	for (uint64_t id = 2; id < 20002; id++)
		fs_inode_forget(table, id, 1);
	assert_int_equal(fs_inode_count(table), 1);
	fs_inode_table_free(table);
}

/* A view of @ctx numbered files. */
static int numbers_list(const struct fs_view *view, const struct fs_node *dir, uint64_t start,
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

static int read_all(const struct fs_node *dir, size_t size, bool plus)
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
	struct fs_node dir = {.entry = {.view = &view, .kind = FS_KIND_DIR}};

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
	struct fs_node dir = {.entry = {.view = &view, .kind = FS_KIND_DIR}};
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
		cmocka_unit_test(test_same_identity_is_one_node_and_another_serial_another),
		cmocka_unit_test(test_forget_frees_at_zero_and_ids_are_never_reused),
		cmocka_unit_test(test_directory_stays_while_a_directory_below_it_lives),
		cmocka_unit_test(test_many_nodes_survive_growth_and_stay_small),
		cmocka_unit_test(test_listing_in_pieces_gives_every_name_once),
		cmocka_unit_test(test_listing_takes_only_what_fits),
	};

	return cmocka_run_group_tests_name("fs_inode", tests, NULL, NULL);
}
