/* tests/unit/test_cas_directory.c - Directories: test vectors, canonical form, hostile bytes (C17)
 */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "cas/base/arena_i.h"
#include "cas/reapi/directory.h"
#include "cas/reapi/directory_i.h"

#define HEX "106b6bf6e953adcfda77f9ac275b7780added4fbe2f56b7558141a6af42c5f82"

/* A writer of raw protobuf records, for messages that our encoder would refuse. */

static void put_varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		assert_int_equal(buf_append_char(b, (char)(v | 0x80)), 0);
	assert_int_equal(buf_append_char(b, (char)v), 0);
}

static void put_bytes(struct buf *b, unsigned field, const void *data, size_t len)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, len);
	assert_int_equal(buf_append(b, data, len), 0);
}

static void put_num(struct buf *b, unsigned field, uint64_t v)
{
	put_varint(b, field << 3);
	put_varint(b, v);
}

/* A FileNode (list 1) or DirectoryNode (list 2). */
static void put_node(struct buf *b, unsigned list, const char *name, size_t len, const char *hash,
		     uint64_t size)
{
	auto_buf struct buf node = {0};
	auto_buf struct buf digest = {0};

	put_bytes(&digest, 1, hash, strlen(hash));
	if (size)
		put_num(&digest, 2, size);
	if (len)
		put_bytes(&node, 1, name, len);
	put_bytes(&node, 2, digest.data, digest.len);
	put_bytes(b, list, node.data, node.len);
}

static void put_link(struct buf *b, const char *name, const char *target, size_t len)
{
	auto_buf struct buf node = {0};

	put_bytes(&node, 1, name, strlen(name));
	if (len)
		put_bytes(&node, 2, target, len);
	put_bytes(b, 3, node.data, node.len);
}

static void assert_refused(const struct buf *b, const char *reason)
{
	struct err err = {0};
	struct cas_directory *dir = (void *)&err;

	assert_int_equal(cas_directory_decode(b->data, b->len, &dir, &err), -EUCLEAN);
	assert_ptr_equal(dir, &err);
	if (strstr(err.msg, reason) == NULL)
		fail_msg("'%s' does not say '%s'", err.msg, reason);
}

static struct cas_directory *assert_accepted(const struct buf *b)
{
	struct err err = {0};
	struct cas_directory *dir = NULL;
	auto_buf struct buf again = {0};
	struct cas_digest digest;
	struct cas_digest expect;

	if (cas_directory_decode(b->data, b->len, &dir, &err) < 0)
		fail_msg("refused: %s", err.msg);
	assert_int_equal(cas_directory_encode(dir, &again, &digest, &err), 0);
	assert_int_equal(again.len, b->len);
	assert_memory_equal(buf_str(&again), buf_str(b), b->len);
	assert_int_equal(cas_hash_bytes(buf_str(b), b->len, &expect), 0);
	assert_true(cas_digest_equal(&digest, &expect));
	return dir;
}

static struct cas_node file_node(const char *name, const char *content, bool executable)
{
	struct cas_node n = {.kind = CAS_NODE_FILE, .name = name, .executable = executable};

	assert_int_equal(cas_hash_bytes(content, strlen(content), &n.digest), 0);
	return n;
}

static void assert_encodes_as(struct cas_directory *dir, const char *digest)
{
	auto_buf struct buf out = {0};
	struct err err = {0};
	struct cas_digest got;

	assert_int_equal(buf_append_str(&out, "before"), 0);
	assert_int_equal(cas_directory_encode(dir, &out, &got, &err), 0);
	assert_string_equal(CAS_DIGEST_TEXT(&got), digest);
	assert_int_equal(out.len, 6 + got.size);
	assert_memory_equal(out.data, "before", 6);
}

