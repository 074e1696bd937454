/* tests/unit/test_meta_tree_diff.c - what makes one tree of another */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cas/cas.h"
#include "meta/index/tree_diff.h"
#include "meta/meta.h"
#include "tests/lib/store.h"

struct both {
	struct cas_store *store;
	struct meta *meta;
};

static struct both open_both(const char *dir)
{
	const struct meta_options opts = {.mode = META_READER};
	struct both b = {.store = tests_store_open(dir, NULL)};

	assert_int_equal(meta_open(b.store, &opts, &b.meta, NULL), 0);
	return b;
}

static void close_both(struct both *b)
{
	assert_int_equal(meta_close(b->meta, NULL), 0);
	cas_store_close(b->store);
}

/* A Directory of these nodes, which end with one without a name. */
static struct cas_digest put_dir(struct both *b, const struct cas_node *nodes,
				 const struct cas_properties *props)
{
	struct cas_directory *dir;
	struct cas_digest digest;

	assert_int_equal(cas_directory_new(&dir), 0);
	for (; nodes->name; nodes++)
		assert_int_equal(cas_directory_add(dir, nodes), 0);
	if (props)
		dir->props = *props;
	assert_int_equal(cas_directory_put(b->store, dir, &digest, NULL), 0);
	cas_directory_free(dir);
	return digest;
}

static struct cas_digest of(const char *text)
{
	struct cas_digest digest;

	assert_int_equal(cas_hash_bytes(text, strlen(text), &digest), 0);
	return digest;
}

static struct cas_node file(const char *name, const char *text)
{
	return (struct cas_node){.kind = CAS_NODE_FILE, .name = name, .digest = of(text)};
}

static struct cas_node link_to(const char *name, const char *target)
{
	return (struct cas_node){.kind = CAS_NODE_SYMLINK, .name = name, .target = target};
}

static struct cas_node subdir(const char *name, const struct cas_digest *digest)
{
	return (struct cas_node){.kind = CAS_NODE_DIRECTORY, .name = name, .digest = *digest};
}

/* "LETTER PATH" of each change, a comma after each. */
static const char *told(const struct meta_changes *changes)
{
	static char text[1024];
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < changes->nr; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%c %s,",
				       "ADMT"[changes->list[i].kind], changes -> list[i].path);
	return text;
}

static void expect(struct both *b, const struct cas_digest *old, const struct cas_digest *new,
		   bool whole, const char *want)
{
	struct meta_changes changes = {0};
	struct err err = {0};

	if (meta_tree_diff(b->meta, old, new, whole, 0, &changes, &err) < 0)
		fail_msg("%s", err.msg);
	assert_string_equal(told(&changes), want);
	assert_false(changes.cut);
	meta_changes_fini(&changes);
}

static void test_every_kind_of_change_is_told_once_in_order_of_path(void **state)
{
	struct both b = open_both(*state);
	struct cas_digest leaf = put_dir(&b, (struct cas_node[]){file("x", "1"), {0}}, NULL);
	struct cas_digest leaf2 = put_dir(&b, (struct cas_node[]){file("x", "2"), {0}}, NULL);
	struct cas_node tool = file("tool", "t");
	struct cas_node tool2 = tool;
	struct cas_digest old, new;

	tool2.executable = true;
	old = put_dir(&b,
		      (struct cas_node[]){subdir("a", &leaf),
					  file("a-b", "1"),
					  file("gone", "1"),
					  subdir("gone-dir", &leaf),
					  link_to("l", "one"),
					  file("same", "1"),
					  subdir("same-dir", &leaf),
					  tool,
					  link_to("was-link", "x"),
					  subdir("was-dir", &leaf),
					  {0}},
		      NULL);
	new = put_dir(&b,
		      (struct cas_node[]){subdir("a", &leaf2),
					  file("a-b", "2"),
					  file("new", "1"),
					  subdir("new-dir", &leaf),
					  link_to("l", "two"),
					  file("same", "1"),
					  subdir("same-dir", &leaf),
					  tool2,
					  file("was-link", "x"),
					  link_to("was-dir", "y"),
					  {0}},
		      NULL);
	expect(&b, &old, &new, false,
	       "M a-b,M a/x,D gone,D gone-dir,M l,A new,A new-dir,M tool,T was-dir,T was-link,");
	expect(&b, &old, &new, true,
	       "M a-b,M a/x,D gone,D gone-dir,D gone-dir/x,M l,A new,A new-dir,A new-dir/x,"
	       "M tool,T was-dir,D was-dir/x,T was-link,");
	expect(&b, &old, &old, true, "");
	expect(&b, &cas_digest_empty, &leaf, false, "A x,");
	expect(&b, &leaf, &cas_digest_empty, false, "D x,");
	close_both(&b);
}

