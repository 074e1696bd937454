/* tests/fuzz/fuzz_control.c - any line: refused with a reason, or a command of the table */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/err.h"
#include "fs/control/parse.h"

/* Options of every kind; the daemon's own table needs the whole daemon. */
static const struct control_opt opts[] = {
	{"id", CONTROL_OPT_VALUE | CONTROL_OPT_POSITIONAL | CONTROL_OPT_REQUIRED, "ID"},
	{"root", CONTROL_OPT_VALUE | CONTROL_OPT_REQUIRED, "DIGEST"},
	{"output", CONTROL_OPT_VALUE | CONTROL_OPT_MULTI, "PATH"},
	{"exit-code", CONTROL_OPT_VALUE, "N"},
	{"writable", CONTROL_OPT_VALUE, "outputs|dirs|all"},
	{"attach", 0, NULL},
	{NULL, 0, NULL},
};
static const struct control_opt no_opts[] = {{NULL, 0, NULL}};

static const struct control_command table[] = {
	{"create", "", opts, NULL, NULL},
	{"list", "", no_opts, "", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static void check_choice(const struct control_request *req)
{
	const char *value = control_get(req, "writable");

	if (value)
		FUZZ_CHECK(strcmp(value, "outputs") == 0 || strcmp(value, "dirs") == 0 ||
			   strcmp(value, "all") == 0);
}

static void check_values(const struct control_request *req)
{
	size_t nr = 0, count = 0;
	const char **values = control_values(req, "output", &nr);

	for (size_t i = 0; i < req->nr_items; i++)
		count += strcmp(req->items[i].opt->name, "output") == 0;
	FUZZ_CHECK(values == NULL || nr == count);
	for (size_t i = 0; values && i < nr; i++)
		FUZZ_CHECK(values[i] != NULL);
	free(values);
}

static void check_request(const struct control_request *req)
{
	FUZZ_CHECK(req->command == &table[0] || req->command == &table[1]);
	if (req->command == &table[1])
		FUZZ_CHECK(req->nr_items == 0);
	else
		FUZZ_CHECK(control_get(req, "id") && control_get(req, "root"));
	for (size_t i = 0; i < req->nr_items; i++) {
		const struct control_item *item = &req->items[i];

		FUZZ_CHECK((item->value != NULL) == ((item->opt->flags & CONTROL_OPT_VALUE) != 0));
		for (size_t j = 0; j < i && !(item->opt->flags & CONTROL_OPT_MULTI); j++)
			FUZZ_CHECK(req->items[j].opt != item->opt);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct control_request req = {0};
	struct err err = {0};
	int64_t number = 0;
	int ret = control_parse(table, (const char *)data, size, &req, &err);

	FUZZ_CHECK(ret == 0 || ret == -EINVAL || ret == -ENOMEM);
	if (ret == 0) {
		check_request(&req);
		check_choice(&req);
		check_values(&req);
		FUZZ_CHECK(!control_takes_long(&req) || req.command == &table[1]);
		ret = control_get_number(&req, "exit-code", -10, 10, &number, &err);
		FUZZ_CHECK(ret == 0 ? number >= -10 && number <= 10 : ret == -EINVAL);
	} else {
		FUZZ_CHECK(ret == -ENOMEM || err.msg[0] != '\0');
	}
	control_request_fini(&req);
	return 0;
}