static void test_vectors_of_the_protocol_page_hold(void **state)
{
	struct cas_directory *dir;
	struct cas_node n;

	(void)state;
	assert_int_equal(cas_directory_new(&dir), 0);
	n = file_node("hello.txt", "hello\n", false);
	assert_int_equal(cas_directory_add(dir, &n), 0);
	assert_encodes_as(dir,
			  "106b6bf6e953adcfda77f9ac275b7780added4fbe2f56b7558141a6af42c5f82/83");
	cas_directory_free(dir);

	assert_int_equal(cas_directory_new(&dir), 0);
	n = file_node("run.sh", "#!/bin/sh\nexit 0\n", true);
	assert_int_equal(cas_directory_add(dir, &n), 0);
	assert_encodes_as(dir,
			  "d5873ed4f79dd3bf3b56bdab97764c7a0767c2213ead29bf446c58362e4f20ff/82");
	cas_directory_free(dir);

	/* Added in an order that is not the canonical one. */
	assert_int_equal(cas_directory_new(&dir), 0);
	n = (struct cas_node){.kind = CAS_NODE_SYMLINK, .name = "link", .target = "bin/run.sh"};
	assert_int_equal(cas_directory_add(dir, &n), 0);
	n = (struct cas_node){.kind = CAS_NODE_DIRECTORY, .name = "bin"};
	assert_int_equal(
		cas_digest_parse(
			"d5873ed4f79dd3bf3b56bdab97764c7a0767c2213ead29bf446c58362e4f20ff/82",
			&n.digest),
		0);
	assert_int_equal(cas_directory_add(dir, &n), 0);
	n = file_node("hello.txt", "hello\n", false);
	assert_int_equal(cas_directory_add(dir, &n), 0);
	n = file_node("empty", "", false);
	assert_int_equal(cas_directory_add(dir, &n), 0);
	assert_encodes_as(dir,
			  "3f340cb4cd08abe210440d8f0a5fcfacef8a3a71b15ae4ecaf2b8f30e2a79034/257");
	cas_directory_free(dir);
}

static void test_empty_directory_is_the_empty_blob(void **state)
{
	struct cas_directory *dir = NULL;

	(void)state;
	assert_int_equal(cas_directory_decode(NULL, 0, &dir, NULL), 0);
	assert_int_equal(dir->nr_nodes, 0);
	assert_null(cas_directory_find(dir, "a"));
	assert_encodes_as(dir,
			  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/0");
	cas_directory_free(dir);
}

static void test_nodes_are_sorted_over_all_kinds_and_found(void **state)
{
	auto_buf struct buf b = {0};
	struct cas_directory *dir;

	(void)state;
	put_node(&b, 1, "b", 1, HEX, 83);
	put_node(&b, 1, "\xc3\xa9", 2, HEX, 83);
	put_node(&b, 2, "..config", 8, HEX, 83);
	put_node(&b, 2, "c", 1, HEX, 83);
	put_link(&b, "\n", "/etc", 4);
	put_link(&b, "a", "../../..", 8);
	dir = assert_accepted(&b);
	assert_int_equal(dir->nr_nodes, 6);
	assert_string_equal(dir->nodes[0].name, "\n");
	assert_string_equal(dir->nodes[1].name, "..config");
	assert_string_equal(dir->nodes[2].name, "a");
	assert_string_equal(dir->nodes[5].name, "\xc3\xa9");
	assert_ptr_equal(cas_directory_find(dir, "c"), &dir->nodes[4]);
	assert_int_equal(cas_directory_find(dir, "c")->kind, CAS_NODE_DIRECTORY);
	assert_int_equal(cas_directory_find(dir, "c")->digest.size, 83);
	assert_string_equal(cas_directory_find(dir, "a")->target, "../../..");
	assert_null(cas_directory_find(dir, "bb"));
	assert_null(cas_directory_find(dir, ""));
	cas_directory_free(dir);
}

static void test_c17_bad_names_are_refused(void **state)
{
	static char longest[CAS_NAME_MAX + 2];
	static const struct {
		const char *name;
		size_t len;
		const char *reason;
	} bad[] = {
		{"", 0, "empty name"},
		{".", 1, "reserved"},
		{"..", 2, "reserved"},
		{"a/b", 3, "slash"},
		{"/x", 2, "slash"},
		{"a\0b", 3, "NUL"},
		{longest, CAS_NAME_MAX + 1, "longer than 255"},
		{"\xff\xfe", 2, "not UTF-8"},
		{"\xed\xa0\x80", 3, "not UTF-8"},
		{"\xc0\xaf", 2, "not UTF-8"},
	};

	(void)state;
	memset(longest, 'n', sizeof(longest) - 1);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (unsigned list = 1; list <= 2; list++) {
			auto_buf struct buf b = {0};

			put_node(&b, list, bad[i].name, bad[i].len, HEX, 83);
			assert_refused(&b, bad[i].reason);
		}
		assert_int_equal(cas_name_check(bad[i].name, bad[i].len), -EINVAL);
	}
	assert_int_equal(cas_name_check(longest, CAS_NAME_MAX), 0);
	assert_int_equal(cas_name_check("..config", 8), 0);
	assert_int_equal(cas_name_check("...", 3), 0);
	assert_int_equal(cas_name_check("\n", 1), 0);
	assert_int_equal(cas_name_check("\xf0\x9f\x98\x80", 4), 0);
}