static void test_directories_are_told_by_their_own_properties(void **state)
{
	struct both b = open_both(*state);
	const struct cas_property odd = {"name", "value"};
	struct cas_properties mode = {.has_mode = true, .mode = 0700};
	struct cas_properties other = {.nr_other = 1, .other = &odd};
	struct cas_digest plain = put_dir(&b, (struct cas_node[]){file("x", "1"), {0}}, NULL);
	struct cas_digest moded = put_dir(&b, (struct cas_node[]){file("x", "2"), {0}}, &mode);
	struct cas_digest othered = put_dir(&b, (struct cas_node[]){file("x", "1"), {0}}, &other);
	struct cas_digest a = put_dir(&b, (struct cas_node[]){subdir("d", &plain), {0}}, NULL);
	struct cas_digest m = put_dir(&b, (struct cas_node[]){subdir("d", &moded), {0}}, NULL);
	struct cas_digest o = put_dir(&b, (struct cas_node[]){subdir("d", &othered), {0}}, NULL);
	struct meta_changes changes = {0};

	assert_int_equal(meta_tree_diff(b.meta, &a, &m, false, 0, &changes, NULL), 0);
	assert_string_equal(told(&changes), "M d,M d/x,");
	assert_false(changes.list[0].old.has_mode);
	assert_int_equal(changes.list[0].new.mode, 0700);
	assert_false(changes.list[0].other);
	meta_changes_fini(&changes);
	/* Different digests, so something is told, although nothing of it is shown. */
	assert_int_equal(meta_tree_diff(b.meta, &a, &o, false, 0, &changes, NULL), 0);
	assert_string_equal(told(&changes), "M d,");
	assert_true(changes.list[0].other);
	meta_changes_fini(&changes);
	close_both(&b);
}

/* Fifty directories in fifty directories; the file in the last one of all says @text. */
static struct cas_digest put_wide(struct both *b, const char *text)
{
	struct cas_node nodes[51] = {0};
	char names[50][4];
	struct cas_digest leaf = put_dir(b, (struct cas_node[]){file("x", "same"), {0}}, NULL);
	struct cas_digest last = put_dir(b, (struct cas_node[]){file("x", text), {0}}, NULL);
	struct cas_digest middle, middle_last;

	for (int i = 0; i < 50; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "%02d", i);
		nodes[i] = subdir(names[i], &leaf);
	}
	middle = put_dir(b, nodes, NULL);
	nodes[49].digest = last;
	middle_last = put_dir(b, nodes, NULL);
	for (int i = 0; i < 49; i++)
		nodes[i].digest = middle;
	nodes[49].digest = middle_last;
	return put_dir(b, nodes, NULL);
}

static void test_only_what_differs_is_looked_at(void **state)
{
	struct both b = open_both(*state);
	struct cas_digest old = put_wide(&b, "one");
	struct cas_digest new = put_wide(&b, "two");
	struct meta_changes changes = {0};

	assert_int_equal(meta_tree_diff(b.meta, &old, &new, true, 0, &changes, NULL), 0);
	assert_string_equal(told(&changes), "M 49/49/x,");
	assert_int_equal(changes.nr_dirs, 6);
	meta_changes_fini(&changes);
	assert_int_equal(meta_tree_diff(b.meta, &old, &old, true, 0, &changes, NULL), 0);
	assert_int_equal(changes.nr_dirs, 0);
	meta_changes_fini(&changes);
	close_both(&b);
}

static void test_no_more_than_asked_for_is_told(void **state)
{
	struct both b = open_both(*state);
	struct cas_digest old = put_dir(
		&b, (struct cas_node[]){file("a", "1"), file("b", "1"), file("c", "1"), {0}}, NULL);
	struct meta_changes changes = {0};

	assert_int_equal(meta_tree_diff(b.meta, &old, &cas_digest_empty, false, 2, &changes, NULL),
			 0);
	assert_string_equal(told(&changes), "D a,D b,");
	assert_true(changes.cut);
	meta_changes_fini(&changes);
	assert_int_equal(meta_tree_diff(b.meta, &old, &cas_digest_empty, false, 3, &changes, NULL),
			 0);
	assert_int_equal(changes.nr, 3);
	assert_false(changes.cut);
	meta_changes_fini(&changes);
	close_both(&b);
}

static void test_a_missing_directory_fails_only_where_it_is_needed(void **state)
{
	struct both b = open_both(*state);
	struct cas_digest nowhere = of("not a directory, and nowhere");
	struct cas_digest nowhere2 = of("nor is this");
	struct cas_digest old = put_dir(&b, (struct cas_node[]){subdir("d", &nowhere), {0}}, NULL);
	struct cas_digest new = put_dir(&b, (struct cas_node[]){subdir("d", &nowhere2), {0}}, NULL);
	struct meta_changes changes = {.nr = 7};
	struct err err = {0};

	expect(&b, &old, &cas_digest_empty, false, "D d,");
	assert_int_equal(meta_tree_diff(b.meta, &old, &new, false, 0, &changes, &err), -ENOENT);
	assert_int_equal(changes.nr, 7);
	assert_non_null(strstr(err.msg, CAS_DIGEST_TEXT(&nowhere)));
	assert_int_equal(meta_tree_diff(b.meta, &old, &cas_digest_empty, true, 0, &changes, &err),
			 -ENOENT);
	close_both(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_every_kind_of_change_is_told_once_in_order_of_path),
		TESTS_IN_DIR(test_directories_are_told_by_their_own_properties),
		TESTS_IN_DIR(test_only_what_differs_is_looked_at),
		TESTS_IN_DIR(test_no_more_than_asked_for_is_told),
		TESTS_IN_DIR(test_a_missing_directory_fails_only_where_it_is_needed),
	};

	return cmocka_run_group_tests_name("meta_tree_diff", tests, NULL, NULL);
}
