/* cas/tier/secret.c - credentials, which come from files only */
#include "cas/tier/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/tier/url.h"

#define SECRET_MAX 65536

void tier_secret_wipe(struct buf *secret)
{
	if (secret->data)
		explicit_bzero(secret->data, secret->cap);
	buf_fini(secret);
}

/* The whole file, in one allocation, so that no copy is left behind. */
static int read_all(const char *path, struct buf *out, struct err *err)
{
	int ret = buf_reserve(out, SECRET_MAX + 1);

	if (ret == 0)
		ret = io_read_file(AT_FDCWD, path, SECRET_MAX, out);
	if (ret < 0)
		return err_set(err, ret, "cannot read the credentials in %s: %s", path,
			       strerrordesc_np(-ret));
	return 0;
}

/* Keep @len bytes from @start on, without blanks around them. */
static int keep(struct buf *b, const char *start, size_t len, const char *path, struct err *err)
{
	while (len > 0 && (*start == ' ' || *start == '\t')) {
		start++;
		len--;
	}
	while (len > 0 && strchr(" \t\r", start[len - 1]))
		len--;
	if (len == 0)
		return err_set(err, -EINVAL, "there are no credentials in %s", path);
	for (size_t i = 0; i < len; i++) {
		if (start[i] < ' ' || start[i] > '~')
			return err_set(err, -EINVAL, "the credentials in %s are no printable ASCII",
				       path);
	}
	memmove(b->data, start, len);
	explicit_bzero(b->data + len, b->cap - len);
	b->len = len;
	return 0;
}

int tier_secret_read(const char *path, struct buf *out, struct err *err)
{
	int ret = read_all(path, out, err);

	return ret < 0 ? ret : keep(out, out->data, strcspn(buf_str(out), "\n"), path, err);
}

int tier_secret_read_key(const char *path, const char *name, struct buf *out, struct err *err)
{
	size_t name_len = strlen(name);
	const char *line;
	int ret = read_all(path, out, err);

	if (ret < 0)
		return ret;
	for (line = buf_str(out); *line != '\0'; line += *line == '\n') {
		size_t len = strcspn(line, "\n");
		const char *p = line + strspn(line, " \t");

		if (strncmp(p, name, name_len) == 0) {
			p += name_len;
			p += strspn(p, " \t");
			if (*p == '=')
				return keep(out, p + 1, (size_t)(line + len - (p + 1)), path, err);
		}
		line += len;
	}
	return err_set(err, -ENOENT, "%s has no line \"%s = ...\"", path, name);
}

int tier_secret_open(const struct tier_url *url, const char *name, char **path, struct err *err)
{
	const char *value = tier_url_get(url, name);
	auto_secret struct buf secret = {0};
	int ret;

	*path = NULL;
	if (value == NULL)
		return 0;
	if (value[0] != '/')
		return err_set(err, -EINVAL, "tier %s: %s is an absolute path of a file", url->text,
			       name);
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return err_set(err, -errno, "cannot keep this process from leaving cores: %m");
	ret = tier_secret_read(value, &secret, err);
	if (ret < 0)
		return err_context(err, ret, "tier %s", url->text);
	*path = strdup(value);
	return *path ? 0 : -ENOMEM;
}
