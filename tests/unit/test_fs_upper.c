/* tests/unit/test_fs_upper.c - served layers on a real directory: what is shown, before and after a
 * restart */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cas/cas.h"
#include "fs/node/identity.h"
#include "tests/lib/layer.h"
#include "tests/lib/store.h"

#define TREE                                                                                       \
	"mkdir -p d/e x; echo one > a; echo two > d/b; echo three > d/e/c; ln -s a l; echo four > x/y"

static const char *const none[] = {NULL};

static void open_all(struct tests_layer *l, void **state)
{
	tests_layer_open(l, *state, TREE, FS_WRITABLE_ALL, none);
}

/* Shown like this, also by a daemon that finds the layer; nothing is left in w then. */
static void check(struct tests_layer *l, const char *want)
{
	char *shown = tests_layer_shown(l);

	assert_string_equal(shown, want);
	free(shown);
	tests_layer_again(l);
	shown = tests_layer_shown(l);
	assert_string_equal(shown, want);
	free(shown);
	assert_int_equal(tests_count_names(tests_path(l->dir, "layer/w")), 0);
}

static void test_an_untouched_layer_shows_the_tree_and_writes_nothing(void **state)
{
	struct tests_layer l;

	open_all(&l, state);
	check(&l, "a: one\nd/\nd/b: two\nd/e/\nd/e/c: three\nl -> a\nx/\nx/y: four\n");
	assert_int_equal(tests_count_names(tests_path(*state, "layer/u")), 0);
	tests_layer_close(&l);
}

