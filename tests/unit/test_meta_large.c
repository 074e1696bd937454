/* tests/unit/test_meta_large.c - the large files of a tree */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "meta/index/large.h"
#include "meta/meta.h"
#include "tests/lib/store.h"

#define LARGE 1000

struct trees {
	struct cas_store *store;
	struct meta *meta;
	struct meta_large *large;
};

static void trees_open(struct trees *t, const char *dir)
{
	struct meta_options opts = {.mode = META_WRITER};
	struct err err = {0};

	t->store = tests_store_open(dir, NULL);
	assert_int_equal(cas_store_writer_lock(t->store, -1, &err), 0);
	assert_int_equal(meta_open(t->store, &opts, &t->meta, &err), 0);
	assert_int_equal(meta_large_new(t->meta, LARGE, &t->large), 0);
}

static void trees_close(struct trees *t)
{
	meta_large_free(t->large);
	assert_int_equal(meta_close(t->meta, NULL), 0);
	cas_store_close(t->store);
}

struct child {
	const char *name;
	uint64_t size;
	const struct cas_digest *dir; /* NULL: a file of that size */
};

static struct cas_digest put_dir(struct trees *t, const struct child *children, size_t nr)
{
	struct cas_directory *dir;
	struct cas_digest digest;

	assert_int_equal(cas_directory_new(&dir), 0);
	for (size_t i = 0; i < nr; i++) {
		struct cas_node node = {
			.kind = children[i].dir ? CAS_NODE_DIRECTORY : CAS_NODE_FILE,
			.name = children[i].name,
		};

		if (children[i].dir) {
			node.digest = *children[i].dir;
		} else {
			node.digest = cas_digest_empty;
			node.digest.hash[0] ^= (uint8_t)(i + 1);
			node.digest.size = children[i].size;
		}
		assert_int_equal(cas_directory_add(dir, &node), 0);
	}
	assert_int_equal(cas_directory_put(t->store, dir, &digest, NULL), 0);
	cas_directory_free(dir);
	return digest;
}

/* "path=size path=size", in the order of the list. */
static void expect(struct trees *t, const struct cas_digest *root, const char *want)
{
	struct meta_large_list *list;
	char got[4096] = "";

	assert_int_equal(meta_large_find(t->large, root, META_LARGE_THOROUGH, &list, NULL), 0);
	for (size_t i = 0; i < list->nr; i++)
		(void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s=%llu",
			       i ? " " : "", list->files[i].path,
			       (unsigned long long)list->files[i].size);
	assert_string_equal(got, want);
	meta_large_unref(list);
}

static void test_found_at_every_depth_largest_first(void **state)
{
	struct trees t;
	struct cas_digest deep, mid, root;

	trees_open(&t, *state);
	deep = put_dir(&t,
		       (struct child[]){
			       {"a", LARGE, NULL}, {"b", LARGE - 1, NULL}, {"c", 5 * LARGE, NULL}},
		       3);
	mid = put_dir(&t, (struct child[]){{"deep", 0, &deep}, {"small", 1, NULL}}, 2);
	root = put_dir(&t,
		       (struct child[]){{"m", 0, &mid},
					{"z", 0, &deep},
					{"top", 2 * LARGE, NULL},
					{"none", 0, &cas_digest_empty}},
		       4);
	expect(&t, &root, "m/deep/c=5000 z/c=5000 top=2000 m/deep/a=1000 z/a=1000");
	/* From what is remembered, the same. */
	expect(&t, &root, "m/deep/c=5000 z/c=5000 top=2000 m/deep/a=1000 z/a=1000");
	expect(&t, &mid, "deep/c=5000 deep/a=1000");
	expect(&t, &cas_digest_empty, "");
	trees_close(&t);
}

