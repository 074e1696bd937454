/* tests/unit/test_fs_memory.c - what a million nodes cost */
#include "tests/lib/tests.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/inode.h"

#define NR_NODES  1000000
#define FILES_DIR 19  /* files of each directory */
#define MOST	  200 /* bytes a node */

/* By the allocator's own count; 0 when another one took its place. */
static size_t bytes_in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static struct fs_entry entry_of(enum fs_kind kind, uint64_t nr)
{
	struct fs_entry e = {.kind = (uint8_t)kind, .digest.size = 100};
	uint64_t mixed = nr * UINT64_C(0x9e3779b97f4a7c15);

	memcpy(e.key.bytes, &mixed, sizeof(mixed));
	memcpy(e.key.bytes + 8, &nr, sizeof(nr));
	memcpy(e.digest.hash, &mixed, sizeof(mixed));
	return e;
}

static uint64_t add(struct fs_inode_table *table, uint64_t dir, enum fs_kind kind, uint64_t nr)
{
	struct fs_entry entry = entry_of(kind, nr);
	struct fs_inode node;
	char name[24];

	(void)snprintf(name, sizeof(name), "component-%llu", (unsigned long long)nr);
	assert_int_equal(fs_inode_lookup(table, dir, name, &entry, &node), 0);
	return node.id;
}

static void test_million_distinct_nodes_stay_below_200_bytes_each(void **state)
{
	struct fs_entry root = {.kind = FS_KIND_DIR};
	struct fs_inode_table *table;
	size_t before = bytes_in_use();
	size_t used;

	if (before == 0)
		skip(); /* a sanitizer's allocator counts nothing */
	assert_int_equal(fs_inode_table_new(&root, &table), 0);
	for (uint64_t nr = 1; nr < NR_NODES;) {
		uint64_t dir = add(table, FS_INODE_ROOT, FS_KIND_DIR, nr++);

		for (int i = 0; i < FILES_DIR && nr < NR_NODES; i++)
			(void)add(table, dir, FS_KIND_FILE, nr++);
	}
	assert_int_equal(fs_inode_count(table), NR_NODES);
	used = bytes_in_use() - before;
	print_message("%.1f bytes a node\n", (double)used / NR_NODES);
	assert_true(used < (size_t)MOST * NR_NODES);

	/* Forgotten, they cost nothing but their buckets. */
	for (uint64_t id = FS_INODE_ROOT + 1; id <= NR_NODES; id++)
		fs_inode_forget(table, id, 1);
	assert_int_equal(fs_inode_count(table), 1);
	assert_true(bytes_in_use() - before < (size_t)40 * NR_NODES);
	fs_inode_table_free(table);
	assert_true(bytes_in_use() <= before + 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_million_distinct_nodes_stay_below_200_bytes_each),
	};

	return cmocka_run_group_tests_name("fs_memory", tests, NULL, NULL);
}
