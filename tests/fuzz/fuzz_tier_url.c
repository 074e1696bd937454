/* tests/fuzz/fuzz_tier_url.c - any text: refused with a reason, or a URL without a secret */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/err.h"
#include "cas/tier/url.h"

static void check_url(const struct tier_url *url)
{
	uint64_t number = 7;
	unsigned ms = 7;
	bool flag = false;
	int ret;

	FUZZ_CHECK(url->text && url->scheme && url->host && url->path);
	FUZZ_CHECK(url->scheme[0] != '\0' && url->port <= 65535);
	FUZZ_CHECK(strchr(url->text, '?') == NULL && strchr(url->host, '@') == NULL);
	FUZZ_CHECK(url->nr_options <= TIER_URL_OPTIONS_MAX);
	for (size_t i = 0; i < url->nr_options; i++) {
		const char *name = url->options[i].name;

		FUZZ_CHECK(name && url->options[i].value);
		FUZZ_CHECK(tier_url_get(url, name) == url->options[i].value);
		ret = tier_url_number(url, name, 1, 100, &number, NULL);
		FUZZ_CHECK(ret == 0 ? number >= 1 && number <= 100 : ret == -EINVAL);
		ret = tier_url_time_ms(url, name, &ms, NULL);
		FUZZ_CHECK(ret == 0 || ret == -EINVAL);
		ret = tier_url_flag(url, name, &flag, NULL);
		FUZZ_CHECK(ret == 0 || ret == -EINVAL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct tier_url url = {0};
	struct err err = {0};
	int ret;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	ret = tier_url_parse(text, &url, &err);
	FUZZ_CHECK(ret == 0 || ret == -EINVAL || ret == -ENOMEM);
	if (ret == 0)
		check_url(&url);
	else
		FUZZ_CHECK(ret == -ENOMEM || err.msg[0] != '\0');
	tier_url_fini(&url);
	free(text);
	return 0;
}
