/* tests/unit/test_cas_action.c - Actions in canonical form; results and what they need */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tests/lib/store.h"

static struct cas_command command_of(char **argv, char **env, char **outputs, size_t nr)
{
	return (struct cas_command){argv, env, outputs, nr, (char *)(uintptr_t) "sub", 0};
}

static void test_order_of_env_outputs_and_platform_does_not_matter(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	char w[][8] = {"cc", "A=1", "A0=2", "B=", "x", "y"};
	char *argv[] = {w[0], NULL};
	char *env1[] = {w[1], w[2], w[3], NULL}, *env2[] = {w[3], w[2], w[1], NULL};
	char *out1[] = {w[4], w[5], NULL}, *out2[] = {w[5], w[4], w[5], NULL};
	struct cas_property p1[] = {{"OS", "linux"}, {"h", "1"}, {"h", "2"}};
	struct cas_property p2[] = {{"h", "2"}, {"OS", "linux"}, {"h", "1"}};
	struct cas_command one = command_of(argv, env1, out1, 2);
	struct cas_command two = command_of(argv, env2, out2, 3);
	struct cas_command got = {0};
	struct cas_action action = {.root = cas_digest_empty, .timeout_ms = 1500}, back;
	struct cas_digest a, b;

	assert_int_equal(cas_action_put(store, &one, &action, p1, 3, &a, NULL), 0);
	assert_int_equal(cas_action_put(store, &two, &action, p2, 3, &b, NULL), 0);
	assert_true(cas_digest_equal(&a, &b));
	assert_int_equal(cas_action_load(store, &a, &back, &got, NULL), 0);
	assert_int_equal(back.timeout_ms, 1500);
	assert_true(cas_digest_equal(&back.root, &cas_digest_empty));
	assert_string_equal(got.env[0], "A=1");
	assert_string_equal(got.env[1], "A0=2");
	assert_string_equal(got.env[2], "B=");
	assert_null(got.env[3]);
	assert_int_equal(got.nr_outputs, 2);
	assert_string_equal(got.outputs[1], "y");
	assert_string_equal(got.workdir, "sub");
	cas_command_fini(&got);
	action.timeout_ms = 0;
	assert_int_equal(cas_action_put(store, &one, &action, p1, 3, &b, NULL), 0);
	assert_false(cas_digest_equal(&a, &b));
	cas_store_close(store);
}

/* tag 2 (file) or 3 (directory) of a result, from a path and up to two digests. */
static size_t add(unsigned char *to, int tag, const char *path, int field,
		  const struct cas_digest *digest)
{
	unsigned char *p = to + 2;
	size_t len = strlen(path);

	*p++ = 0x0a;
	*p++ = (unsigned char)len;
	memcpy(p, path, len);
	p += len;
	*p++ = (unsigned char)(field << 3 | 2);
	*p++ = 68;
	*p++ = 0x0a;
	*p++ = 64;
	cas_hash_format(digest->hash, (char *)p);
	p += 64;
	*p++ = 0x10;
	*p++ = (unsigned char)digest->size; /* below 128 */
	to[0] = (unsigned char)(tag << 3 | 2);
	to[1] = (unsigned char)(p - to - 2);
	return (size_t)(p - to);
}

static void test_result_is_loaded_only_when_all_is_there(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char data[400];
	struct cas_digest file, root, tree;
	struct cas_directory *dir;
	struct cas_node node = {.kind = CAS_NODE_FILE, .name = "f", .executable = true};
	auto_buf struct buf b = {0};
	struct cas_result r;
	struct err err = {0};
	size_t len;

	assert_int_equal(cas_put_bytes(store, "hello", 5, &file, NULL), 0);
	assert_int_equal(cas_directory_new(&dir), 0);
	node.digest = file;
	assert_int_equal(cas_directory_add(dir, &node), 0);
	assert_int_equal(cas_directory_put(store, dir, &root, NULL), 0);
	cas_directory_free(dir);
	assert_int_equal(cas_tree_encode(store, &root, &b, NULL), 0);
	assert_int_equal(cas_put_bytes(store, b.data, b.len, &tree, NULL), 0);
	len = add(data, 2, "o", 2, &file);
	/* By its Tree alone, whose Directory is gone. */
	len += add(data + len, 3, "d", 3, &tree);
	assert_int_equal(unlink(tests_blob_path(*state, &root)), 0);
	assert_int_equal(cas_result_load(store, data, len, &r, &err), 0);
	assert_int_equal(r.nr, 2);
	assert_string_equal(r.outputs[0].path, "o");
	assert_int_equal(r.outputs[1].kind, CAS_OUTPUT_DIR);
	assert_true(cas_digest_equal(&r.outputs[1].digest, &root));
	assert_int_equal(cas_store_has(store, &root), 1);
	cas_result_fini(&r);

	/* By its root, in which a file is missing. */
	len = add(data, 3, "d", 5, &root);
	assert_int_equal(cas_result_load(store, data, len, &r, &err), 0);
	cas_result_fini(&r);
	assert_int_equal(unlink(tests_blob_path(*state, &file)), 0);
	assert_int_equal(cas_result_load(store, data, len, &r, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "not in the store"));
	assert_int_equal(cas_result_load(store, "\x12\x7f", 2, &r, &err), -EUCLEAN);
	cas_store_close(store);
}

static void test_paths_and_directories_are_told_as_asked(void **state)
{
	static const struct cas_result_path path = {"sub/d", "d"};
	struct cas_digest tree;
	unsigned char data[200];
	auto_buf struct buf told = {0};
	size_t len;

	(void)state;
	assert_int_equal(cas_hash_bytes("t", 1, &tree), 0);
	len = add(data, 3, "sub/d", 3, &tree);
	assert_int_equal(cas_result_shape(data, len, &path, 1, CAS_OUTPUT_BOTH, &told, NULL), 0);
	assert_int_equal(told.len, len - 4);
	buf_reset(&told);
	/* What there is not cannot be asked for. */
	assert_int_equal(cas_result_shape(data, len, NULL, 0, CAS_OUTPUT_DIRECTORY, &told, NULL),
			 0);
	assert_int_equal(told.len, len);
	assert_memory_equal(told.data, data, len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_order_of_env_outputs_and_platform_does_not_matter),
		TESTS_IN_DIR(test_result_is_loaded_only_when_all_is_there),
		TESTS_IN_DIR(test_paths_and_directories_are_told_as_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
