/* cas/base/err_name.c - the names of error numbers */
#include <string.h>

#include "cas/base/err.h"

const char *err_name(int code)
{
	const char *name = strerrorname_np(code < 0 ? -code : code);

	return name ? name : "EUNKNOWN";
}
