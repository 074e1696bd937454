/* tests/fuzz/fuzz_action.c - any bytes: refused, or an Action or Command that can be run */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/reapi/action.h"

static void check_command(const struct cas_command *c)
{
	FUZZ_CHECK(c->argv[0] && c->argv[0][0] != '\0');
	FUZZ_CHECK(c->workdir[0] != '/' && strstr(c->workdir, "//") == NULL);
	for (char **v = c->env; *v; v++)
		FUZZ_CHECK(strchr(*v, '=') > *v);
	for (size_t i = 0; i < c->nr_outputs; i++)
		FUZZ_CHECK(c->outputs[i] && c->outputs[i][0] != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct cas_result_path paths[] = {{"a", "b"}, {"", "x/y"}};
	auto_buf struct buf told = {0};
	struct cas_command command = {0};
	struct cas_action action = {0};
	struct err err = {0};
	int ret = cas_command_decode(data, size, &command, &err);

	FUZZ_CHECK(ret == 0 || (ret == -EUCLEAN && err.msg[0] != '\0') || ret == -ENOMEM);
	if (ret == 0)
		check_command(&command);
	cas_command_fini(&command);
	ret = cas_action_decode(data, size, &action, &err);
	FUZZ_CHECK(ret == 0 || ret == -EUCLEAN);
	ret = cas_result_shape(data, size, paths, 2, CAS_OUTPUT_TREE, &told, &err);
	FUZZ_CHECK(ret == 0 || ret == -EUCLEAN || ret == -ENOMEM);
	return 0;
}