static void test_c17_names_twice_or_unsorted_are_refused(void **state)
{
	static const char *const pairs[][2] = {{"a", "a"}, {"b", "a"}, {"a\xc3\xa9", "aa"}};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		for (unsigned list = 1; list <= 2; list++) {
			auto_buf struct buf b = {0};

			put_node(&b, list, pairs[i][0], strlen(pairs[i][0]), HEX, 83);
			put_node(&b, list, pairs[i][1], strlen(pairs[i][1]), HEX, 83);
			assert_refused(&b, i == 0 ? "twice" : "not sorted");
		}
		auto_buf struct buf l = {0};

		put_link(&l, pairs[i][0], "t", 1);
		put_link(&l, pairs[i][1], "t", 1);
		assert_refused(&l, i == 0 ? "twice" : "not sorted");
	}
}

static void test_c17_one_name_as_two_kinds_is_refused(void **state)
{
	auto_buf struct buf fd = {0};
	auto_buf struct buf fl = {0};
	auto_buf struct buf dl = {0};

	(void)state;
	put_node(&fd, 1, "a", 1, HEX, 83);
	put_node(&fd, 1, "b", 1, HEX, 83);
	put_node(&fd, 2, "a", 1, HEX, 83);
	assert_refused(&fd, "twice");
	put_node(&fl, 1, "z", 1, HEX, 83);
	put_link(&fl, "z", "t", 1);
	assert_refused(&fl, "twice");
	put_node(&dl, 2, "z", 1, HEX, 83);
	put_link(&dl, "z", "t", 1);
	assert_refused(&dl, "twice");
}

static void test_c17_bad_digests_are_refused(void **state)
{
	static const struct {
		const char *hash;
		uint64_t size;
		const char *reason;
	} bad[] = {
		{"106B6BF6E953ADCFDA77F9AC275B7780ADDED4FBE2F56B7558141A6AF42C5F82", 83, "64"},
		{"106b6bf6", 83, "64"},
		{HEX "00", 83, "64"},
		{"", 83, "64"},
		{HEX, (uint64_t)-1, "negative"},
		{HEX, (uint64_t)1 << 63, "negative"},
		{HEX, 0, "does not belong"},
		{"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 103,
		 "does not belong"}, /* C29 */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (unsigned list = 1; list <= 2; list++) {
			auto_buf struct buf b = {0};

			put_node(&b, list, "a", 1, bad[i].hash, bad[i].size);
			assert_refused(&b, bad[i].reason);
		}
	}
	auto_buf struct buf b = {0};

	put_node(&b, 1, "a", 1, HEX, INT64_MAX);
	cas_directory_free(assert_accepted(&b));
}

