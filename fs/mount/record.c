/* fs/mount/record.c - STORE/run/daemon: who serves the store */
#include "fs/mount/record.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "cas/cas.h"
#include "fs/fs.h"

#define RECORD_PATH "run/daemon"
#define RECORD_MAX  65536
#define DYING_MS    2000 /* a killed process with much memory takes its time */

static int read_boot_id(struct buf *out)
{
	int ret = io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 128, out);

	if (ret == 0 && out->len > 0)
		out->data[strcspn(out->data, "\n")] = '\0';
	return ret;
}

static char *dump_record(const struct fs_daemon_record *r, const char *boot_id)
{
	struct timespec now;
	json_t *o;
	char *text;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	o = json_pack("{s:i, s:s, s:s, s:I, s:b, s:s, s:[s]}", "pid", (int)getpid(), "mountpoint",
		      r->mountpoint, "boot_id", boot_id, "start_ns",
		      (json_int_t)now.tv_sec * 1000000000 + now.tv_nsec, "automatic",
		      (int)r->automatic, "version", CASBOX_VERSION, "dev", "");
	if (o) {
		char one[32];
		char two[32];

		(void)snprintf(one, sizeof(one), "%u:%u", major(r->dev_one), minor(r->dev_one));
		(void)snprintf(two, sizeof(two), "%u:%u", major(r->dev_two), minor(r->dev_two));
		(void)json_object_set_new(o, "dev", json_pack("[s, s]", one, two));
		(void)json_object_set_new(o, "hidden", json_integer(r->hidden));
		if (r->beside)
			(void)json_object_set_new(o, "sandboxes", json_string(r->beside));
	}
	text = o ? json_dumps(o, JSON_INDENT(2) | JSON_ENSURE_ASCII) : NULL;
	json_decref(o);
	return text;
}

int fs_daemon_record_write(const struct cas_store *store, const struct fs_daemon_record *record,
			   struct err *err)
{
	auto_buf struct buf boot_id = {0};
	auto_close int run_fd = -1;
	auto_free char *text = NULL;
	int ret = read_boot_id(&boot_id);

	if (ret < 0)
		return err_set(err, ret, "cannot read the boot id: %s", strerror(-ret));
	text = dump_record(record, buf_str(&boot_id));
	if (!text)
		return err_set(err, -EINVAL, "cannot record %s: its name is not UTF-8",
			       record->mountpoint);
	ret = io_mkdir_parents(cas_store_dir_fd(store), "run", 0755);
	if (ret == 0) {
		run_fd = openat(cas_store_dir_fd(store), "run",
				O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		ret = run_fd < 0
			      ? -errno
			      : io_replace_file(run_fd, "daemon", text, strlen(text), 0644, false);
	}
	return ret < 0 ? err_set(err, ret, "cannot write %s/" RECORD_PATH ": %s",
				 cas_store_path(store), strerror(-ret))
		       : 0;
}

void fs_daemon_record_remove(const struct cas_store *store)
{
	(void)unlinkat(cas_store_dir_fd(store), RECORD_PATH, 0);
}

static json_t *read_record(const struct cas_store *store)
{
	auto_buf struct buf text = {0};

	if (io_read_file(cas_store_dir_fd(store), RECORD_PATH, RECORD_MAX, &text) < 0)
		return NULL;
	return json_loads(buf_str(&text), 0, NULL);
}

int fs_daemon_record_clear(const struct cas_store *store, struct err *err)
{
	json_t *o = read_record(store);
	const char *beside = json_string_value(json_object_get(o, "sandboxes"));
	int ret = beside ? fs_detach_dead(beside, err) : 0;

	json_decref(o);
	return ret < 0 ? ret : 0;
}

/* The recorded process, or 0; *where (caller frees) is its mount point. */
static pid_t read_holder(const struct cas_store *store, char **where)
{
	json_t *o = read_record(store);
	const char *mountpoint = json_string_value(json_object_get(o, "mountpoint"));
	pid_t pid = (pid_t)json_integer_value(json_object_get(o, "pid"));

	*where = mountpoint ? strdup(mountpoint) : NULL;
	json_decref(o);
	return pid;
}

int fs_daemon_lock(struct cas_store *store, struct err *err)
{
	auto_free char *where = NULL;
	int ret = cas_store_writer_lock(store, 0, err);
	pid_t pid;

	if (ret != -EBUSY)
		return ret;
	pid = read_holder(store, &where);
	/* Neither a new daemon nor a live one: a client writing rows, or a dying daemon. */
	if (pid <= 0 || kill(pid, 0) < 0 || pid == getpid())
		ret = cas_store_writer_lock(store, DYING_MS, err);
	if (ret == -EBUSY && pid > 0 && where)
		return err_set(err, ret, "the store %s is served already: by process %d at %s",
			       cas_store_path(store), (int)pid, where);
	if (ret == -EBUSY)
		return err_set(err, ret, "another process is writing the store %s",
			       cas_store_path(store));
	return ret;
}
