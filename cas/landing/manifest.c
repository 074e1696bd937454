/* cas/landing/manifest.c - which blob each file of a landing is */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/hash.h"
#include "cas/landing/landing_i.h"

/*
 * A header, the rows, and the SHA-256 of both; numbers as this machine has them, for no other
 * will read them. A row is followed by its path, a NUL, and zeros up to a multiple of eight.
 */

#define MAGIC	     "casbox landing 1"
#define MANIFEST_MAX ((size_t)1 << 30)
#define BOOT_SZ	     40

struct header {
	char magic[sizeof(MAGIC)];
	char boot_id[BOOT_SZ];
	uint64_t nr;
};

struct wire_row {
	uint8_t hash[CAS_HASH_SZ];
	uint64_t size;
	uint64_t dev;
	uint64_t ino;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint64_t path_sz; /* with its NUL and zeros */
};

/* Empty: unknown, and no other is equal to that. */
static void get_boot_id(char out[BOOT_SZ])
{
	auto_buf struct buf text = {0};

	memset(out, 0, BOOT_SZ);
	if (io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", BOOT_SZ - 1, &text) < 0)
		return;
	memcpy(out, text.data, text.len);
}

static int add_row(struct buf *out, const struct cas_landing_row *row)
{
	static const char zeros[8];
	size_t len = strlen(row->path) + 1;
	size_t pad = (8 - len % 8) % 8;
	struct wire_row wire = {
		.size = row->digest.size,
		.dev = row->dev,
		.ino = row->ino,
		.mtime_ns = row->mtime_ns,
		.ctime_ns = row->ctime_ns,
		.path_sz = len + pad,
	};
	int ret;

	memcpy(wire.hash, row->digest.hash, CAS_HASH_SZ);
	ret = buf_append(out, &wire, sizeof(wire));
	if (ret == 0)
		ret = buf_append(out, row->path, len);
	return ret < 0 ? ret : buf_append(out, zeros, pad);
}

int cas_manifest_format(const struct cas_landing_row *rows, size_t nr, struct buf *out)
{
	struct header head = {.magic = MAGIC, .nr = nr};
	struct cas_digest sum;
	int ret;

	get_boot_id(head.boot_id);
	ret = buf_append(out, &head, sizeof(head));
	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = add_row(out, &rows[i]);
	if (ret == 0)
		ret = cas_hash_bytes(out->data, out->len, &sum);
	return ret < 0 ? ret : buf_append(out, sum.hash, CAS_HASH_SZ);
}

/* Below upper/: no way out of it. */
static bool is_path(const char *path)
{
	while (*path != '\0') {
		size_t len = strcspn(path, "/");

		if (len == 0 || strncmp(path, ".", len) == 0 || strncmp(path, "..", len) == 0)
			return false;
		path += len;
		if (*path == '/' && *++path == '\0')
			return false;
	}
	return true;
}

/* The row at @at, and where the next is; 0: it is none. */
static size_t take_row(const struct buf *text, size_t at, size_t end, struct cas_landing_row *out)
{
	struct wire_row wire;
	const char *path = text->data + at + sizeof(wire);

	if (end - at < sizeof(wire))
		return 0;
	memcpy(&wire, text->data + at, sizeof(wire));
	at += sizeof(wire);
	if (wire.path_sz < 8 || wire.path_sz % 8 != 0 || wire.path_sz > end - at ||
	    path[0] == '\0' || path[wire.path_sz - 1] != '\0' || !is_path(path) || wire.size == 0)
		return 0;
	*out = (struct cas_landing_row){
		.digest.size = wire.size,
		.dev = wire.dev,
		.ino = wire.ino,
		.mtime_ns = wire.mtime_ns,
		.ctime_ns = wire.ctime_ns,
		.path = path,
	};
	memcpy(out->digest.hash, wire.hash, CAS_HASH_SZ);
	return at + wire.path_sz;
}

static int parse(const struct buf *text, struct cas_manifest *out)
{
	size_t end = text->len - CAS_HASH_SZ;
	size_t at = sizeof(struct header);
	char boot_id[BOOT_SZ];
	struct header head;
	struct cas_digest sum;

	if (text->len < at + CAS_HASH_SZ)
		return -EUCLEAN;
	memcpy(&head, text->data, sizeof(head));
	if (memcmp(head.magic, MAGIC, sizeof(MAGIC)) != 0 ||
	    head.nr > text->len / sizeof(struct wire_row) ||
	    cas_hash_bytes(text->data, end, &sum) < 0 ||
	    memcmp(sum.hash, text->data + end, CAS_HASH_SZ) != 0)
		return -EUCLEAN;
	get_boot_id(boot_id);
	out->same_boot = boot_id[0] != '\0' && memcmp(boot_id, head.boot_id, BOOT_SZ) == 0;
	out->rows = calloc(head.nr + 1, sizeof(*out->rows));
	if (out->rows == NULL)
		return -ENOMEM;
	for (out->nr = 0; out->nr < head.nr; out->nr++) {
		at = take_row(text, at, end, &out->rows[out->nr]);
		if (at == 0)
			return -EUCLEAN;
	}
	return at == end ? 0 : -EUCLEAN;
}

int cas_manifest_parse(struct buf *text, struct cas_manifest *out)
{
	int ret;

	*out = (struct cas_manifest){.text = *text};
	*text = (struct buf){0};
	ret = parse(&out->text, out);
	if (ret < 0)
		cas_manifest_fini(out);
	return ret;
}

int cas_manifest_read(int fd, struct cas_manifest *out)
{
	auto_buf struct buf text = {0};
	struct stat st;
	ssize_t got;
	int ret = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (size_t)st.st_size > MANIFEST_MAX)
		return -EUCLEAN;
	ret = buf_reserve(&text, (size_t)st.st_size);
	if (ret < 0)
		return ret;
	got = io_pread_full(fd, text.data, (size_t)st.st_size, 0);
	if (got < 0)
		return (int)got;
	text.len = (size_t)got;
	return cas_manifest_parse(&text, out);
}

void cas_manifest_fini(struct cas_manifest *m)
{
	free(m->rows);
	buf_fini(&m->text);
	*m = (struct cas_manifest){0};
}
