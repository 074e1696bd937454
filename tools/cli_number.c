/* tools/cli_number.c - sizes, times and numbers as people type them */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "tools/cli.h"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/*
 * Decimal digits with an optional fraction, times @unit per whole. Without strtod, which
 * reads what the locale says. *end is what follows.
 */
static int parse_scaled(const char *text, const char **end, uint64_t unit, uint64_t *out)
{
	uint64_t whole = 0, part = 0, scale = 1;

	if (!is_digit(*text))
		return -EINVAL;
	for (; is_digit(*text); text++) {
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
			return -EINVAL;
	}
	if (*text == '.' && is_digit(text[1])) {
		for (text++; is_digit(*text); text++) {
			if (scale >= 1000000)
				continue;
			part = part * 10 + (uint64_t)(*text - '0');
			scale *= 10;
		}
	}
	*end = text;
	if (__builtin_mul_overflow(whole, unit, &whole))
		return -EINVAL;
	part = (uint64_t)((unsigned __int128)part * unit / scale);
	if (__builtin_add_overflow(whole, part, &whole))
		return -EINVAL;
	*out = whole;
	return 0;
}

struct unit {
	const char *name;
	uint64_t value;
};

static int parse_with_unit(const char *text, const struct unit *units, uint64_t *out)
{
	const char *end = text;

	while (is_digit(*end) || *end == '.')
		end++;
	for (; units->name; units++) {
		const char *stop = NULL;
		uint64_t value = 0;

		if (strcmp(units->name, end) != 0)
			continue;
		if (parse_scaled(text, &stop, units->value, &value) || stop != end)
			return -EINVAL;
		*out = value;
		return 0;
	}
	return -EINVAL;
}

int cli_parse_size(const char *text, uint64_t *out)
{
	static const struct unit units[] = {
		{"", 1},
		{"B", 1},
		{"K", 1ULL << 10},
		{"KiB", 1ULL << 10},
		{"M", 1ULL << 20},
		{"MiB", 1ULL << 20},
		{"G", 1ULL << 30},
		{"GiB", 1ULL << 30},
		{"T", 1ULL << 40},
		{"TiB", 1ULL << 40},
		{"P", 1ULL << 50},
		{"PiB", 1ULL << 50},
		{"KB", 1000},
		{"MB", 1000000},
		{"GB", 1000000000},
		{"TB", 1000000000000},
		{"k", 1ULL << 10},
		{"m", 1ULL << 20},
		{"g", 1ULL << 30},
		{"t", 1ULL << 40},
		{NULL, 0},
	};
	uint64_t value = 0;

	if (parse_with_unit(text, units, &value) || value > INT64_MAX)
		return -EINVAL;
	*out = value;
	return 0;
}

int cli_parse_duration(const char *text, uint64_t *out_ms)
{
	static const struct unit units[] = {
		{"", 1000},	{"s", 1000},	 {"ms", 1}, {"m", 60000},
		{"h", 3600000}, {"d", 86400000}, {NULL, 0},
	};
	uint64_t value = 0;

	if (parse_with_unit(text, units, &value) || value > INT_MAX * 1000ULL)
		return -EINVAL;
	*out_ms = value;
	return 0;
}

int cli_parse_number(const char *text, int *out)
{
	const char *end = NULL;
	uint64_t value = 0;

	if (parse_scaled(text, &end, 1, &value) || *end != '\0' || value > INT_MAX ||
	    strchr(text, '.'))
		return -EINVAL;
	*out = (int)value;
	return 0;
}
