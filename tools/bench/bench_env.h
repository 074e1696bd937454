/* tools/bench/bench_env.h - options, the working directory, programs, and cleaning up */
#ifndef TOOLS_BENCH_BENCH_ENV_H
#define TOOLS_BENCH_BENCH_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct err;

/* Set before the sub-benchmarks start, read-only from then on, by any thread. */
struct bench_env {
	const char *casbox;	/* the program; NULL: only baselines are measured */
	const char *work;	/* absolute path of the working directory, which is ours */
	int work_fd;		/* the same, opened */
	int actions;		/* of a lane and pass */
	int lanes;		/* 0: one, then two */
	int rounds;		/* repetitions of the longer measurements */
	unsigned scale;		/* percent of the usual files, live sandboxes and bytes */
	size_t files;		/* of the large tree of *ready* */
	size_t live;		/* sandboxes alive in *ready* */
	uint64_t bytes;		/* of the large file of *bulk* and *write* */
	const char *durability; /* of the product: none, as the native ways sync nothing */
	const char *latfs;	/* the slow filesystem of *put*; NULL: it is left out */
	const char *project;	/* sources for *real*; NULL: it is left out */
	const char *tree;   /* what *put-tree*, *diff* and *remote* take; NULL: they are left out */
	const char *reapid; /* the server of *remote*; NULL: it is left out */
	const char *cc;
	const char *cflags; /* words separated by blanks */
	int compiles;
	bool few; /* leave out the baselines that take longest */
	bool keep;
};

/* True once the run was told to end: give up with -EINTR at the next step. */
bool bench_stopped(void);

/*
 * Run @body in a child, with signals that end it turned into bench_stopped(). Whatever
 * became of the child, then unmount what is left below env->work and, unless env->keep,
 * remove it. Returns the exit status of the child, or 1.
 */
int bench_supervise(const struct bench_env *env, int (*body)(void *ctx), void *ctx);

/*
 * Run @argv (searched in PATH) to its end; *status is its exit status (128 + N for a
 * signal). Standard output is appended to @out, standard error to @complaint, or left
 * alone and dropped, respectively, where that is NULL; @dir is where it starts, NULL for
 * here. Programs that go on in the background must have left standard output by then.
 */
int bench_spawn(const char *const *argv, const char *dir, struct buf *out, struct buf *complaint,
		int *status, struct err *err);

/* The same, and -EIO with the command, its status and its complaint unless that is 0. */
int bench_spawn_ok(const char *const *argv, const char *dir, struct buf *out, struct err *err);

bool bench_have_program(const char *name);

/* Make WORK/@name, empty, and open it; *path (caller frees) is its absolute path. */
int bench_dir_new(const struct bench_env *env, const char *name, int *fd_out, char **path_out,
		  struct err *err);

/* mkdirat that reports; an existing directory is fine. */
int bench_mkdir(int dir_fd, const char *name, struct err *err);

/* openat(O_DIRECTORY) that reports; the descriptor or negative. */
int bench_open_dir(int dir_fd, const char *name, struct err *err);

/* Copy of printf's result that reports out of memory as NULL. */
char *bench_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
