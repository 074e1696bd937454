/* meta/index/table_i.h - uthash for keys that begin with a SHA-256 */
#ifndef META_INDEX_TABLE_I_H
#define META_INDEX_TABLE_I_H

#include <string.h>

/* The keys are random already; and running out of memory must not end the process. */
#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, len, value)                                                             \
	do {                                                                                       \
		uint32_t prefix_;                                                                  \
		memcpy(&prefix_, (key), sizeof(prefix_));                                          \
		(value) = prefix_;                                                                 \
	} while (0)

#include <uthash.h>

#endif
