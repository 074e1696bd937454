/* tests/lib/store.h - a store inside a test's directory */
#ifndef TESTS_LIB_STORE_H
#define TESTS_LIB_STORE_H

#include <stddef.h>

struct cas_catalog;
struct cas_digest;
struct cas_store;

#define TESTS_IN_DIR(test)                                                                         \
	cmocka_unit_test_setup_teardown(test, tests_dir_setup, tests_dir_teardown)

/* Open DIR/store, making it when missing, without durability; fails the test otherwise. */
struct cas_store *tests_store_open(const char *dir, const struct cas_catalog *catalog);

/* DIR/store/cas/HH/HASH, in the ring of tests_path. */
const char *tests_blob_path(const char *dir, const struct cas_digest *digest);

/* All names in all shards, temporaries too; quarantined files are not counted. */
int tests_count_blobs(const char *dir);

/* The blob opens and holds exactly these bytes. */
void tests_assert_blob(struct cas_store *store, const struct cas_digest *digest, const void *data,
		       size_t len);

/* @len bytes that look random and are the same each time for one @seed; free them. */
unsigned char *tests_noise(size_t len, unsigned seed);

/*
 * A catalog in memory that remembers stamps and the order of uses, for one store of a
 * test; any thread. Rows can be counted and forgotten.
 */
struct tests_catalog;
struct tests_catalog *tests_catalog_new(void);
void tests_catalog_free(struct tests_catalog *c);
const struct cas_catalog *tests_catalog_ops(struct tests_catalog *c);
int tests_catalog_count(struct tests_catalog *c);
/* From now on it claims to know every blob, as a ledger does. */
void tests_catalog_believe(struct tests_catalog *c);
void tests_catalog_forget(struct tests_catalog *c);
/* How often a row was added, over all digests: each stands for one hash or publish. */
int tests_catalog_adds(struct tests_catalog *c);

#endif
