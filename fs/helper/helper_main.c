/* fs/helper/helper_main.c - the mount helper's own side: serve requests until the socket ends */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "fs/fs.h"
#include "fs/helper/helper_guard.h"
#include "fs/helper/helper_i.h"
#include "fs/helper/helper_look.h"

/*
 * A single thread does it, without a FUSE descriptor or a lock: whatever blocks here blocks
 * nothing that answers the kernel, so that an upcall caused here is always answered.
 * The parent replaces us when we take too long. We end when the socket does; a parent
 * death signal would follow the thread that spawned us, not the process. A second thread
 * (helper_guard.h) only watches the parent.
 */

/* The kernel says why in its log, which is not ours to read. */
#define NO_UPPER_TEXT                                                                              \
	"; if the store's filesystem has no whiteouts or extended attributes, it holds no "        \
	"overlay's upper layer: name the output PATH/, or mount with --engine fuse"
#define DETACH_MAX	 1000 /* mounts stacked at one place */
#define UNMOUNT_TRIES	 20
#define UNMOUNT_PAUSE_NS 1000000L /* 1 ms: 20 ms in all */

struct request_fds {
	int nr;
	int fd[HELPER_MAX_FDS];
};

/* The request at hand. */
struct work {
	struct helper_request req;
	struct request_fds fds;
	int next_fd;
	int base_fd;	   /* of this request, -1: not open yet */
	const char *visit; /* to be looked up when it is answered; NULL: nothing is */
	struct helper_bare bare;
};

/* The base without following its last component; stays open until the request is done. */
static int base_open(struct work *w, struct err *err)
{
	if (w->base_fd < 0)
		w->base_fd = open(w->req.text, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return w->base_fd < 0 ? err_set(err, -errno, "cannot open %s: %m", w->req.text) : 0;
}

/* @target beneath the base without any symlink; @flags: what it must be. */
static int target_open_as(struct work *w, const char *target, uint64_t flags, struct err *err)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC | flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	int ret = base_open(w, err);
	long fd;

	if (ret < 0)
		return ret;
	do
		fd = syscall(SYS_openat2, w->base_fd, target[0] ? target : ".", &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR));
	if (fd < 0)
		return err_set(err, -errno, "cannot open %s below %s: %m", target, w->req.text);
	return (int)fd;
}

static int target_open(struct work *w, const char *target, struct err *err)
{
	return target_open_as(w, target, O_DIRECTORY, err);
}

/* What is mounted at @fd/@name; never asks a daemon. */
static int key_at(int fd, const char *name, struct fs_mount_key *out)
{
	struct statx stx;

	if (statx(fd, name,
		  AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
		  STATX_INO | STATX_MNT_ID, &stx) < 0)
		return -errno;
	*out = (struct fs_mount_key){
		.id = stx.stx_mnt_id,
		.dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
		.ino = stx.stx_ino,
	};
	return 0;
}