static void test_c17_bad_link_targets_are_refused(void **state)
{
	static char longest[CAS_TARGET_MAX + 2];
	auto_buf struct buf empty = {0};
	auto_buf struct buf nul = {0};
	auto_buf struct buf too_long = {0};
	auto_buf struct buf fits = {0};

	(void)state;
	memset(longest, 't', sizeof(longest) - 1);
	put_link(&empty, "a", "", 0);
	assert_refused(&empty, "empty");
	put_link(&nul, "a", "x\0y", 3);
	assert_refused(&nul, "NUL");
	put_link(&too_long, "a", longest, CAS_TARGET_MAX + 1);
	assert_refused(&too_long, "longer than 4095");
	put_link(&fits, "a", longest, CAS_TARGET_MAX);
	cas_directory_free(assert_accepted(&fits));
}

/* Each of these unpacks without complaint in protobuf-c. */
static void test_c17_other_encodings_of_a_directory_are_refused(void **state)
{
	auto_buf struct buf good = {0};
	struct buf b = {0};

	(void)state;
	put_node(&good, 1, "a", 1, HEX, 83);

	assert_int_equal(buf_append(&b, good.data, good.len), 0);
	put_num(&b, 9, 1);
	assert_refused(&b, "unknown field 9");

	buf_reset(&b);
	put_node(&b, 2, "d", 1, HEX, 83);
	assert_int_equal(buf_append(&b, good.data, good.len), 0);
	assert_refused(&b, "canonical");

	/* is_executable: false on the wire, then 2 for true, then twice. */
	for (int i = 0; i < 3; i++) {
		buf_reset(&b);
		assert_int_equal(buf_append(&b, good.data, good.len), 0);
		b.data[1] = (char)(b.data[1] + (i == 2 ? 4 : 2));
		put_num(&b, 4, i == 0 ? 0 : i == 1 ? 2 : 1);
		if (i == 2)
			put_num(&b, 4, 1);
		assert_refused(&b, "canonical");
	}

	/* An overlong varint as the record's length. */
	buf_reset(&b);
	assert_int_equal(buf_append_char(&b, 0x0a), 0);
	assert_int_equal(buf_append_char(&b, (char)(good.data[1] | 0x80)), 0);
	assert_int_equal(buf_append_char(&b, 0), 0);
	assert_int_equal(buf_append(&b, good.data + 2, good.len - 2), 0);
	assert_refused(&b, "canonical");
	buf_fini(&b);
}

static void test_c17_truncated_and_random_bytes_are_refused(void **state)
{
	auto_buf struct buf good = {0};
	auto_buf struct buf b = {0};

	(void)state;
	put_node(&good, 1, "a", 1, HEX, 83);
	for (size_t len = 1; len < good.len; len++) {
		buf_reset(&b);
		assert_int_equal(buf_append(&b, good.data, len), 0);
		assert_refused(&b, "malformed");
	}
	buf_reset(&b);
	assert_int_equal(buf_append(&b, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11), 0);
	assert_refused(&b, "");
	buf_reset(&b);
	assert_int_equal(buf_append_str(&b, "#!/bin/sh\nexit 0\n"), 0);
	assert_refused(&b, "");
	/* A node without a digest, or with an unknown field in it. */
	buf_reset(&b);
	assert_int_equal(buf_append(&b, "\x0a\x03\x0a\x01g", 5), 0);
	assert_refused(&b, "no digest");
}

static void test_a_message_of_tiny_fields_costs_bounded_memory(void **state)
{
	auto_buf struct buf b = {0};

	(void)state;
	for (int i = 0; i < 300000; i++)
		assert_int_equal(buf_append(&b, "\x0a\x00", 2), 0);
	assert_refused(&b, "proportion");
}

