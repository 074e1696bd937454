/* tests/lib/tests.h - what every unit test starts from */
#ifndef TESTS_LIB_TESTS_H
#define TESTS_LIB_TESTS_H

/* cmocka 1.1 wants these four before its own header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/*
 * A fresh directory below ${TMPDIR:-/tmp} for each test: use with
 * cmocka_unit_test_setup_teardown(test, tests_dir_setup, tests_dir_teardown); *state is
 * the absolute path (a char *). Removed afterwards, whatever its modes.
 */
int tests_dir_setup(void **state);
int tests_dir_teardown(void **state);

/*
 * The same below /dev/shm where there is one: for tests that make ten thousand names and
 * would wait for a disk's journal. The caller's TMPDIR wins.
 */
int tests_memory_dir_setup(void **state);

/* DIR/NAME in a ring of eight static buffers. */
const char *tests_path(const char *dir, const char *name);

/* Write a file (parents are made) with this mode; fails the test when it cannot. */
void tests_write_file(const char *path, const void *data, size_t len, unsigned mode);

/* The number of names in a directory, without "." and "..". */
int tests_count_names(const char *path);

#endif