static int do_attach(int mount_fd, const char *path, struct err *err)
{
	auto_close int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, -errno, "cannot open the mount point %s: %m", path);
	if (move_mount(mount_fd, "", fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_set(err, -errno, "cannot mount at %s: %m", path);
	return 0;
}

/* Clone the mount of @source_fd with @attrs and put it on @fd, which is @target. */
static int bind_over(int source_fd, int fd, uint64_t attrs, const char *target,
		     struct fs_mount_key *key, struct err *err)
{
	struct mount_attr attr = {
		.attr_set = attrs | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
		.propagation = MS_PRIVATE,
	};
	auto_close int tree =
		open_tree(source_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	if (tree < 0)
		return err_set(err, -errno, "cannot clone what to bind over %s: %m", target);
	if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_set(err, -errno, "cannot make the bind over %s nosuid and nodev: %m",
			       target);
	if (move_mount(tree, "", fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_set(err, -errno, "cannot bind over %s: %m", target);
	(void)key_at(tree, "", key);
	return 0;
}

static int do_bind(struct work *w, int source_fd, const char *target, struct fs_mount_key *key,
		   struct err *err)
{
	auto_close int fd = target_open(w, target, err);

	return fd < 0 ? fd : bind_over(source_fd, fd, 0, target, key, err);
}

static int do_file(struct work *w, const char *source, const char *target, struct fs_mount_key *key,
		   struct err *err)
{
	auto_close int source_fd = open(source, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	auto_close int fd = -1;
	struct stat st;

	if (source_fd < 0)
		return err_set(err, -errno, "cannot open %s: %m", source);
	fd = target_open_as(w, target, O_NOFOLLOW, err);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s/%s is no regular file", w->req.text, target);
	return bind_over(source_fd, fd, MOUNT_ATTR_RDONLY, target, key, err);
}

static int do_self(struct work *w, uint32_t flags, const char *target, struct fs_mount_key *key,
		   struct err *err)
{
	auto_close int fd = target_open(w, target, err);
	uint64_t attrs = flags & HELPER_FLAG_WRITE ? 0 : MOUNT_ATTR_RDONLY;

	return fd < 0 ? fd : bind_over(fd, fd, attrs, target, key, err);
}

/* What the kernel wrote to the log of a filesystem context: its last line, without newline. */
static void context_log(int fs_fd, int code, char *out, size_t sz)
{
	ssize_t got;

	(void)snprintf(out, sz, "%s", strerrordesc_np(-code));
	do {
		char line[256];

		got = read(fs_fd, line, sizeof(line) - 1);
		if (got > 0) {
			line[got] = '\0';
			line[strcspn(line, "\n")] = '\0';
			(void)snprintf(out, sz, "%s", line);
		}
	} while (got > 0);
}

struct overlay_option {
	const char *key;
	const char *value; /* NULL: a flag */
};

static int overlay_configure(int fs_fd, const struct overlay_option *opt, size_t nr,
			     const char *target, struct err *err)
{
	for (size_t i = 0; i < nr; i++) {
		int cmd = opt[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (fsconfig(fs_fd, cmd, opt[i].key, opt[i].value, 0) < 0) {
			int code = -errno;
			char reason[256];

			context_log(fs_fd, code, reason, sizeof(reason));
			return err_set(err, code, "overlay at %s: option %s refused (%s)", target,
				       opt[i].key, reason);
		}
	}
	if (fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
		int code = -errno;
		char reason[256];

		context_log(fs_fd, code, reason, sizeof(reason));
		return err_set(err, code, "cannot create the overlay at %s (%s)%s", target, reason,
			       code == -EINVAL ? NO_UPPER_TEXT : "");
	}
	return 0;
}

static int do_overlay(struct work *w, const int fds[2], const char *target, bool in_userns,
		      struct fs_mount_key *key, struct err *err)
{
	char lower[64];
	char upper[64];
	char work[64];
	const struct overlay_option both[] = {
		{"source", "casbox"}, {"lowerdir", lower}, {"upperdir", upper}, {"workdir", work},
		{"volatile", NULL},   {"xino", "on"},	   {"index", "off"},	{"metacopy", "off"},
	};
	const struct overlay_option mode = in_userns
						   ? (struct overlay_option){"userxattr", NULL}
						   : (struct overlay_option){"redirect_dir", "on"};
	struct overlay_option all[sizeof(both) / sizeof(both[0]) + 1];
	auto_close int fs_fd = -1;
	auto_close int mnt = -1;
	auto_close int fd = target_open(w, target, err);
	int ret;

	if (fd < 0)
		return fd;
	(void)snprintf(lower, sizeof(lower), "/proc/self/fd/%d", fd);
	(void)snprintf(upper, sizeof(upper), "/proc/self/fd/%d", fds[0]);
	(void)snprintf(work, sizeof(work), "/proc/self/fd/%d", fds[1]);
	memcpy(all, both, sizeof(both));
	all[sizeof(both) / sizeof(both[0])] = mode;
	fs_fd = fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs_fd < 0)
		return err_set(err, -errno, "the kernel has no overlay filesystem for us: %m");
	ret = overlay_configure(fs_fd, all, sizeof(all) / sizeof(all[0]), target, err);
	if (ret < 0)
		return ret;
	mnt = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (mnt < 0)
		return err_set(err, -errno, "cannot mount the overlay for %s: %m", target);
	if (move_mount(mnt, "", fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_set(err, -errno, "cannot mount the overlay at %s: %m", target);
	(void)key_at(mnt, "", key);
	return 0;
}

/*
 * umount2 takes a path only. The parent is opened beneath the base without symlinks and
 * reached through its descriptor, so that nothing an action put in the way is followed.
 */
static int unmount_path(struct work *w, const char *target, int *parent_fd, char *out, size_t sz,
			struct err *err)
{
	const char *slash = strrchr(target, '/');
	const char *last = slash ? slash + 1 : target;
	char parent[PATH_MAX];
	int fd;

	if (last[0] == '\0')
		return err_set(err, -EINVAL, "nothing to unmount below %s", w->req.text);
	(void)snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - target) : 0, target);
	fd = target_open(w, parent, err);
	if (fd < 0)
		return fd;
	*parent_fd = fd;
	(void)snprintf(out, sz, "/proc/self/fd/%d/%s", fd, last);
	return 0;
}

/* Is what is on top of the target the mount that is meant? */
static int is_meant(int parent_fd, const char *path, const struct fs_mount_key *key,
		    struct err *err)
{
	struct fs_mount_key above = {0};
	struct fs_mount_key at = {0};
	int ret;

	if (key->id == 0)
		return 0;
	ret = key_at(parent_fd, strrchr(path, '/') + 1, &at);
	if (ret < 0)
		return err_set(err, ret, "cannot look at %s: %s", path, strerrordesc_np(-ret));
	if (at.id == key->id && at.dev == key->dev && at.ino == key->ino)
		return 0;
	if (key_at(parent_fd, "", &above) == 0 && above.id == at.id)
		return err_set(err, -EINVAL, "nothing is mounted at %s", path);
	return err_set(err, -ESTALE, "another mount is at %s", path);
}

/* Try, and again when it is busy: somebody may only be passing by. 0, or umount2's code. */
static int try_unmount(const char *path, int flags)
{
	const struct timespec pause = {.tv_nsec = UNMOUNT_PAUSE_NS};
	int ret = -EBUSY;

	for (int i = 0; i < UNMOUNT_TRIES && ret == -EBUSY; i++) {
		if (i > 0)
			(void)nanosleep(&pause, NULL);
		ret = umount2(path, UMOUNT_NOFOLLOW | flags) < 0 ? -errno : 0;
	}
	return ret;
}

static int do_unmount(struct work *w, const struct helper_step *step, struct err *err)
{
	const char *target = w->req.text + step->target;
	auto_close int parent_fd = -1;
	char path[PATH_MAX + 64];
	int ret = unmount_path(w, target, &parent_fd, path, sizeof(path), err);

	if (ret == 0)
		ret = is_meant(parent_fd, path, &step->key, err);
	if (ret < 0)
		return ret;
	ret = try_unmount(path, 0);
	if (ret == 0)
		return 0;
	if (ret != -EBUSY)
		return err_set(err, ret, "cannot unmount %s/%s: %s", w->req.text, target,
			       strerrordesc_np(-ret));
	if (!(step->flags & HELPER_FLAG_DETACH))
		return err_set(err, -EBUSY, "%s/%s is in use", w->req.text, target);
	if (umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
		return err_set(err, -errno, "cannot detach %s/%s: %m", w->req.text, target);
	return 1;
}

/*
 * MNT_EXPIRE looks at a mount as unmounting does, and when nobody is on it marks it and
 * says EAGAIN; it would go the next time if nobody came meanwhile. Opening and closing it
 * takes the mark away, so that it never does.
 */
static int do_idle(struct work *w, const struct helper_step *step, struct err *err)
{
	const char *target = w->req.text + step->target;
	auto_close int parent_fd = -1;
	char path[PATH_MAX + 64];
	int ret = target_open(w, target, err);

	if (ret < 0)
		return ret;
	(void)close(ret);
	ret = unmount_path(w, target, &parent_fd, path, sizeof(path), err);
	if (ret == 0)
		ret = is_meant(parent_fd, path, &step->key, err);
	if (ret < 0)
		return ret;
	ret = try_unmount(path, MNT_EXPIRE);
	if (ret == -EAGAIN)
		return 0;
	return err_set(err, ret < 0 ? ret : -ESTALE, "%s/%s is no idle mount: %s", w->req.text,
		       target, ret < 0 ? strerrordesc_np(-ret) : "it was unmounted");
}

static int do_watch(struct work *w, int group_fd, const char *target, struct err *err)
{
	auto_close int fd = target_open(w, target, err);

	if (fd < 0)
		return fd;
	if (fanotify_mark(group_fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, fd, ".") < 0)
		return err_set(err, -errno, "cannot watch opens in %s/%s: %m", w->req.text, target);
	return 0;
}

/* @list: paths, and an empty one at the end, which the text of a request has in any case. */
static int do_watch_dirs(struct work *w, int group_fd, const char *target, const char *list,
			 struct err *err)
{
	const unsigned flags = FAN_MARK_ADD | FAN_MARK_ONLYDIR | FAN_MARK_DONT_FOLLOW;
	auto_close int fd = target_open(w, target, err);

	if (fd < 0)
		return fd;
	for (; list < w->req.text + w->req.text_len && *list; list += strlen(list) + 1) {
		if (fanotify_mark(group_fd, flags, FAN_OPEN | FAN_EVENT_ON_CHILD, fd, list) < 0)
			return err_set(err, -errno, "cannot watch opens in %s/%s/%s: %m",
				       w->req.text, target, list);
	}
	return 0;
}

/* Move the mount on top of @from onto @to; both are resolved as targets are. */
static int move_top(struct work *w, const char *from, const char *to,
		    const struct fs_mount_key *key, struct err *err)
{
	auto_close int from_fd = target_open(w, from, err);
	auto_close int to_fd = from_fd < 0 ? -1 : target_open(w, to, err);
	struct fs_mount_key at = {0};

	if (from_fd < 0 || to_fd < 0)
		return from_fd < 0 ? from_fd : to_fd;
	if (key && (key_at(from_fd, "", &at) < 0 || at.id != key->id || at.dev != key->dev ||
		    at.ino != key->ino))
		return err_set(err, -ESTALE, "another mount is at %s", from);
	if (move_mount(from_fd, "", to_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
	    0)
		return err_set(err, -errno, "cannot move the mount at %s: %m", from);
	return 0;
}

static int do_away(struct work *w, const struct helper_step *step, struct err *err)
{
	const char *target = w->req.text + step->target;
	const char *off = w->req.text + step->source;
	auto_close int parent_fd = -1;
	char path[PATH_MAX + 64];
	int ret;

	if (step->key.id == 0 || move_top(w, target, off, &step->key, NULL) < 0)
		return do_unmount(w, step, err);
	ret = unmount_path(w, off, &parent_fd, path, sizeof(path), err);
	if (ret == 0)
		ret = try_unmount(path, MNT_EXPIRE);
	if (ret == -EAGAIN || ret == 0)
		return 0;
	if (move_top(w, off, target, &step->key, err) < 0)
		return err->code;
	return err_set(err, ret, "%s/%s is in use: %s", w->req.text, target, strerrordesc_np(-ret));
}

static int do_detach(struct work *w, const char *target, struct err *err)
{
	auto_close int parent_fd = -1;
	char path[PATH_MAX + 64];
	int ret = unmount_path(w, target, &parent_fd, path, sizeof(path), err);

	if (ret < 0)
		return ret;
	for (int i = 0; i < DETACH_MAX; i++) {
		if (umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) == 0)
			continue;
		return i > 0 ? 1
			     : err_set(err, -errno, "cannot detach %s/%s: %m", w->req.text, target);
	}
	return err_set(err, -EBUSY, "cannot detach all of %s/%s", w->req.text, target);
}

static int do_ping(const char *path, struct err *err)
{
	struct statx stx;

	if (statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS,
		  &stx) < 0)
		return err_set(err, -errno, "cannot stat %s: %m", path);
	return 0;
}

static int do_step(struct work *w, const struct helper_step *step, struct fs_mount_key *key,
		   struct err *err)
{
	static const int wanted[] = {
		[HELPER_ATTACH] = 1,	 [HELPER_BIND] = 1,    [HELPER_OVERLAY] = 2,
		[HELPER_SELF] = 0,	 [HELPER_UNMOUNT] = 0, [HELPER_PING] = 0,
		[HELPER_DETACH] = 0,	 [HELPER_FILE] = 0,    [HELPER_LIST] = 0,
		[HELPER_LOOK] = 0,	 [HELPER_IDLE] = 0,    [HELPER_WATCH] = 1,
		[HELPER_WATCH_DIRS] = 1, [HELPER_AWAY] = 0,    [HELPER_VISIT] = 0,
	};
	const char *target = w->req.text + step->target;
	const int *fds = w->fds.fd + w->next_fd;

	if (step->op < HELPER_ATTACH || step->op > HELPER_VISIT ||
	    w->fds.nr - w->next_fd < wanted[step->op] || step->target >= w->req.text_len ||
	    step->source >= w->req.text_len)
		return err_set(err, -EPROTO, "malformed request to the mount helper");
	w->next_fd += wanted[step->op];
	switch ((enum helper_op)step->op) {
	case HELPER_ATTACH:
		return do_attach(fds[0], w->req.text, err);
	case HELPER_BIND:
		return do_bind(w, fds[0], target, key, err);
	case HELPER_FILE:
		return do_file(w, w->req.text + step->source, target, key, err);
	case HELPER_OVERLAY:
		return do_overlay(w, fds, target, step->flags & HELPER_FLAG_USERNS, key, err);
	case HELPER_SELF:
		return do_self(w, step->flags, target, key, err);
	case HELPER_UNMOUNT:
		return do_unmount(w, step, err);
	case HELPER_PING:
		return do_ping(w->req.text, err);
	case HELPER_DETACH:
		return do_detach(w, target, err);
	case HELPER_LIST:
		return helper_list(&w->bare, w->req.text, target, err);
	case HELPER_LOOK:
		return helper_look(&w->bare, w->req.text, target, err);
	case HELPER_IDLE:
		return do_idle(w, step, err);
	case HELPER_WATCH:
		return do_watch(w, fds[0], target, err);
	case HELPER_WATCH_DIRS:
		return do_watch_dirs(w, fds[0], target, w->req.text + step->source, err);
	case HELPER_AWAY:
		return do_away(w, step, err);
	case HELPER_VISIT:
		w->visit = target;
		return 0;
	}
	return -EPROTO;
}

static void do_request(struct work *w, struct helper_reply *reply)
{
	bool clean = !w->req.unclean;
	bool failed = false;

	w->next_fd = 0;
	w->visit = NULL;
	reply->seq = w->req.seq;
	reply->msg[0] = '\0';
	memset(reply->key, 0, sizeof(reply->key));
	for (uint32_t i = 0; i < HELPER_MAX_STEPS; i++)
		reply->code[i] = -ECANCELED;
	for (uint32_t i = 0; i < w->req.nr && (!failed || w->req.go_on); i++) {
		bool may = w->req.steps[i].flags & HELPER_FLAG_MAY;
		struct err err = {0};
		int ret;

		if (!clean && w->req.steps[i].flags & HELPER_FLAG_CLEAN)
			continue;
		ret = do_step(w, &w->req.steps[i], &reply->key[i], &err);
		reply->code[i] = ret;
		clean = clean && ret == 0;
		if (ret < 0 && !failed && !may)
			(void)snprintf(reply->msg, sizeof(reply->msg), "%s", err_text(&err, ret));
		failed |= ret < 0 && !may;
	}
	for (int i = 0; i < w->fds.nr; i++)
		(void)close(w->fds.fd[i]);
}

/* What is left to do when the answer is on its way. */
static void end_request(struct work *w)
{
	int fd = w->visit ? target_open(w, w->visit, NULL) : -1;

	if (fd >= 0)
		(void)close(fd);
	if (w->base_fd >= 0)
		(void)close(steal_fd(&w->base_fd));
}

static void take_fds(struct msghdr *msg, struct request_fds *fds)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t nr = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < nr; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (fds->nr < HELPER_MAX_FDS)
				fds->fd[fds->nr++] = fd;
			else
				(void)close(fd);
		}
	}
}

static bool is_whole(const struct helper_request *req, size_t got)
{
	size_t head = offsetof(struct helper_request, text);

	return got >= head && req->text_len > 0 && got == head + req->text_len &&
	       req->text[req->text_len - 1] == '\0' && req->nr <= HELPER_MAX_STEPS;
}

/* 1: a whole request, 0: the other end is gone, negative: broken. */
static int receive(int sock, struct work *w)
{
	union {
		char bytes[CMSG_SPACE(HELPER_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = &w->req, .iov_len = sizeof(w->req)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t got;

	w->fds.nr = 0;
	do
		got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got == 0 ? 0 : -errno;
	take_fds(&msg, &w->fds);
	if (!is_whole(&w->req, (size_t)got))
		w->req.nr = 0;
	return 1;
}

/* An overlay writes as whoever mounted it, and who has this is above quotas. */
static void drop_resource(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2];

	if (syscall(SYS_capget, &head, caps) < 0)
		return;
	caps[0].effective &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
	caps[0].permitted &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
	(void)syscall(SYS_capset, &head, caps);
}

/* For the guard; the watchdog asks about each session now and then. */
static void note_base(struct fs_guard *guard, const struct helper_request *req)
{
	bool again = req->nr > 0 &&
		     (req->steps[0].op == HELPER_ATTACH || req->steps[0].op == HELPER_PING);

	if (req->nr > 0)
		fs_guard_note(guard, req->text, again);
}

/* The next request, whichever way it comes. As receive. */
static int next_request(struct work *w)
{
	struct pollfd fds[] = {{HELPER_FD, POLLIN, 0}, {HELPER_BELL_FD, POLLIN, 0}};
	uint64_t rung;

	helper_bare_rest(&w->bare, fds, 2);
	while (poll(fds, 2, -1) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	/* It was sent before the bell was rung. */
	if (fds[1].revents & POLLIN && read(HELPER_BELL_FD, &rung, sizeof(rung)) > 0)
		return receive(HELPER_ASIDE_FD, w);
	return receive(HELPER_FD, w);
}

int fs_helper_main(void)
{
	struct work w = {.bare.fd = -1, .base_fd = -1};
	struct fs_guard *guard;

	/* The terminal's signals are for the daemon, which still needs us to unmount. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < HELPER_NR_FDS; i++)
		(void)fcntl(HELPER_FD + i, F_SETFD, FD_CLOEXEC);
	drop_resource();
	if (chdir("/") < 0)
		return 1;
	guard = fs_guard_start();
	for (;;) {
		struct helper_reply reply;
		size_t len;
		int ret = next_request(&w);

		if (ret <= 0)
			return ret == 0 ? 0 : 1;
		do_request(&w, &reply);
		note_base(guard, &w.req);
		len = offsetof(struct helper_reply, msg) + strlen(reply.msg) + 1;
		if (send(HELPER_FD, &reply, len, MSG_NOSIGNAL) < 0)
			return 0;
		end_request(&w);
	}
}
