/* tools/bench/bench_box.c - drive the product as any client does */
#include "tools/bench/bench_box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench_env.h"

#define WARM_MS	      60000
#define WARM_PAUSE_MS 20

int bench_box_new(const struct bench_env *env, const char *dir, struct bench_box **out,
		  struct err *err)
{
	struct bench_box *box = calloc(1, sizeof(*box));
	int ret = 0;

	if (!box)
		return err_set(err, -ENOMEM, "out of memory");
	box->env = env;
	box->store = bench_text("%s/store", dir);
	box->mnt = bench_text("%s/mnt", dir);
	if (!box->store || !box->mnt)
		ret = err_set(err, -ENOMEM, "out of memory");
	if (ret == 0)
		ret = bench_mkdir(AT_FDCWD, box->mnt, err);
	if (ret < 0) {
		bench_box_free(box);
		return ret;
	}
	*out = box;
	return 0;
}

int bench_box_mount(struct bench_box *box, struct err *err)
{
	const char *argv[] = {box->env->casbox, "--store", box->store, "mount", box->mnt, NULL};
	int ret = bench_spawn_ok(argv, NULL, NULL, err);

	if (ret == 0)
		box->mounted = true;
	return ret;
}

/* Until the daemon has nothing to push any more. */
static int await_warm(struct bench_box *box, struct err *err)
{
	struct bench_channel channel = {.fd = -1};
	int ret = bench_channel_open(box, &channel, err);

	for (int left = WARM_MS / WARM_PAUSE_MS; ret == 0; left--) {
		json_t *answer = NULL;
		bool done = true;

		ret = bench_ask(&channel, &answer, err, "stats");
		if (ret == 0)
			done = json_integer_value(json_object_get(json_object_get(answer, "push"),
								  "waiting")) == 0;
		json_decref(answer);
		if (done)
			break;
		if (left == 0)
			ret = err_set(err, -ETIMEDOUT, "the lanes are not warm after %d s",
				      WARM_MS / 1000);
		(void)usleep(WARM_PAUSE_MS * 1000);
	}
	bench_channel_close(&channel);
	return ret;
}

int bench_box_mount_warm(struct bench_box *box, size_t lanes, const char *root, struct err *err)
{
	const char *help[] = {box->env->casbox, "mount", "--help", NULL};
	char number[24];
	const char *argv[] = {box->env->casbox, "--store", box->store, "mount",	 "--lanes",
			      number,		"--warm",  root,       box->mnt, NULL};
	auto_buf struct buf text = {0};
	int ret = bench_spawn_ok(help, NULL, &text, err);

	if (ret < 0)
		return ret;
	if (!strstr(buf_str(&text), "--warm"))
		return err_set(err, -EOPNOTSUPP, "'casbox mount' has no option --warm");
	(void)snprintf(number, sizeof(number), "%zu", lanes);
	ret = bench_spawn_ok(argv, NULL, NULL, err);
	if (ret < 0)
		return ret;
	box->mounted = true;
	return await_warm(box, err);
}

int bench_box_umount(struct bench_box *box, struct err *err)
{
	const char *argv[] = {box->env->casbox, "--store", box->store, "umount", box->mnt, NULL};

	box->mounted = false;
	return bench_spawn_ok(argv, NULL, NULL, err);
}

void bench_box_free(struct bench_box *box)
{
	if (!box)
		return;
	if (box->mounted)
		(void)bench_box_umount(box, NULL);
	free(box->store);
	free(box->mnt);
	free(box);
}

int bench_box_put(struct bench_box *box, const char *path, char out[CAS_DIGEST_STR_SZ],
		  struct err *err)
{
	return bench_store_put(box->env, box->store, path, out, err);
}

int bench_store_put(const struct bench_env *env, const char *store, const char *path,
		    char out[CAS_DIGEST_STR_SZ], struct err *err)
{
	const char *argv[] = {env->casbox, "--store", store, "put", path, NULL};
	auto_buf struct buf text = {0};
	struct cas_digest digest;
	int ret = bench_spawn_ok(argv, NULL, &text, err);

	if (ret < 0)
		return ret;
	if (text.len > 0 && text.data[text.len - 1] == '\n')
		text.data[text.len - 1] = '\0';
	if (cas_digest_parse(buf_str(&text), &digest) < 0)
		return err_set(err, -EPROTO, "put of %s printed '%s', which is no digest", path,
			       buf_str(&text));
	(void)cas_digest_format(&digest, '/', out);
	return 0;
}

int bench_channel_open(const struct bench_box *box, struct bench_channel *ch, struct err *err)
{
	auto_free char *path = bench_text("%s/.casbox/control", box->mnt);

	if (!path)
		return err_set(err, -ENOMEM, "out of memory");
	ch->fd = open(path, O_RDWR | O_CLOEXEC);
	if (ch->fd < 0)
		return err_set(err, -errno, "opening %s: %s", path, strerror(errno));
	return 0;
}

void bench_channel_close(struct bench_channel *ch)
{
	if (ch->fd >= 0)
		(void)close(steal_fd(&ch->fd));
	buf_fini(&ch->line);
	buf_fini(&ch->answer);
}

static int channel_write(struct bench_channel *ch)
{
	ssize_t done;

	do {
		done = write(ch->fd, ch->line.data, ch->line.len);
	} while (done < 0 && errno == EINTR);
	if (done < 0)
		return -errno;
	return (size_t)done == ch->line.len ? 0 : -EMSGSIZE;
}

