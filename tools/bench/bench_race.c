/* tools/bench/bench_race.c - several ways to do one thing, in turn, in rounds */
#include "tools/bench/bench_race.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"

static const struct bench_column columns[] = {
	{"ms", "ms", 1},
	{"times_first", "times the first", 2},
	{NULL, NULL, 0},
};

static int turn(const struct bench_env *env, const struct bench_way *way, void *ctx, double *ms,
		struct err *err)
{
	int ret;

	(void)syncfs(env->work_fd);
	ret = way->run(ctx, ms, err);
	if (ret == 0 && way->undo)
		ret = way->undo(ctx, err);
	if (ret == 0 && bench_stopped())
		ret = -EINTR;
	return ret < 0 ? err_context(err, ret, "%s", way->label) : 0;
}

int bench_race_run(const struct bench_env *env, const struct bench_way *ways, void *ctx,
		   struct bench_race *out, struct err *err)
{
	size_t nr = 0;

	while (ways[nr].label)
		nr++;
	out->nr_rounds =
		(size_t)env->rounds < BENCH_RACE_ROUNDS ? (size_t)env->rounds : BENCH_RACE_ROUNDS;
	for (size_t r = 0; r < out->nr_rounds; r++) {
		for (size_t i = 0; i < nr; i++) {
			size_t w = (i + r) % nr;
			int ret = turn(env, &ways[w], ctx, &out->ms[w][r], err);

			if (ret < 0)
				return ret;
		}
	}
	return 0;
}

double bench_race_ratio(const struct bench_race *race, int over, int under)
{
	return bench_ratio(race->ms[over], race->ms[under], race->nr_rounds);
}

void bench_race_table(struct bench_report *rep, const char *bench, const char *title,
		      const struct bench_way *ways, const struct bench_race *race)
{
	bench_table(rep, bench, title, columns);
	for (int w = 0; ways[w].label; w++) {
		double values[] = {bench_median(race->ms[w], race->nr_rounds),
				   w == 0 ? NAN : bench_race_ratio(race, w, 0)};

		bench_row(rep, ways[w].label, values);
	}
}

int bench_timed(const char *const *argv, double *ms, struct err *err)
{
	auto_buf struct buf out = {0};
	double begin = bench_now_ms();
	int ret = bench_spawn_ok(argv, NULL, &out, err);

	*ms = bench_now_ms() - begin;
	return ret;
}
