/* tools/daemon.h - find, start and wait for the daemon of a store */
#ifndef TOOLS_DAEMON_H
#define TOOLS_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cli;
struct err;

/* What STORE/run/daemon says; zero-initialize, end with daemon_fini. */
struct daemon {
	pid_t pid;
	char *mountpoint;
	bool automatic; /* started by `run` */
	bool stopped;	/* by SIGSTOP: it will not answer */
	pid_t hidden;	/* the mount is in a namespace that this process has; 0: in ours */
};
void daemon_fini(struct daemon *daemon);

/*
 * 1: a daemon serves the store at @store (its record is of this boot, the process lives
 * and the writer's lock is held). 0: none does. Touches no mount.
 */
int daemon_find(const char *store, struct daemon *out, struct err *err);

/* Wait until process @pid is gone: 0 or -ETIMEDOUT. */
int daemon_wait_gone(pid_t pid, int timeout_ms);

/*
 * Ask an idle automatic daemon to end and wait for it. 0: gone. -EBUSY: it has
 * sandboxes, or is no automatic one.
 */
int daemon_take_over(const struct daemon *daemon, struct err *err);

/* How to start a daemon: the options of `mount`. */
struct daemon_start {
	const char *mountpoint; /* absolute */
	bool automatic;
	bool allow_other;
	const char *option; /* NULL: none */
	int threads;
	uint64_t idle_ms;
	uint64_t large;	     /* for daemon_start; daemon_ensure leaves it to the settings */
	const char *without; /* features to do without; NULL: none */
	const char *engine;  /* as fs_options; NULL: what fits */
	int lanes;	     /* to be warmed for @warm, HASH/SIZE; NULL: none */
	const char *warm;
};

/*
 * Start one in the background and wait until its mount is usable. Its own words are
 * reported when it cannot.
 */
int daemon_start(const struct cli *cli, const struct daemon_start *start, struct err *err);

/*
 * The daemon of the store, started at the automatic place if there is none; started once
 * however many ask at the same time. With @mountpoint: that mount, as it is.
 */
int daemon_ensure(const struct cli *cli, const char *store, uint64_t idle_ms, struct daemon *out,
		  struct err *err);

/* Where an automatic mount of @store lives; the caller frees. */
int daemon_automatic_path(const char *store, char **out, struct err *err);
/* Where the sandboxes of @store are when fusermount3 mounts for us; the caller frees. */
int daemon_beside_path(const char *store, char **out, struct err *err);

/*
 * @path of a mount as we can open it: what is in the daemon's namespace alone is below
 * /proc/PID/root. The caller frees; NULL: no memory.
 */
char *daemon_see(const struct daemon *daemon, const char *path);

/* Is something mounted exactly at @path, by /proc/self/mountinfo? Never touches it. */
bool daemon_is_mountpoint(const char *path);
/* Is a mount of ours there, whatever else lies below it? */
bool daemon_is_mounted(const char *path);

#endif
