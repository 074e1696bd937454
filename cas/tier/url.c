/* cas/tier/url.c - the URL of a tier, taken apart */
#include "cas/tier/url.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/err.h"

#define URL_MAX 4096

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The byte of the escape at @text, or NUL when it is none. */
static char unescape(const char *text, size_t len)
{
	int high = len >= 3 ? hex_digit(text[1]) : -1;
	int low = len >= 3 ? hex_digit(text[2]) : -1;

	return high < 0 || low < 0 ? '\0' : (char)(high * 16 + low);
}

/* @len bytes with %XX decoded; a NUL or a broken escape is -EINVAL. */
static int decode(const char *text, size_t len, char **out)
{
	char *to = malloc(len + 1);
	size_t n = 0;

	if (to == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '%') {
			c = unescape(text + i, len - i);
			i += 2;
		}
		if (c == '\0') {
			free(to);
			return -EINVAL;
		}
		to[n++] = c;
	}
	to[n] = '\0';
	*out = to;
	return 0;
}

void tier_url_fini(struct tier_url *url)
{
	free(url->text);
	free(url->scheme);
	free(url->host);
	free(url->path);
	for (size_t i = 0; i < url->nr_options; i++) {
		free(url->options[i].name);
		free(url->options[i].value);
	}
	*url = (struct tier_url){0};
}

static int parse_option(const char *text, size_t len, struct tier_url *out)
{
	const char *equals = memchr(text, '=', len);
	size_t name_len = equals ? (size_t)(equals - text) : len;
	struct tier_url_option *o = &out->options[out->nr_options];
	int ret;

	if (name_len == 0 || out->nr_options == TIER_URL_OPTIONS_MAX)
		return -EINVAL;
	ret = decode(text, name_len, &o->name);
	if (ret < 0)
		return ret;
	if (tier_url_get(out, o->name) != NULL)
		ret = -EINVAL;
	if (ret == 0)
		ret = decode(equals ? equals + 1 : "", equals ? len - name_len - 1 : 0, &o->value);
	if (ret < 0) {
		free(o->name);
		o->name = NULL;
		return ret;
	}
	out->nr_options++;
	return 0;
}

static int parse_options(const char *text, struct tier_url *out)
{
	int ret = 0;

	while (*text != '\0' && ret == 0) {
		size_t len = strcspn(text, "&");

		ret = parse_option(text, len, out);
		text += len;
		if (*text == '&')
			text++;
	}
	return ret;
}

/* host or [address], and :port */
static int parse_authority(const char *text, size_t len, struct tier_url *out)
{
	size_t host_len = 0;
	unsigned long port = 0;
	int ret;

	if (memchr(text, '@', len) != NULL)
		return -EINVAL;
	if (len > 0 && text[0] == '[') {
		const char *end = memchr(text, ']', len);

		if (end == NULL)
			return -EINVAL;
		host_len = (size_t)(end + 1 - text);
	} else {
		while (host_len < len && text[host_len] != ':')
			host_len++;
	}
	if (host_len < len) {
		if (text[host_len] != ':' || len - host_len < 2 || len - host_len > 6)
			return -EINVAL;
		for (size_t i = host_len + 1; i < len; i++) {
			if (text[i] < '0' || text[i] > '9')
				return -EINVAL;
			port = port * 10 + (unsigned long)(text[i] - '0');
		}
		if (port == 0 || port > 65535)
			return -EINVAL;
	}
	out->port = (unsigned)port;
	ret = decode(text, host_len, &out->host);
	/* Else it would be something else where a URL is made of it again. */
	return ret == 0 && out->host[strcspn(out->host, "@/?#%\\ ")] != '\0' ? -EINVAL : ret;
}

static int parse_path(const char *text, size_t len, struct tier_url *out)
{
	bool is_file = strcmp(out->scheme, "file") == 0;

	while (len > 1 && text[len - 1] == '/')
		len--;
	while (len > 0 && text[0] == '/' && !(is_file && (len == 1 || text[1] != '/'))) {
		text++;
		len--;
	}
	return decode(text, len, &out->path);
}