static int channel_read(struct bench_channel *ch)
{
	buf_reset(&ch->answer);
	for (;;) {
		ssize_t got;
		int ret = buf_reserve(&ch->answer, 65536);

		if (ret < 0)
			return ret;
		got = read(ch->fd, ch->answer.data + ch->answer.len, 65535);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EPROTO;
		ch->answer.len += (size_t)got;
		ch->answer.data[ch->answer.len] = '\0';
		if (ch->answer.data[ch->answer.len - 1] == '\n')
			return 0;
	}
}

int bench_ask(struct bench_channel *ch, json_t **answer, struct err *err, const char *fmt, ...)
{
	auto_free char *line = NULL;
	json_t *got;
	va_list ap;
	int ret;

	va_start(ap, fmt);
	if (vasprintf(&line, fmt, ap) < 0)
		line = NULL;
	va_end(ap);
	buf_reset(&ch->line);
	if (!line || buf_append_str(&ch->line, line) < 0 || buf_append_char(&ch->line, '\n') < 0)
		return err_set(err, -ENOMEM, "out of memory");
	ret = channel_write(ch);
	if (ret == 0)
		ret = channel_read(ch);
	if (ret < 0)
		return err_set(err, ret, "control, '%s': %s", line, strerror(-ret));
	got = json_loadb(ch->answer.data, ch->answer.len, 0, NULL);
	if (!json_is_true(json_object_get(got, "ok"))) {
		json_decref(got);
		return err_set(err, -EREMOTEIO, "control, '%s': answer %s", line,
			       buf_str(&ch->answer));
	}
	if (answer)
		*answer = got;
	else
		json_decref(got);
	return 0;
}

int bench_create(struct bench_channel *ch, const char *root, const char *id, const char *options,
		 char **path, struct err *err)
{
	json_t *answer = NULL;
	const char *text;
	int ret = bench_ask(ch, &answer, err, "create --root %s --id %s %s", root, id, options);

	if (ret < 0)
		return ret;
	text = json_string_value(json_object_get(answer, "path"));
	*path = text ? strdup(text) : NULL;
	if (!*path)
		ret = err_set(err, -EPROTO, "create of %s answered no path: %s", id,
			      buf_str(&ch->answer));
	json_decref(answer);
	return ret;
}

int bench_finish(struct bench_channel *ch, const char *id, bool remove, struct cas_digest *digest,
		 struct err *err)
{
	json_t *answer = NULL;
	json_t *first;
	const char *text;
	int ret = bench_ask(ch, &answer, err, "finish %s --exit-code 0 --alone%s", id,
			    remove ? " --remove" : "");

	if (ret < 0)
		return ret;
	first = json_array_get(json_object_get(answer, "outputs"), 0);
	text = json_string_value(json_object_get(first, "digest"));
	if (digest && (!text || cas_digest_parse(text, digest) < 0))
		ret = err_set(err, -ENODATA, "finish of %s captured nothing: %s", id,
			      buf_str(&ch->answer));
	json_decref(answer);
	return ret;
}

int bench_remove(struct bench_channel *ch, const char *id, struct err *err)
{
	return bench_ask(ch, NULL, err, "remove %s --alone", id);
}

char *bench_box_path(const struct bench_box *box, const char *view, const struct cas_digest *digest)
{
	char name[CAS_DIGEST_STR_SZ];

	return bench_text("%s/%s/%s", box->mnt, view, cas_digest_format(digest, '-', name));
}

int bench_box_check_blob(const struct bench_box *box, const struct cas_digest *digest,
			 struct err *err)
{
	auto_free char *path = bench_box_path(box, "cas/file", digest);
	auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct cas_digest got;
	int ret;

	if (fd < 0)
		return err_set(err, -errno, "opening %s: %s", path ? path : "", strerror(errno));
	ret = cas_hash_fd(fd, &got);
	if (ret < 0)
		return err_set(err, ret, "reading %s: %s", path, strerror(-ret));
	if (!cas_digest_equal(&got, digest))
		return err_set(err, -EBADMSG, "%s holds other bytes than its name says", path);
	return 0;
}

int bench_scene_open(struct bench_scene *scene, const struct bench_env *env, const char *name,
		     struct err *err)
{
	int ret;

	*scene = (struct bench_scene){.env = env, .dir_fd = -1, .channel.fd = -1};
	ret = bench_dir_new(env, name, &scene->dir_fd, &scene->dir, err);
	if (ret == 0 && env->casbox)
		ret = bench_box_new(env, scene->dir, &scene->box, err);
	return ret;
}

int bench_scene_mount(struct bench_scene *scene, struct err *err)
{
	int ret;

	if (!scene->box)
		return 0;
	ret = bench_box_mount(scene->box, err);
	return ret < 0 ? ret : bench_channel_open(scene->box, &scene->channel, err);
}

int bench_scene_close(struct bench_scene *scene, int ret, struct err *err)
{
	struct err *own = ret < 0 ? NULL : err;

	bench_channel_close(&scene->channel);
	if (scene->box && scene->box->mounted) {
		int one = bench_box_umount(scene->box, own);

		ret = ret < 0 ? ret : one;
	}
	bench_box_free(scene->box);
	if (scene->dir_fd >= 0)
		(void)close(steal_fd(&scene->dir_fd));
	free(scene->dir);
	return ret;
}