static void test_node_properties_survive(void **state)
{
	static const struct cas_property other[] = {{"b", "2"}, {"a", "1"}, {"b", "1"}};
	struct cas_node n = file_node("f", "x", true);
	struct cas_directory *dir;
	struct cas_directory *again;
	auto_buf struct buf raw = {0};
	struct cas_digest digest;

	(void)state;
	n.props = (struct cas_properties){.has_mtime = true,
					  .mtime_sec = -5,
					  .mtime_nsec = 999999999,
					  .has_mode = true,
					  .mode = 0750,
					  .nr_other = 3,
					  .other = other};
	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &n), 0);
	n = (struct cas_node){.kind = CAS_NODE_SYMLINK, .name = "l", .target = "f"};
	n.props.has_mtime = true;
	assert_int_equal(cas_directory_add(dir, &n), 0);
	n = file_node("g", "x", false);
	n.props.bare = true;
	assert_int_equal(cas_directory_add(dir, &n), 0);
	dir->props.has_mode = true;
	assert_int_equal(cas_directory_encode(dir, &raw, &digest, NULL), 0);
	cas_directory_free(dir);

	again = assert_accepted(&raw);
	assert_int_equal(again->nodes[0].props.mtime_sec, -5);
	assert_int_equal(again->nodes[0].props.mtime_nsec, 999999999);
	assert_int_equal(again->nodes[0].props.mode, 0750);
	assert_int_equal(again->nodes[0].props.nr_other, 3);
	assert_string_equal(again->nodes[0].props.other[0].name, "a");
	assert_string_equal(again->nodes[0].props.other[1].value, "2");
	assert_string_equal(again->nodes[0].props.other[2].value, "1");
	assert_true(again->nodes[1].props.bare);
	assert_true(again->nodes[2].props.has_mtime);
	assert_false(again->nodes[2].props.has_mode);
	assert_true(again->props.has_mode);
	assert_int_equal(again->props.mode, 0);
	cas_directory_free(again);
}

static void test_bad_node_properties_are_refused(void **state)
{
	auto_buf struct buf b = {0};

	(void)state;
	/* node_properties 5 { mtime 2 { nanos 2: 1000000000 } } */
	assert_int_equal(buf_append(&b, "\x2a\x08\x12\x06\x10\x80\x94\xeb\xdc\x03", 10), 0);
	assert_refused(&b, "nanoseconds");
	buf_reset(&b);
	/* properties "b" then "a" */
	assert_int_equal(buf_append(&b,
				    "\x2a\x0a\x0a\x03\x0a\x01"
				    "b\x0a\x03\x0a\x01"
				    "a",
				    12),
			 0);
	assert_refused(&b, "not sorted");
}

static void test_encode_refuses_what_no_directory_holds(void **state)
{
	static const char *const names[] = {"", ".", "..", "a/b", "\xff"};
	auto_buf struct buf out = {0};
	struct cas_digest digest = {.size = 77};
	struct err err = {0};
	struct cas_directory *dir;
	struct cas_node n;

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(cas_directory_new(&dir), 0);
		n = file_node(names[i], "x", false);
		assert_int_equal(cas_directory_add(dir, &n), 0);
		assert_int_equal(cas_directory_encode(dir, &out, &digest, &err), -EINVAL);
		cas_directory_free(dir);
	}
	assert_string_equal(err.msg, "name '\\xff' is not UTF-8");
	assert_int_equal(cas_directory_new(&dir), 0);
	n = file_node("a", "x", false);
	assert_int_equal(cas_directory_add(dir, &n), 0);
	n = (struct cas_node){.kind = CAS_NODE_SYMLINK, .name = "a", .target = "t"};
	assert_int_equal(cas_directory_add(dir, &n), 0);
	assert_int_equal(cas_directory_encode(dir, &out, &digest, &err), -EEXIST);
	cas_directory_free(dir);
	assert_int_equal(out.len, 0);
	assert_int_equal(digest.size, 77);
}

