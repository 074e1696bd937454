/* cas/tier/file.c - file:///DIR: a shared directory */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/put/tmp.h"
#include "cas/store/layout.h"
#include "cas/tier/transport.h"
#include "cas/tier/url.h"

/*
 * DIR/cas/HH/HASH and DIR/ac/HH/HASH: our own layout (another casbox's store, or the
 * directory of its --blobs) and that of Bazel's disk cache alike. DIR may be a mount that
 * is away for a while, so it is opened anew for each operation, and its being away (-EAGAIN)
 * is told from a blob that it does not have.
 *
 * Nothing is ever removed or changed here. A hit of a writable DIR moves the file's mtime
 * when that is an hour old, for that is what collectors of such directories go by; but not
 * in a casbox store, whose daemon would hash the blob again and knows its own hits.
 *
 * A process cannot leave a system call on a hung NFS server: mount it soft. Whoever waits
 * for a fetch gets his answer in time all the same (cas/fetch/fetch.h), the thread does not.
 */

#define CHUNK	      262144
#define TOUCH_AGE_SEC 3600

struct file_tier {
	char *dir;
	char *name; /* for messages */
	bool touch; /* configured as writable */
};

static int file_open(const struct tier_url *url, void **ctx, struct err *err)
{
	struct file_tier *t;
	int ret;

	if (url->host[0] != '\0' || url->port != 0 || url->path[0] != '/')
		return err_set(err, -EINVAL,
			       "tier %s: a directory is file:///DIR, an absolute path", url->text);
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return -ENOMEM;
	ret = tier_url_flag(url, "write", &t->touch, err);
	t->dir = strdup(url->path);
	t->name = strdup(url->text);
	if (ret == 0 && (t->dir == NULL || t->name == NULL))
		ret = -ENOMEM;
	*ctx = t;
	return ret;
}

static void file_close(void *ctx)
{
	struct file_tier *t = ctx;

	free(t->dir);
	free(t->name);
	free(t);
}

/* What an errno of the filesystem means for a tier. */
static int translate(int ret)
{
	switch (-ret) {
	case ENOENT:
	case EACCES:
	case EROFS:
	case ENOSPC:
	case EFBIG:
	case ENOMEM:
	case ETIMEDOUT:
		return ret;
	case EPERM:
		return -EACCES;
	case EDQUOT:
		return -ENOSPC;
	case ENOTDIR:
	case ELOOP:
		return -EPROTO;
	default: /* EIO, ESTALE, EMFILE: another time it may work */
		return -EAGAIN;
	}
}

static int open_dir(const struct file_tier *t, struct err *err)
{
	int fd = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return err_set(err, -EAGAIN, "tier %s: there is no such directory", t->name);
	return err_set(err, translate(-errno), "tier %s: cannot open it: %m", t->name);
}

/* "cas/HH/HASH" or "ac/HH/HASH" */
#define NAME_SZ (4 + CAS_LAYOUT_PATH_SZ)
static void name_of(const char *kind, const struct cas_digest *digest, char out[NAME_SZ])
{
	char path[CAS_LAYOUT_PATH_SZ];

	cas_layout_path(digest->hash, path);
	(void)snprintf(out, NAME_SZ, "%s/%s", kind, path);
}

/* -ENOENT, and all that makes it no file of that many bytes. */
static int open_file(const struct file_tier *t, const char *kind, const struct cas_digest *digest,
		     struct stat *st, struct err *err)
{
	char name[NAME_SZ];
	auto_close int dir_fd = open_dir(t, err);
	auto_close int fd = -1;

	if (dir_fd < 0)
		return dir_fd;
	name_of(kind, digest, name);
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_set(err, -ENOENT, "tier %s does not have %s", t->name, name);
	if (fd < 0)
		return err_set(err, translate(-errno), "tier %s: cannot open %s: %m", t->name,
			       name);
	if (fstat(fd, st) < 0)
		return err_set(err, translate(-errno), "tier %s: cannot stat %s: %m", t->name,
			       name);
	if (!S_ISREG(st->st_mode))
		return err_set(err, -EPROTO, "tier %s: %s is no regular file", t->name, name);
	return steal_fd(&fd);
}