static void test_only_the_largest_are_kept(void **state)
{
	struct child files[META_LARGE_MAX + 10];
	char names[META_LARGE_MAX + 10][8];
	struct meta_large_list *list;
	struct cas_digest dir;
	struct trees t;

	trees_open(&t, *state);
	for (size_t i = 0; i < META_LARGE_MAX + 10; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "f%02zu", i);
		/* Neither rising nor falling. */
		files[i] = (struct child){names[i], LARGE + (i * 7) % (META_LARGE_MAX + 10), NULL};
	}
	dir = put_dir(&t, files, META_LARGE_MAX + 10);
	dir = put_dir(&t, (struct child[]){{"d", 0, &dir}}, 1);
	assert_int_equal(meta_large_find(t.large, &dir, META_LARGE_THOROUGH, &list, NULL), 0);
	assert_int_equal(list->nr, META_LARGE_MAX);
	for (size_t i = 0; i < list->nr; i++)
		assert_int_equal(list->files[i].size, LARGE + META_LARGE_MAX + 9 - i);
	assert_memory_equal(list->files[0].path, "d/f", 3);
	meta_large_unref(list);
	trees_close(&t);
}

/* A quick search gives up on what would take long, and is quick once that is known. */
static void test_a_quick_search_does_not_read_everything(void **state)
{
	struct child dirs[200];
	struct cas_digest digests[200];
	char names[200][8];
	struct meta_large_list *list;
	struct cas_digest root;
	struct trees t;
	int ret, tries = 0;

	trees_open(&t, *state);
	for (int i = 0; i < 200; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "d%03d", i);
		digests[i] =
			put_dir(&t, &(struct child){names[i], i == 150 ? 2 * LARGE : 1, NULL}, 1);
		dirs[i] = (struct child){names[i], 0, &digests[i]};
	}
	root = put_dir(&t, dirs, 200);
	/* Nothing is known of it. */
	for (int i = 0; i < 100; i++)
		assert_int_equal(meta_large_find(t.large, &root, META_LARGE_KNOWN, &list, NULL),
				 -EAGAIN);
	assert_int_equal(meta_large_find(t.large, &root, META_LARGE_QUICK, &list, NULL), -EAGAIN);
	/* Each comes further. */
	do {
		ret = meta_large_find(t.large, &root, META_LARGE_QUICK, &list, NULL);
		tries++;
	} while (ret == -EAGAIN && tries < 200);
	assert_int_equal(ret, 0);
	assert_in_range(tries, 10, 100);
	assert_int_equal(list->nr, 1);
	assert_string_equal(list->files[0].path, "d150/d150");
	meta_large_unref(list);

	/* One that shares all but one directory. */
	digests[3] = put_dir(&t, &(struct child){"new", 3 * LARGE, NULL}, 1);
	root = put_dir(&t, dirs, 200);
	assert_int_equal(meta_large_find(t.large, &root, META_LARGE_QUICK, &list, NULL), 0);
	assert_int_equal(list->nr, 2);
	assert_string_equal(list->files[0].path, "d003/new");
	meta_large_unref(list);
	trees_close(&t);
}

static void test_failures_are_told_and_nothing_is_remembered(void **state)
{
	struct meta_large_list *list = NULL;
	struct cas_digest gone = {.hash = {1}, .size = 77};
	struct cas_digest root;
	struct err err = {0};
	struct trees t;

	trees_open(&t, *state);
	root = put_dir(&t, (struct child[]){{"gone", 0, &gone}, {"f", LARGE, NULL}}, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(meta_large_find(t.large, &root, META_LARGE_THOROUGH, &list, &err),
				 -ENOENT);
		assert_null(list);
	}
	root = put_dir(&t, (struct child[]){{"f", LARGE, NULL}}, 1);
	meta_large_stop(t.large);
	assert_int_equal(meta_large_find(t.large, &root, META_LARGE_THOROUGH, &list, &err),
			 -ECANCELED);
	trees_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_found_at_every_depth_largest_first),
		TESTS_IN_DIR(test_only_the_largest_are_kept),
		TESTS_IN_DIR(test_a_quick_search_does_not_read_everything),
		TESTS_IN_DIR(test_failures_are_told_and_nothing_is_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
