/* cas/store/layout.c - names on disk, store version 1 */
#include "cas/store/layout.h"

#include <string.h>

void cas_layout_path(const uint8_t hash[CAS_HASH_SZ], char out[CAS_LAYOUT_PATH_SZ])
{
	cas_hash_format(hash, out + 3);
	memcpy(out, out + 3, 2);
	out[2] = '/';
}