static int stream(const struct file_tier *t, int fd, uint64_t offset, uint64_t end,
		  const struct cas_sink *sink, struct cas_call *call, struct err *err)
{
	auto_free char *data = malloc(CHUNK);
	int ret = data ? 0 : -ENOMEM;

	while (ret == 0 && offset < end) {
		size_t len = end - offset < CHUNK ? (size_t)(end - offset) : CHUNK;
		ssize_t got = io_pread_full(fd, data, len, (off_t)offset);

		if (got <= 0)
			return err_set(err, got < 0 ? translate((int)got) : -EAGAIN,
				       "tier %s: cannot read: %s", t->name,
				       got < 0 ? strerrordesc_np((int)-got) : "it ended early");
		ret = sink->write(sink->ctx, data, (size_t)got, err);
		offset += (uint64_t)got;
		if (ret == 0)
			ret = cas_call_check(call);
	}
	return ret;
}

static int file_get(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
		    const struct cas_sink *sink, struct cas_call *call, struct err *err)
{
	const struct file_tier *t = ctx;
	struct stat st;
	auto_close int fd = open_file(t, "cas", digest, &st, err);

	if (fd < 0)
		return fd;
	if ((uint64_t)st.st_size != digest->size)
		return err_set(err, -EBADMSG, "tier %s has %lld bytes as blob %s", t->name,
			       (long long)st.st_size, CAS_DIGEST_TEXT(digest));
	return stream(t, fd, offset, len > 0 ? offset + len : digest->size, sink, call, err);
}

/* Another casbox keeps account of its own blobs, by their times among others. */
static bool is_store(int dir_fd)
{
	return faccessat(dir_fd, "VERSION", F_OK, 0) == 0;
}

static void touch(int dir_fd, const char *name, const struct stat *st)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};

	if (time(NULL) - st->st_mtim.tv_sec > TOUCH_AGE_SEC)
		(void)utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW);
}

static int file_find_missing(void *ctx, const struct cas_digest *digests, size_t nr, bool *missing,
			     struct cas_call *call, struct err *err)
{
	const struct file_tier *t = ctx;
	auto_close int dir_fd = open_dir(t, err);
	bool touches;

	if (dir_fd < 0)
		return dir_fd;
	touches = t->touch && !is_store(dir_fd);
	for (size_t i = 0; i < nr; i++) {
		char name[NAME_SZ];
		struct stat st;
		int ret = cas_call_check(call);

		if (ret < 0)
			return ret;
		name_of("cas", &digests[i], name);
		if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno != ENOENT && errno != ENOTDIR)
				return err_set(err, translate(-errno),
					       "tier %s: cannot stat %s: %m", t->name, name);
			missing[i] = true;
			continue;
		}
		missing[i] = !S_ISREG(st.st_mode) || (uint64_t)st.st_size != digests[i].size;
		if (!missing[i] && touches)
			touch(dir_fd, name, &st);
	}
	return 0;
}

