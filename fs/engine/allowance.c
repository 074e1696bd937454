/* fs/engine/allowance.c - how much a sandbox may write, and who sees to it */

/*
 * Where the filesystem that the layers lie in counts by project, their directories become
 * a project of their own, and what is made in them is too. Else a tmpfs of that size is
 * mounted over the place of the layers. Either way statfs tells what is used; and outputs
 * are copied, since a blob may neither count for a project nor come from another
 * filesystem by renaming. What we serve ourselves fs/upper counts.
 */
#include "fs/engine/allowance.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/quota.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/quota.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cas/cas.h"
#include "cas/reapi/action.h"
#include "fs/engine/engine.h"
#include "fs/engine/meter.h"
#include "fs/sandbox/sandbox_i.h"

#define PROJECT_FIRST 0x40000000U /* below are people's */
#define PROJECT_TRIES 64
#define PERMILLE_NEAR 900 /* of a limit: writes that did not fit may have been cut */

#ifndef PRJQUOTA
#define PRJQUOTA 2
#endif

static const char *const keeper_names[] = {
	[FS_KEEPER_NONE] = "none",
	[FS_KEEPER_QUOTA] = "quota",
	[FS_KEEPER_TMPFS] = "tmpfs",
	[FS_KEEPER_SERVED] = "served",
};

static bool is_limited(const struct fs_allowance *a)
{
	return a->bytes > 0 || a->files > 0;
}

/* Does anybody have to look at what is used? */
static bool is_metered(const struct fs_allowance *a)
{
	return a->keeper == FS_KEEPER_QUOTA || a->keeper == FS_KEEPER_TMPFS;
}

/* --- project quota --- */

static int quota_call(int fd, int cmd, uint32_t id, void *addr)
{
	return syscall(SYS_quotactl_fd, fd, QCMD(cmd, PRJQUOTA), id, addr) < 0 ? -errno : 0;
}

/* A project that nobody has: without limits and without anything in it. */
static int choose_project(int fd, uint32_t *out)
{
	uint32_t id = 0;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return -EIO;
	for (int i = 0; i < PROJECT_TRIES; i++) {
		struct dqblk q = {0};
		int ret;

		id = PROJECT_FIRST | (id + 1) % PROJECT_FIRST;
		ret = quota_call(fd, Q_GETQUOTA, id, &q);
		if (ret < 0 && ret != -ESRCH && ret != -ENOENT)
			return ret;
		if (ret < 0 || (q.dqb_bhardlimit == 0 && q.dqb_ihardlimit == 0 &&
				q.dqb_curspace == 0 && q.dqb_curinodes == 0)) {
			*out = id;
			return 0;
		}
	}
	return -EBUSY;
}

/* Does the filesystem at @fd count by project, and refuse? */
static bool has_quota(int fd)
{
	struct dqinfo info;

	return quota_call(fd, Q_GETINFO, 0, &info) == 0;
}

static int join_project(int dir_fd, const char *name, uint32_t project)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct fsxattr x;

	if (fd < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0)
		return -errno;
	x.fsx_projid = project;
	x.fsx_xflags |= FS_XFLAG_PROJINHERIT;
	return ioctl(fd, FS_IOC_FSSETXATTR, &x) < 0 ? -errno : 0;
}

/* What pool.c makes beforehand; the rest comes to be below it. */
static const char *const prepared[] = {"upper", "upper/0", "upper/0/u", "upper/0/w"};

static int begin_quota(int dir_fd, struct fs_allowance *a)
{
	int ret = has_quota(dir_fd) ? choose_project(dir_fd, &a->project) : -EOPNOTSUPP;

	for (size_t i = 0; ret == 0 && i < sizeof(prepared) / sizeof(prepared[0]); i++)
		ret = join_project(dir_fd, prepared[i], a->project);
	a->keeper = ret == 0 ? FS_KEEPER_QUOTA : FS_KEEPER_NONE;
	return ret;
}

