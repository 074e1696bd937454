/* tools/cli_text.c - digests and names, in and out; caught signals */
#include "tools/cli.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"

int cli_digest(struct cli *cli, struct cas_store *store, const char *text, struct cas_digest *out,
	       struct err *err)
{
	uint8_t hash[CAS_HASH_SZ];
	int ret;

	if (cas_digest_parse(text, out) == 0)
		return 0;
	if (cas_hash_parse(text, strlen(text), hash))
		return cli_usage(cli, err,
				 "'%.200s' is no digest: give HASH/SIZE with 64 lower-case "
				 "digits, or a known HASH",
				 text);
	ret = cas_store_resolve(store, hash, out);
	if (ret == 1)
		return 0;
	if (ret == 0)
		return err_set(err, -ENOENT, "no blob with hash %s in %s", text,
			       cas_store_path(store));
	return err_set(err, ret, "cannot look up %s: %s", text, strerror(-ret));
}

void cli_warn(const struct cli *cli, const char *fmt, ...)
{
	char msg[ERR_MSG_SZ];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "casbox%s%s: %s\n", cli->command ? " " : "",
		      cli->command ? cli->command->name : "", msg);
}

void cli_print_name(FILE *out, const char *name)
{
	if (!isatty(fileno(out))) {
		(void)fputs(name, out);
		return;
	}
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if (c == '\n')
			(void)fputs("\\n", out);
		else if (c == '\t')
			(void)fputs("\\t", out);
		else if (c < 0x20 || c == 0x7f)
			(void)fprintf(out, "\\x%02x", c);
		else
			(void)fputc(c, out);
	}
}

int cli_print_json(json_t *value)
{
	int ret = 0;

	if (!value)
		return -ENOMEM;
	if (json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY))
		ret = -EIO;
	(void)fputc('\n', stdout);
	json_decref(value);
	return ret;
}

/* The length of the valid UTF-8 sequence at @s, or 0. */
static size_t utf8_len(const unsigned char *s)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32_t c;

	if (len <= 1)
		return len;
	c = s[0] & (0x7fU >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = (c << 6) | (s[i] & 0x3fU);
	}
	if ((len == 3 && c < 0x800) || (len == 4 && (c < 0x10000 || c > 0x10ffff)) ||
	    (c >= 0xd800 && c < 0xe000) || s[0] > 0xf4)
		return 0;
	return len;
}

static int set_string(json_t *object, const char *key, const char *suffix, const char *value)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "%s%s", key, suffix);
	return json_object_set_new(object, name, json_string(value)) ? -ENOMEM : 0;
}

int cli_json_set_bytes(json_t *object, const char *key, const char *bytes)
{
	auto_buf struct buf text = {0};
	auto_buf struct buf hex = {0};
	const unsigned char *s = (const unsigned char *)bytes;
	bool valid = true;
	int ret = 0;

	while (*s && ret == 0) {
		size_t len = utf8_len(s);

		valid = valid && len > 0;
		ret = len ? buf_append(&text, s, len) : buf_append_str(&text, "\xef\xbf\xbd");
		s += len ? len : 1;
	}
	if (ret == 0)
		ret = set_string(object, key, "", buf_str(&text));
	for (s = (const unsigned char *)bytes; *s && !valid && ret == 0; s++)
		ret = buf_printf(&hex, "%02x", *s);
	if (ret || valid)
		return ret;
	return set_string(object, key, "_hex", buf_str(&hex));
}

static _Atomic bool *caught_flag;
static volatile sig_atomic_t caught;

static void on_signal(int signum)
{
	if (!caught)
		caught = signum;
	atomic_store_explicit(caught_flag, true, memory_order_relaxed);
}

void cli_catch_signals(_Atomic bool *cancel)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	/* SA_RESETHAND: who asks twice means it. */
	struct sigaction act = {.sa_handler = on_signal,
				.sa_flags = SA_RESTART | (int)SA_RESETHAND};
	struct sigaction old;

	caught_flag = cancel;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &act, NULL);
	}
}

int cli_caught(void)
{
	return caught;
}

_Noreturn void cli_die_of(int signum)
{
	sigset_t set;

	(void)fflush(NULL);
	(void)signal(signum, SIG_DFL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, signum);
	(void)raise(signum);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	_exit(128 + signum);
}