/* Make cas/ and its shard; the umask decides who may write there, as in all shared caches. */
static int make_parents(int dir_fd, const char *name)
{
	char part[NAME_SZ];

	for (size_t i = 0; name[i] != '\0'; i++) {
		if (name[i] != '/')
			continue;
		(void)snprintf(part, sizeof(part), "%.*s", (int)i, name);
		if (mkdirat(dir_fd, part, 0777) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int write_source(int fd, const struct cas_source *source, uint64_t size,
			struct cas_call *call)
{
	auto_free char *data = malloc(CHUNK);
	int ret = data ? 0 : -ENOMEM;

	for (uint64_t off = 0; ret == 0 && off < size;) {
		int64_t got = tier_source_read(source, size, off, data, CHUNK);

		if (got < 0)
			return (int)got;
		ret = io_write_full(fd, data, (size_t)got);
		off += (uint64_t)got;
		cas_call_progress(call, (uint64_t)got);
		if (ret == 0)
			ret = cas_call_check(call);
	}
	return ret;
}

/* The name is free, or has another size than it should: ours takes its place. */
static int give_name(int dir_fd, const char *tmp, const char *name, uint64_t size, bool replace)
{
	struct stat st;
	int ret = replace ? -EEXIST : cas_tmp_move(dir_fd, tmp, name);

	if (ret != -EEXIST)
		return ret;
	if (!replace && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode) && (uint64_t)st.st_size == size)
		return -EEXIST;
	return renameat(dir_fd, tmp, dir_fd, name) < 0 ? -errno : 0;
}

/* A new file beside @name, complete, then that name. */
static int write_file(int dir_fd, const char *name, const struct cas_source *source, uint64_t size,
		      bool replace, struct cas_call *call)
{
	char tmp[NAME_SZ + 32];
	char rnd[17];
	auto_close int fd = -1;
	int ret = io_random_hex(rnd, 8);

	if (ret == 0)
		ret = make_parents(dir_fd, name);
	if (ret < 0)
		return ret;
	(void)snprintf(tmp, sizeof(tmp), "%.*s.tmp-%s", (int)(strrchr(name, '/') + 1 - name), name,
		       rnd);
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	ret = write_source(fd, source, size, call);
	if (ret == 0 && fchmod(fd, 0444) < 0)
		ret = -errno;
	if (ret == 0 && fdatasync(fd) < 0)
		ret = -errno;
	if (ret == 0)
		ret = give_name(dir_fd, tmp, name, size, replace);
	if (ret < 0)
		(void)unlinkat(dir_fd, tmp, 0);
	return ret == -EEXIST ? 0 : ret;
}

static int store_file(const struct file_tier *t, const char *kind, const struct cas_digest *digest,
		      const struct cas_source *source, uint64_t size, struct cas_call *call,
		      struct err *err)
{
	char name[NAME_SZ];
	auto_close int dir_fd = open_dir(t, err);
	int ret;

	if (dir_fd < 0)
		return dir_fd;
	name_of(kind, digest, name);
	ret = write_file(dir_fd, name, source, size, strcmp(kind, "ac") == 0, call);
	if (ret == -ECANCELED || ret == -ETIMEDOUT)
		return ret;
	if (ret < 0)
		return err_set(err, translate(ret), "tier %s: cannot write %s: %s", t->name, name,
			       strerrordesc_np(-ret));
	return 0;
}

static int file_put(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
		    struct cas_call *call, struct err *err)
{
	return store_file(ctx, "cas", digest, source, digest->size, call, err);
}

static int file_action_get(void *ctx, const struct cas_digest *action, struct buf *out,
			   struct cas_call *call, struct err *err)
{
	const struct file_tier *t = ctx;
	struct stat st;
	auto_close int fd = open_file(t, "ac", action, &st, err);
	ssize_t got;
	int ret;

	if (fd < 0)
		return fd;
	if (st.st_size > CAS_TIER_ACTION_MAX)
		return err_set(err, -EFBIG, "tier %s: the result of action %s has %lld bytes",
			       t->name, CAS_DIGEST_TEXT(action), (long long)st.st_size);
	ret = buf_reserve(out, (size_t)st.st_size);
	if (ret < 0)
		return ret;
	got = io_pread_full(fd, out->data + out->len, (size_t)st.st_size, 0);
	if (got < 0)
		return err_set(err, translate((int)got), "tier %s: cannot read: %s", t->name,
			       strerrordesc_np((int)-got));
	out->len += (size_t)got;
	out->data[out->len] = '\0';
	return 0;
}

static int file_action_put(void *ctx, const struct cas_digest *action, const void *data, size_t len,
			   struct cas_call *call, struct err *err)
{
	const struct cas_source source = {.fd = -1, .data = data};

	return store_file(ctx, "ac", action, &source, len, call, err);
}

static const struct tier_transport file_ops = {
	.get = file_get,
	.find_missing = file_find_missing,
	.put = file_put,
	.action_get = file_action_get,
	.action_put = file_action_put,
	.close = file_close,
};

const struct tier_scheme tier_scheme_file = {
	.scheme = "file",
	.ops = &file_ops,
	.open = file_open,
};
