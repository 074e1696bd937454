/* tools/bench/bench_slow.h - a directory shown through the slow filesystem */
#ifndef TOOLS_BENCH_BENCH_SLOW_H
#define TOOLS_BENCH_BENCH_SLOW_H

#include <sys/types.h>

struct bench_env;
struct err;

/* Zero-initialize; one that is not mounted may be unmounted. */
struct bench_slow {
	pid_t pid;
	char *at;
};

/*
 * Show @dir/@back at @dir/slow, each change taking @latency_ms, by the program env->latfs;
 * returns when it is usable. It shows no holes.
 */
int bench_slow_mount(const struct bench_env *env, const char *dir, const char *back, int latency_ms,
		     struct bench_slow *out, struct err *err);
void bench_slow_unmount(struct bench_slow *slow);

#endif