static int parse_parts(const char *text, struct tier_url *out)
{
	const char *colon = strstr(text, "://");
	const char *authority;
	const char *path;
	const char *query;
	int ret;

	if (colon == NULL || colon == text)
		return -EINVAL;
	query = text + strcspn(text, "?");
	authority = colon + 3;
	if (authority > query)
		return -EINVAL;
	path = authority + strcspn(authority, "/?");
	out->scheme = strndup(text, (size_t)(colon - text));
	out->text = strndup(text, (size_t)(query - text));
	if (out->scheme == NULL || out->text == NULL)
		return -ENOMEM;
	ret = parse_authority(authority, (size_t)(path - authority), out);
	if (ret == 0)
		ret = parse_path(path, (size_t)(query - path), out);
	if (ret == 0 && *query == '?')
		ret = parse_options(query + 1, out);
	return ret;
}

int tier_url_parse(const char *text, struct tier_url *out, struct err *err)
{
	struct tier_url url = {0};
	int ret = strlen(text) > URL_MAX ? -EINVAL : 0;

	for (const char *p = text; *p != '\0' && ret == 0; p++) {
		if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == '#')
			ret = -EINVAL;
	}
	if (ret == 0)
		ret = parse_parts(text, &url);
	if (ret < 0) {
		tier_url_fini(&url);
		/* It may hold a password, so it is not repeated. */
		return err_set(err, ret,
			       "a tier is SCHEME://HOST/PATH?OPTION=VALUE&..., without spaces, '#' "
			       "or credentials");
	}
	*out = url;
	return 0;
}

const char *tier_url_get(const struct tier_url *url, const char *name)
{
	for (size_t i = 0; i < url->nr_options; i++) {
		if (strcmp(url->options[i].name, name) == 0)
			return url->options[i].value;
	}
	return NULL;
}

/* Decimal digits, and *rest after them. */
static int parse_digits(const char *text, uint64_t *value, const char **rest)
{
	uint64_t v = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (v > UINT64_MAX / 10 - 1)
			return -EINVAL;
		v = v * 10 + (uint64_t)(*text - '0');
	}
	*value = v;
	*rest = text;
	return 0;
}

int tier_url_number(const struct tier_url *url, const char *name, uint64_t low, uint64_t high,
		    uint64_t *value, struct err *err)
{
	const char *text = tier_url_get(url, name);
	const char *rest = "";
	uint64_t v = 0;

	if (text == NULL)
		return 0;
	if (parse_digits(text, &v, &rest) < 0 || *rest != '\0' || v < low || v > high)
		return err_set(err, -EINVAL, "tier %s: %s is a number from %llu to %llu", url->text,
			       name, (unsigned long long)low, (unsigned long long)high);
	*value = v;
	return 0;
}

int tier_url_time_ms(const struct tier_url *url, const char *name, unsigned *value, struct err *err)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
	const char *text = tier_url_get(url, name);
	const char *rest = "";
	uint64_t v = 0;

	if (text == NULL)
		return 0;
	if (parse_digits(text, &v, &rest) == 0) {
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
			if (strcmp(rest, units[i].name) != 0 || v == 0 ||
			    v > 86400000 / units[i].ms)
				continue;
			*value = (unsigned)(v * units[i].ms);
			return 0;
		}
	}
	return err_set(err, -EINVAL, "tier %s: %s is a time as 500ms, 30s or 2m, up to a day",
		       url->text, name);
}

int tier_url_flag(const struct tier_url *url, const char *name, bool *value, struct err *err)
{
	const char *text = tier_url_get(url, name);

	if (text == NULL)
		return 0;
	if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		return err_set(err, -EINVAL, "tier %s: %s is yes or no", url->text, name);
	*value = strcmp(text, "yes") == 0;
	return 0;
}