static void test_200000_entries_are_no_matter(void **state)
{
	struct cas_directory *dir;
	struct cas_directory *again;
	auto_buf struct buf raw = {0};
	struct cas_digest digest;
	struct cas_node n = file_node("", "x", false);
	char name[32];

	(void)state;
	assert_int_equal(cas_directory_new(&dir), 0);
	for (unsigned i = 0; i < 200000; i++) {
		(void)snprintf(name, sizeof(name), "n%06u", (i * 7919) % 200000);
		n.name = name;
		n.kind = i % 3 == 0 ? CAS_NODE_DIRECTORY : CAS_NODE_FILE;
		assert_int_equal(cas_directory_add(dir, &n), 0);
	}
	assert_int_equal(cas_directory_encode(dir, &raw, &digest, NULL), 0);
	again = assert_accepted(&raw);
	assert_int_equal(again->nr_nodes, 200000);
	assert_string_equal(again->nodes[123456].name, "n123456");
	assert_ptr_equal(cas_directory_find(again, "n199999"), &again->nodes[199999]);
	cas_directory_free(dir);
	cas_directory_free(again);
}

/* 1: read without the library, and to the same; 0: left to it. */
static int assert_read_alike(const struct buf *b)
{
	struct cas_directory *want = NULL;
	struct cas_arena arena = {0};
	struct cas_node *nodes = NULL;
	size_t nr = 0;
	int plain = cas_directory_read_plain(b->data, b->len, &arena, &nodes, &nr);
	int ret = cas_directory_decode_any(b->data, b->len, &want, NULL);

	assert_true(plain == 0 || (plain == 1 && ret == 0));
	if (plain == 1) {
		assert_int_equal(nr, want->nr_nodes);
		assert_false(want->props.has_mtime || want->props.has_mode ||
			     want->props.nr_other || want->props.bare);
	}
	for (size_t i = 0; plain == 1 && i < nr; i++) {
		const struct cas_node *a = &nodes[i];
		const struct cas_node *n = &want->nodes[i];

		assert_int_equal(a->kind, n->kind);
		assert_int_equal(a->executable, n->executable);
		assert_string_equal(a->name, n->name);
		assert_string_equal(a->target ? a->target : "", n->target ? n->target : "");
		assert_memory_equal(&a->digest, &n->digest, sizeof(a->digest));
		assert_memory_equal(&a->props, &n->props, sizeof(a->props));
		assert_false(n->props.has_mtime || n->props.bare);
	}
	free(nodes);
	cas_arena_fini(&arena);
	cas_directory_free(want);
	return plain;
}

static void encode_nodes(const struct cas_node *nodes, size_t nr, struct buf *out)
{
	struct cas_directory *dir;
	struct cas_digest digest;

	assert_int_equal(cas_directory_new(&dir), 0);
	for (size_t i = 0; i < nr; i++)
		assert_int_equal(cas_directory_add(dir, &nodes[i]), 0);
	assert_int_equal(cas_directory_encode(dir, out, &digest, NULL), 0);
	cas_directory_free(dir);
}

