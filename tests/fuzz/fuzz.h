/* tests/fuzz/fuzz.h - the entry point of every fuzz target */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The name is the fuzzing engines'. Returns 0; a fault aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Like assert, but in every build. */
#define FUZZ_CHECK(cond)                                                                           \
	do {                                                                                       \
		if (!(cond))                                                                       \
			__builtin_trap();                                                          \
	} while (0)

#endif
