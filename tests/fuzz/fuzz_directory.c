/* tests/fuzz/fuzz_directory.c - any bytes: refused, or a Directory that encodes to the same */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "cas/reapi/directory.h"

static void check_nodes(const struct cas_directory *dir)
{
	for (size_t i = 0; i < dir->nr_nodes; i++) {
		const struct cas_node *node = &dir->nodes[i];

		FUZZ_CHECK(cas_name_check(node->name, strlen(node->name)) == 0);
		FUZZ_CHECK(i == 0 || strcmp(node[-1].name, node->name) < 0);
		FUZZ_CHECK(cas_directory_find(dir, node->name) == node);
		if (node->kind == CAS_NODE_SYMLINK)
			FUZZ_CHECK(node->target[0] != '\0');
		else
			FUZZ_CHECK(cas_digest_is_empty(&node->digest) == (node->digest.size == 0));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf struct buf again = {0};
	struct cas_directory *dir = NULL;
	struct cas_digest digest;
	struct cas_digest expect;
	struct err err = {0};
	int ret = cas_directory_decode(data, size, &dir, &err);

	FUZZ_CHECK(ret == 0 || ret == -EUCLEAN || ret == -ENOMEM);
	FUZZ_CHECK((ret == 0) == (dir != NULL));
	FUZZ_CHECK(ret == 0 || ret == -ENOMEM || err.msg[0] != '\0');
	if (ret < 0)
		return 0;
	check_nodes(dir);
	FUZZ_CHECK(cas_directory_encode(dir, &again, &digest, &err) == 0);
	FUZZ_CHECK(again.len == size && memcmp(buf_str(&again), data, size) == 0);
	FUZZ_CHECK(cas_hash_bytes(data, size, &expect) == 0);
	FUZZ_CHECK(cas_digest_equal(&digest, &expect));
	cas_directory_free(dir);
	return 0;
}