static int set_quota(int fd, const struct fs_allowance *a, struct err *err)
{
	struct dqblk q = {.dqb_valid = QIF_BLIMITS | QIF_ILIMITS};
	struct dqblk now = {0};
	int ret = quota_call(fd, Q_GETQUOTA, a->project, &now);

	if (a->bytes > 0)
		q.dqb_bhardlimit =
			(now.dqb_curspace + a->bytes + QIF_DQBLKSIZE - 1) >> QIF_DQBLKSIZE_BITS;
	if (a->files > 0)
		q.dqb_ihardlimit = now.dqb_curinodes + a->files;
	if (ret == 0)
		ret = quota_call(fd, Q_SETQUOTA, a->project, &q);
	return ret < 0 ? err_set(err, ret, "cannot set the quota of project %u: %s", a->project,
				 strerror(-ret))
		       : 0;
}

/* --- tmpfs --- */

static int set_option(int fs_fd, const char *key, uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return fsconfig(fs_fd, FSCONFIG_SET_STRING, key, text, 0) < 0 ? -errno : 0;
}

static int mount_tmpfs(int dir_fd)
{
	auto_close int fs_fd = fsopen("tmpfs", FSOPEN_CLOEXEC);
	auto_close int mount_fd = -1;

	if (fs_fd < 0 || fsconfig(fs_fd, FSCONFIG_SET_STRING, "source", "casbox", 0) < 0 ||
	    fsconfig(fs_fd, FSCONFIG_SET_STRING, "mode", "755", 0) < 0 ||
	    fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount_fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (mount_fd < 0 || move_mount(mount_fd, "", dir_fd, "upper", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

static int begin_tmpfs(int dir_fd, struct fs_allowance *a, struct err *err)
{
	int ret = mount_tmpfs(dir_fd);

	if (ret < 0)
		return err_set(err, -EOPNOTSUPP,
			       "--max-output cannot be kept: the store's filesystem has no project "
			       "quota that we may set, and no tmpfs can be mounted: %s",
			       strerror(-ret));
	a->keeper = FS_KEEPER_TMPFS;
	for (size_t i = 1; ret == 0 && i < sizeof(prepared) / sizeof(prepared[0]); i++)
		ret = fs_engine_mkdir(dir_fd, prepared[i], err);
	return ret;
}

static int set_tmpfs(int fd, const struct fs_allowance *a, struct err *err)
{
	auto_close int fs_fd = fspick(fd, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
	struct fs_usage now;
	int ret = fs_usage_get(fd, &now, err);

	if (ret < 0)
		return ret;
	ret = fs_fd < 0 ? -errno : 0;
	if (ret == 0)
		ret = set_option(fs_fd, "size", a->bytes ? now.bytes + a->bytes : 0);
	if (ret == 0)
		ret = set_option(fs_fd, "nr_inodes", a->files ? now.files + a->files : 0);
	if (ret == 0 && fsconfig(fs_fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
		ret = -errno;
	return ret < 0 ? err_set(err, ret, "cannot set the size of a tmpfs: %s", strerror(-ret))
		       : 0;
}

static void unmount_upper(int dir_fd)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/upper", dir_fd);
	(void)umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH);
}

/* --- either --- */

int fs_allowance_begin(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, struct err *err)
{
	struct fs_allowance *a = &sb->rec.allowance;

	if (is_limited(a) && (all->no_mounts || fs_plan_is_served(&sb->rec.plan))) {
		a->keeper = FS_KEEPER_SERVED;
		return 0;
	}
	if (!is_limited(a) || (a->under_quota && begin_quota(dir_fd, a) == 0))
		return 0;
	return begin_tmpfs(dir_fd, a, err);
}

static int start_meter(struct fs_sandboxes *all, struct fs_sandbox *sb, int fd, struct err *err)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (copy < 0)
		return err_set(err, -errno, "cannot copy a descriptor: %s", strerror(errno));
	return fs_meter_new(all->meters, copy, &sb->rec.allowance.before, &sb->meter, err);
}

int fs_allowance_set(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, struct err *err)
{
	struct fs_allowance *a = &sb->rec.allowance;
	auto_close int fd = -1;
	int ret;

	if (!is_metered(a))
		return 0;
	fd = fs_engine_opendir(dir_fd, "upper", err);
	if (fd < 0)
		return fd;
	ret = a->keeper == FS_KEEPER_QUOTA ? set_quota(fd, a, err) : set_tmpfs(fd, a, err);
	if (ret == 0)
		ret = fs_usage_get(fd, &a->before, err);
	return ret < 0 ? ret : start_meter(all, sb, fd, err);
}

int fs_allowance_restore(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
			 struct err *err)
{
	const struct fs_allowance *a = &sb->rec.allowance;
	auto_close int fd = -1;
	struct statfs st;

	if (!is_metered(a))
		return 0;
	fd = fs_engine_opendir(dir_fd, "upper", err);
	if (fd < 0)
		return fd;
	if (a->keeper == FS_KEEPER_TMPFS && (fstatfs(fd, &st) < 0 || st.f_type != TMPFS_MAGIC))
		return err_set(err, -ESTALE, "what it wrote was in memory, as --max-output asks");
	return start_meter(all, sb, fd, err);
}

static struct cas_limit tell_one(const char *name, uint64_t limit, uint64_t peak)
{
	return (struct cas_limit){
		.name = name,
		.value = limit,
		.peak = peak < limit ? peak : limit,
		.has_peak = true,
		.reached = peak >= limit - limit / 1000 * (1000 - PERMILLE_NEAR),
	};
}

/* Who refused knows. */
static size_t tell_served(const struct fs_allowance *a, const struct fs_upper_usage *usage,
			  struct cas_limit *out)
{
	size_t nr = 0;

	if (a->bytes > 0) {
		out[nr] = tell_one("output-bytes", a->bytes, usage->peak.bytes);
		out[nr++].reached = usage->refused_bytes;
	}
	if (a->files > 0) {
		out[nr] = tell_one("output-files", a->files, usage->peak.files);
		out[nr++].reached = usage->refused_files;
	}
	return nr;
}

size_t fs_allowance_tell(struct fs_sandboxes *all, struct fs_sandbox *sb, struct cas_limit *out)
{
	const struct fs_allowance *a = &sb->rec.allowance;
	struct fs_usage peak;
	size_t nr = 0;

	if (a->keeper == FS_KEEPER_SERVED)
		return tell_served(a, &sb->usage, out);
	if (!sb->meter)
		return 0;
	fs_meter_read(all->meters, sb->meter, &peak);
	if (a->bytes > 0)
		out[nr++] = tell_one("output-bytes", a->bytes, peak.bytes);
	if (a->files > 0)
		out[nr++] = tell_one("output-files", a->files, peak.files);
	return nr;
}

void fs_allowance_end(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd)
{
	struct fs_allowance *a = &sb->rec.allowance;
	struct dqblk none = {.dqb_valid = QIF_BLIMITS | QIF_ILIMITS};

	if (sb->meter)
		fs_meter_free(all->meters, sb->meter);
	sb->meter = NULL;
	if (a->keeper == FS_KEEPER_TMPFS && dir_fd >= 0)
		unmount_upper(dir_fd);
	if (a->keeper == FS_KEEPER_QUOTA && dir_fd >= 0)
		(void)quota_call(dir_fd, Q_SETQUOTA, a->project, &none);
}

void fs_allowance_clear(int top_fd, const char *name)
{
	auto_close int fd = openat(top_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		unmount_upper(fd);
}

json_t *fs_allowance_describe(const struct fs_allowance *a)
{
	return json_pack("{s:I, s:I, s:s, s:I, s:[I, I]}", "bytes", (json_int_t)a->bytes, "files",
			 (json_int_t)a->files, "keeper", keeper_names[a->keeper], "project",
			 (json_int_t)a->project, "before", (json_int_t)a->before.bytes,
			 (json_int_t)a->before.files);
}

int fs_allowance_parse(const json_t *obj, struct fs_allowance *out)
{
	const char *keeper = json_string_value(json_object_get(obj, "keeper"));
	const json_t *before = json_object_get(obj, "before");
	struct fs_allowance a = {
		.bytes = (uint64_t)json_integer_value(json_object_get(obj, "bytes")),
		.files = (uint64_t)json_integer_value(json_object_get(obj, "files")),
		.project = (uint32_t)json_integer_value(json_object_get(obj, "project")),
		.before = {(uint64_t)json_integer_value(json_array_get(before, 0)),
			   (uint64_t)json_integer_value(json_array_get(before, 1))},
	};

	if (!obj)
		return 0;
	for (int i = 0; keeper && i <= FS_KEEPER_SERVED; i++) {
		if (strcmp(keeper, keeper_names[i]) != 0)
			continue;
		a.keeper = (enum fs_keeper)i;
		*out = a;
		return 0;
	}
	return -EUCLEAN;
}