static void test_first_write_copies_the_input_and_keeps_its_number(void **state)
{
	struct tests_layer l;
	struct fs_unode *node;
	struct fs_entry lower;
	struct stat before;
	struct stat after;

	open_all(&l, state);
	node = tests_layer_node(&l, "d/b");
	assert_int_equal(fs_upper_stat(node, &before, &lower), 1);
	assert_int_equal(fs_upper_is_lower(node, &lower), 1);
	assert_int_equal(tests_layer_write(&l, "d/b", "TWO"), 0);
	assert_int_equal(fs_upper_is_lower(node, &lower), 0);
	assert_int_equal(fs_upper_stat(node, &after, &lower), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mode, S_IFREG | 0444);
	assert_int_equal(after.st_nlink, 1);
	check(&l, "a: one\nd/\nd/b: TWO\nd/e/\nd/e/c: three\nl -> a\nx/\nx/y: four\n");
	/* The number survives the daemon, and nothing but the way there is in the layer. */
	assert_int_equal(fs_upper_stat(tests_layer_node(&l, "d/b"), &after, &lower), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(tests_count_names(tests_path(*state, "layer/u")), 1);
	assert_int_equal(tests_count_names(tests_path(*state, "layer/u/d")), 1);
	tests_layer_close(&l);
}

static void test_removed_inputs_stay_removed_and_names_can_be_had_again(void **state)
{
	struct tests_layer l;

	open_all(&l, state);
	assert_int_equal(tests_layer_remove(&l, "a"), 0);
	assert_int_equal(tests_layer_remove(&l, "a"), -ENOENT);
	assert_int_equal(tests_layer_remove(&l, "l"), 0);
	assert_int_equal(tests_layer_remove(&l, "d/e"), -ENOTEMPTY);
	assert_int_equal(tests_layer_remove(&l, "d/e/c"), 0);
	assert_int_equal(tests_layer_remove(&l, "d/e"), 0);
	check(&l, "d/\nd/b: two\nx/\nx/y: four\n");
	assert_int_equal(tests_layer_write(&l, "a", "new"), 0);
	assert_int_equal(tests_layer_make(&l, "l", S_IFDIR), 0);
	/* A directory where one was shows nothing of it. */
	assert_int_equal(tests_layer_make(&l, "d/e", S_IFDIR), 0);
	check(&l, "a: new\nd/\nd/b: two\nd/e/\nl/\nx/\nx/y: four\n");
	tests_layer_close(&l);
}

static void test_renames_of_files_leave_what_was_there_hidden(void **state)
{
	struct tests_layer l;

	open_all(&l, state);
	assert_int_equal(tests_layer_rename(&l, "a", "d/a2", 0), 0);
	assert_int_equal(tests_layer_rename(&l, "a", "d/a3", 0), -ENOENT);
	assert_int_equal(tests_layer_rename(&l, "d/a2", "d/b", RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(tests_layer_rename(&l, "d/a2", "d/b", 0), 0);
	assert_int_equal(tests_layer_rename(&l, "d/b", "x", 0), -EISDIR);
	assert_int_equal(tests_layer_rename(&l, "l", "x/l", 0), 0);
	check(&l, "d/\nd/b: one\nd/e/\nd/e/c: three\nx/\nx/l -> a\nx/y: four\n");
	assert_int_equal(tests_layer_rename(&l, "d/b", "x/y", RENAME_EXCHANGE), 0);
	assert_int_equal(tests_layer_rename(&l, "d/b", "nowhere", RENAME_EXCHANGE), -ENOENT);
	check(&l, "d/\nd/b: four\nd/e/\nd/e/c: three\nx/\nx/l -> a\nx/y: one\n");
	tests_layer_close(&l);
}

static void test_renamed_directories_keep_their_inputs(void **state)
{
	struct tests_layer l;

	open_all(&l, state);
	assert_int_equal(tests_layer_rename(&l, "d", "x", 0), -ENOTEMPTY);
	assert_int_equal(tests_layer_rename(&l, "d", "x/d", 0), 0);
	check(&l, "a: one\nl -> a\nx/\nx/d/\nx/d/b: two\nx/d/e/\nx/d/e/c: three\nx/y: four\n");
	/* Again, and out of a directory that moved; the old names are free. */
	assert_int_equal(tests_layer_rename(&l, "x/d/e", "d", 0), 0);
	assert_int_equal(tests_layer_make(&l, "x/d/e", S_IFDIR), 0);
	check(&l, "a: one\nd/\nd/c: three\nl -> a\nx/\nx/d/\nx/d/b: two\nx/d/e/\nx/y: four\n");
	assert_int_equal(tests_layer_rename(&l, "d", "x/d", RENAME_EXCHANGE), 0);
	check(&l, "a: one\nd/\nd/b: two\nd/e/\nl -> a\nx/\nx/d/\nx/d/c: three\nx/y: four\n");
	/* Over an empty one, and over one that has only hidden names. */
	assert_int_equal(tests_layer_remove(&l, "x/y"), 0);
	assert_int_equal(tests_layer_rename(&l, "x/d", "d/e", 0), 0);
	assert_int_equal(tests_layer_rename(&l, "d", "x", 0), 0);
	check(&l, "a: one\nl -> a\nx/\nx/b: two\nx/e/\nx/e/c: three\n");
	tests_layer_close(&l);
}

static void test_hard_links_are_one_file(void **state)
{
	struct tests_layer l;
	struct fs_entry lower;
	struct stat one;
	struct stat two;

	open_all(&l, state);
	assert_int_equal(tests_layer_link(&l, "a", "x/a"), 0);
	assert_int_equal(tests_layer_link(&l, "a", "x/a"), -EEXIST);
	assert_int_equal(tests_layer_write(&l, "x/a", "ONE"), 0);
	check(&l, "a: ONE\nd/\nd/b: two\nd/e/\nd/e/c: three\nl -> a\nx/\nx/a: ONE\nx/y: four\n");
	assert_int_equal(fs_upper_stat(tests_layer_node(&l, "a"), &one, &lower), 0);
	assert_int_equal(fs_upper_stat(tests_layer_node(&l, "x/a"), &two, &lower), 0);
	assert_int_equal(one.st_ino, two.st_ino);
	assert_int_equal(one.st_nlink, 2);
	assert_int_equal(tests_layer_remove(&l, "a"), 0);
	check(&l, "d/\nd/b: two\nd/e/\nd/e/c: three\nl -> a\nx/\nx/a: ONE\nx/y: four\n");
	tests_layer_close(&l);
}

static void test_what_lost_its_name_lives_until_it_is_forgotten(void **state)
{
	struct tests_layer l;
	struct fs_unode *node;
	struct fs_entry lower;
	struct stat st;
	char text[8] = {0};

	open_all(&l, state);
	assert_int_equal(tests_layer_write(&l, "new", "new"), 0);
	assert_int_equal(tests_layer_write(&l, "a", "ONE"), 0);
	for (int i = 0; i < 2; i++) {
		const char *path = i ? "a" : "new";

		node = tests_layer_node(&l, path);
		assert_int_equal(tests_layer_remove(&l, path), 0);
		assert_null(tests_layer_node(&l, path));
		assert_int_equal(fs_upper_write(node, "more", 4, 0, NULL), 0);
		assert_int_equal(fs_upper_read(node, text, 4, 0), 4);
		assert_string_equal(text, "more");
		assert_int_equal(fs_upper_stat(node, &st, &lower), 0);
		assert_int_equal(st.st_nlink, 0);
	}
	/* An input that nobody had written to: it is copied for whoever has it open. */
	node = tests_layer_node(&l, "d/b");
	assert_int_equal(tests_layer_remove(&l, "d/b"), 0);
	assert_int_equal(fs_upper_is_lower(node, &lower), 1);
	assert_int_equal(fs_upper_write(node, "more", 4, 0, NULL), 0);
	assert_int_equal(fs_upper_read(node, text, 4, 0), 4);
	tests_layer_forget(&l);
	assert_int_equal(tests_count_names(tests_path(*state, "layer/w")), 0);
	check(&l, "d/\nd/e/\nd/e/c: three\nl -> a\nx/\nx/y: four\n");
	tests_layer_close(&l);
}

static void test_modes_that_would_lock_us_out_are_shown_only(void **state)
{
	static const mode_t modes[] = {0, 0444, 01777, 04755, 0200};
	struct tests_layer l;
	struct fs_entry lower;
	struct stat st;

	open_all(&l, state);
	assert_int_equal(tests_layer_write(&l, "new", "n"), 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		const struct fs_change change = {.set_mode = true, .mode = modes[i]};

		for (int k = 0; k < 3; k++) {
			static const char *const paths[] = {"new", "a", "d"};

			assert_int_equal(
				fs_upper_change(tests_layer_node(&l, paths[k]), &change, NULL), 0);
			assert_int_equal(fs_upper_stat(tests_layer_node(&l, paths[k]), &st, &lower),
					 0);
			assert_int_equal(st.st_mode & 07777, modes[i]);
		}
		tests_layer_again(&l);
		assert_int_equal(fs_upper_stat(tests_layer_node(&l, "new"), &st, &lower), 0);
		assert_int_equal(st.st_mode & 07777, modes[i]);
		assert_int_equal(fs_upper_write(tests_layer_node(&l, "new"), "m", 1, 0, NULL), 0);
	}
	tests_layer_close(&l);
}

/* What answers for the directory of the tree at @path, held; NULL: the tree. */
static struct fs_unode *place(struct tests_layer *l, const char *path)
{
	struct fs_key key = fs_key_zero;
	struct fs_entry entry;

	while (*path) {
		char name[64] = {0};
		struct fs_key next;
		size_t len = strcspn(path, "/");

		memcpy(name, path, len);
		path += len + (path[len] == '/');
		assert_int_equal(fs_key_of_path(&key, name, &next), 0);
		key = next;
	}
	if (fs_uppers_dir(l->all, 7, &key, &entry, NULL) == 0)
		return NULL;
	l->held[l->nr_held++] = entry;
	return (struct fs_unode *)(uintptr_t)entry.tag;
}

/* What @name is there: its kind, or -1. */
static int kind_in(struct tests_layer *l, struct fs_unode *dir, const char *name)
{
	struct fs_entry at = {.tag = (uint64_t)(uintptr_t)dir, .kind = FS_KIND_UPPER};
	struct fs_entry out = {0};
	const struct fs_view *view = l->held[0].view;
	int ret = view->ops->lookup(view, &at, name, &out, NULL);

	assert_true(ret >= 0);
	if (ret > 0 && out.kind == FS_KIND_UPPER)
		l->held[l->nr_held++] = out;
	return ret > 0 ? out.kind : -1;
}

static int take_stale(void *ctx, const struct fs_upper_stale *stale)
{
	FILE *out = ctx;

	(void)fprintf(out, "%s%s%s:", stale->dir, stale->whole ? " whole" : "",
		      stale->changed ? " changed" : "");
	for (size_t i = 0; i < stale->nr; i++)
		(void)fprintf(out, " %s", stale->names[i]);
	(void)fprintf(out, ";");
	return 0;
}

static void test_places_answer_for_the_tree_and_tell_what_is_stale(void **state)
{
	static const char *const outputs[] = {"d/b", "d/out", "d/e/new", "x/", NULL};
	const struct fs_making file = {.name = "out", .mode = S_IFREG | 0644, .by = {0, 0}};
	struct fs_making other = file;
	const char *const *hidden;
	struct tests_layer l;
	struct fs_entry made;
	struct fs_unode *d;
	auto_free char *stale = NULL;
	size_t nr;
	FILE *out;

	tests_layer_open(&l, *state, TREE, FS_WRITABLE_OUTPUTS, outputs);
	assert_int_equal(fs_uppers_root(l.all, 7, &made, NULL), 0);
	assert_null(place(&l, ""));
	hidden = fs_upper_hidden(l.upper, &nr);
	assert_int_equal(nr, 2);
	assert_string_equal(hidden[0], "d/b");
	assert_string_equal(hidden[1], "x");
	d = place(&l, "d");
	assert_non_null(d);
	assert_ptr_equal(d, place(&l, "d"));
	assert_non_null(place(&l, "d/e"));
	/* An output is the layer's; a place, and what is none, the tree's. */
	assert_int_equal(kind_in(&l, d, "b"), FS_KIND_UPPER);
	assert_int_equal(kind_in(&l, d, "e"), FS_KIND_DIR);
	assert_int_equal(kind_in(&l, d, "out"), -1);
	assert_int_equal(kind_in(&l, place(&l, "d/e"), "c"), FS_KIND_FILE);
	assert_int_equal(kind_in(&l, place(&l, "x"), "y"), FS_KIND_UPPER);
	/* Inputs stay, the place stays, and what is made may go. */
	assert_int_equal(fs_upper_remove(place(&l, "d/e"), "c", false, NULL), -EROFS);
	assert_int_equal(fs_upper_remove(d, "e", true, NULL), -EROFS);
	assert_int_equal(fs_upper_rename(d, "e", d, "f", 0, NULL), -EROFS);
	assert_int_equal(fs_upper_make(d, &file, &made, NULL), 0);
	l.held[l.nr_held++] = made;
	other.name = "gone";
	assert_int_equal(fs_upper_make(d, &other, &made, NULL), 0);
	l.held[l.nr_held++] = made;
	assert_int_equal(fs_upper_remove(d, "gone", false, NULL), 0);
	assert_int_equal(fs_upper_remove(d, "b", false, NULL), 0);
	assert_int_equal(kind_in(&l, d, "b"), -1);
	tests_layer_forget(&l);
	fs_upper_end(l.upper);
	out = open_memstream(&stale, &nr);
	assert_int_equal(fs_upper_each_stale(l.upper, take_stale, out), 0);
	assert_int_equal(fclose(out), 0);
	assert_string_equal(stale, "d changed: b out gone;x whole:;");
	tests_layer_close(&l);
}

static void test_a_limit_is_kept_and_freed_space_comes_back(void **state)
{
	struct tests_layer l;
	struct fs_upper_usage usage;
	char block[4096] = {1};
	struct fs_unode *node;

	tests_layer_open(&l, *state, TREE, FS_WRITABLE_ALL, none);
	l.limit = (struct fs_usage){.bytes = 8192, .files = 3};
	tests_layer_detach(&l);
	tests_layer_attach(&l, false);
	assert_int_equal(tests_layer_make(&l, "f", S_IFREG), 0);
	node = tests_layer_node(&l, "f");
	assert_int_equal(fs_upper_write(node, block, sizeof(block), 0, NULL), 0);
	assert_int_equal(fs_upper_write(node, block, sizeof(block), 1 << 20, NULL), 0);
	assert_int_equal(fs_upper_write(node, block, 1, 4096, NULL), -EDQUOT);
	assert_int_equal(fs_upper_write(node, block, sizeof(block), 0, NULL), 0);
	assert_int_equal(tests_layer_write(&l, "a", "no"), -EDQUOT);
	assert_int_equal(
		fs_upper_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096, NULL),
		0);
	assert_int_equal(tests_layer_write(&l, "a", "yes"), 0);
	assert_int_equal(tests_layer_make(&l, "dir", S_IFDIR), 0);
	assert_int_equal(tests_layer_make(&l, "more", S_IFDIR), -EDQUOT);
	/* Unlinked, but in use; then not. */
	assert_int_equal(tests_layer_remove(&l, "f"), 0);
	assert_int_equal(tests_layer_make(&l, "more", S_IFLNK), -EDQUOT);
	tests_layer_forget(&l);
	assert_int_equal(tests_layer_make(&l, "more", S_IFLNK), 0);
	tests_layer_again(&l);
	assert_int_equal(tests_layer_make(&l, "again", S_IFIFO), -EDQUOT);
	fs_upper_usage(l.upper, &usage);
	assert_int_equal(usage.peak.files, 3);
	assert_int_equal(usage.peak.bytes, 4096);
	assert_true(usage.refused_files && !usage.refused_bytes);
	tests_layer_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_an_untouched_layer_shows_the_tree_and_writes_nothing),
		TESTS_IN_DIR(test_first_write_copies_the_input_and_keeps_its_number),
		TESTS_IN_DIR(test_removed_inputs_stay_removed_and_names_can_be_had_again),
		TESTS_IN_DIR(test_renames_of_files_leave_what_was_there_hidden),
		TESTS_IN_DIR(test_renamed_directories_keep_their_inputs),
		TESTS_IN_DIR(test_hard_links_are_one_file),
		TESTS_IN_DIR(test_what_lost_its_name_lives_until_it_is_forgotten),
		TESTS_IN_DIR(test_modes_that_would_lock_us_out_are_shown_only),
		TESTS_IN_DIR(test_places_answer_for_the_tree_and_tell_what_is_stale),
		TESTS_IN_DIR(test_a_limit_is_kept_and_freed_space_comes_back),
	};

	return cmocka_run_group_tests_name("fs_upper", tests, NULL, NULL);
}
