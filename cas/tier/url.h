/* cas/tier/url.h - the URL of a tier, taken apart */
#ifndef CAS_TIER_URL_H
#define CAS_TIER_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

#define TIER_URL_OPTIONS_MAX 16

/*
 * scheme://host[:port]/path?name=value&name=value. Immutable. Every string is
 * percent-decoded and there ("" when absent); @path has no slash at its ends but for the
 * first of a file's.
 */
struct tier_url {
	char *text; /* without the options: what messages call the tier */
	char *scheme;
	char *host;    /* with brackets for an IPv6 address */
	unsigned port; /* 0: none given */
	char *path;
	size_t nr_options;
	struct tier_url_option {
		char *name;
		char *value;
	} options[TIER_URL_OPTIONS_MAX];
};

/*
 * -EINVAL: not of that form, a control character, an option twice, or user:password@ (a
 * URL is seen by everybody, so credentials are named by file only).
 */
int tier_url_parse(const char *text, struct tier_url *out, struct err *err);
void tier_url_fini(struct tier_url *url);

/* The value of an option, or NULL. */
const char *tier_url_get(const struct tier_url *url, const char *name);

/* As get, for numbers, lengths of time (30s, 500ms, 2m) and yes or no. -EINVAL, 0. */
int tier_url_number(const struct tier_url *url, const char *name, uint64_t low, uint64_t high,
		    uint64_t *value, struct err *err);
int tier_url_time_ms(const struct tier_url *url, const char *name, unsigned *value,
		     struct err *err);
int tier_url_flag(const struct tier_url *url, const char *name, bool *value, struct err *err);

#endif