/* Every byte of a Directory with each kind of entry becomes every other, goes, or is doubled. */
static void test_plain_reader_accepts_what_the_library_does_and_the_same(void **state)
{
	struct cas_node nodes[] = {
		file_node("a", "", false),
		file_node("c", "some", true),
		{.kind = CAS_NODE_DIRECTORY, .name = "b", .digest = cas_digest_empty},
		{.kind = CAS_NODE_DIRECTORY, .name = "d", .digest = cas_digest_empty},
		{.kind = CAS_NODE_SYMLINK, .name = "ab", .target = "c"},
		{.kind = CAS_NODE_SYMLINK, .name = "e\xc3\xa4", .target = "../x"},
	};
	auto_buf struct buf b = {0};
	size_t nr_plain = 0;

	(void)state;
	nodes[1].digest.size = 300;
	nodes[3].digest.hash[0] ^= 1;
	nodes[3].digest.size = INT64_MAX;
	encode_nodes(nodes, 6, &b);
	assert_int_equal(assert_read_alike(&b), 1);
	for (size_t i = 0; i < b.len; i++) {
		auto_buf struct buf other = {0};

		for (int to = 0; to < 256; to++) {
			buf_reset(&other);
			assert_int_equal(buf_append(&other, b.data, b.len), 0);
			other.data[i] = (char)to;
			nr_plain += (size_t)assert_read_alike(&other);
		}
		buf_reset(&other);
		assert_int_equal(buf_append(&other, b.data, i), 0);
		nr_plain += (size_t)assert_read_alike(&other);
		assert_int_equal(buf_append(&other, b.data + i + 1, b.len - i - 1), 0);
		nr_plain += (size_t)assert_read_alike(&other);
		buf_reset(&other);
		assert_int_equal(buf_append(&other, b.data, i + 1), 0);
		assert_int_equal(buf_append(&other, b.data + i, b.len - i), 0);
		nr_plain += (size_t)assert_read_alike(&other);
	}
	/* Another digit of a hash, another letter of a name: there are many of those. */
	assert_true(nr_plain > b.len);
}

/* Each kind alone, each pair, empty lists between; what has properties, or is large, is not. */
static void test_plain_reader_knows_each_kind_alone(void **state)
{
	const struct cas_node all[] = {
		file_node("f", "x", true),
		{.kind = CAS_NODE_DIRECTORY, .name = "d", .digest = cas_digest_empty},
		{.kind = CAS_NODE_SYMLINK, .name = "l", .target = "f"},
	};
	struct cas_node dated = file_node("t", "x", false);
	auto_buf struct buf b = {0};
	struct cas_arena arena = {0};
	struct cas_node *nodes;
	size_t nr;

	(void)state;
	for (unsigned set = 1; set < 8; set++) {
		struct cas_node some[3];

		nr = 0;
		for (unsigned i = 0; i < 3; i++) {
			if (set & 1U << i)
				some[nr++] = all[i];
		}
		buf_reset(&b);
		encode_nodes(some, nr, &b);
		assert_int_equal(assert_read_alike(&b), 1);
	}
	dated.props.has_mtime = true;
	buf_reset(&b);
	encode_nodes(&dated, 1, &b);
	assert_int_equal(cas_directory_read_plain(b.data, b.len, &arena, &nodes, &nr), 0);
	assert_int_equal(cas_directory_read_plain(NULL, 0, &arena, &nodes, &nr), 0);
	cas_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors_of_the_protocol_page_hold),
		cmocka_unit_test(test_empty_directory_is_the_empty_blob),
		cmocka_unit_test(test_nodes_are_sorted_over_all_kinds_and_found),
		cmocka_unit_test(test_c17_bad_names_are_refused),
		cmocka_unit_test(test_c17_names_twice_or_unsorted_are_refused),
		cmocka_unit_test(test_c17_one_name_as_two_kinds_is_refused),
		cmocka_unit_test(test_c17_bad_digests_are_refused),
		cmocka_unit_test(test_c17_bad_link_targets_are_refused),
		cmocka_unit_test(test_c17_other_encodings_of_a_directory_are_refused),
		cmocka_unit_test(test_c17_truncated_and_random_bytes_are_refused),
		cmocka_unit_test(test_a_message_of_tiny_fields_costs_bounded_memory),
		cmocka_unit_test(test_node_properties_survive),
		cmocka_unit_test(test_bad_node_properties_are_refused),
		cmocka_unit_test(test_encode_refuses_what_no_directory_holds),
		cmocka_unit_test(test_plain_reader_accepts_what_the_library_does_and_the_same),
		cmocka_unit_test(test_plain_reader_knows_each_kind_alone),
		cmocka_unit_test(test_200000_entries_are_no_matter),
	};

	return cmocka_run_group_tests_name("cas_directory", tests, NULL, NULL);
}
