/* tests/lib/ctltalk.c - speak to the files of .casbox as many programs at once would */

/*
 * usage: ctltalk chat CONTROL THREADS SECONDS PER_SECOND
 *        ctltalk follow EVENTS SECONDS [TEXT]
 *        ctltalk scrape METRICS SECONDS PER_SECOND
 *        ctltalk wait CONTROL
 *
 * chat: each thread has a conversation of its own and checks that every answer is the one
 * to what it asked, whole, and comes in order; prints how many were. follow: poll and read
 * on until a line with TEXT, each line has to be an object and the time of none before the
 * last; prints lines and missed bytes. scrape: read whole texts; prints how many. wait: a read that
 * has to wait, by EAGAIN and poll. Exit 1 with a message when something is not as it should be.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_SZ   (1 << 20)
#define BATCH	    4
#define POLL_MS	    1000
#define NS_PER_S    1000000000ULL
#define THREADS_MAX 1024

static __attribute__((format(printf, 1, 2), noreturn)) void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fprintf(stderr, "ctltalk: ");
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t when)
{
	struct timespec t = {(time_t)(when / NS_PER_S), (long)(when % NS_PER_S)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static int open_file(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0)
		fail("cannot open %s: %s", path, strerror(errno));
	return fd;
}

static void say(int fd, const char *text, size_t len)
{
	ssize_t done = write(fd, text, len);

	if (done != (ssize_t)len)
		fail("write of %zu bytes: %zd, %s", len, done, strerror(errno));
}

/* One answer into @line, without the newline; *have bytes of the next ones stay in @buf. */
static void hear(int fd, char *buf, size_t *have, char *line)
{
	char *end;
	size_t len;

	while ((end = memchr(buf, '\n', *have)) == NULL) {
		ssize_t got = read(fd, buf + *have, ANSWER_SZ - *have);

		if (got <= 0)
			fail("read of an answer: %zd, %s; after %zu bytes", got, strerror(errno),
			     *have);
		*have += (size_t)got;
		if (*have == ANSWER_SZ)
			fail("an answer without an end");
	}
	len = (size_t)(end - buf);
	memcpy(line, buf, len);
	line[len] = '\0';
	*have -= len + 1;
	memmove(buf, end + 1, *have);
}

static void want(const char *answer, const char *text)
{
	size_t len = strlen(answer);

	if (answer[0] != '{' || answer[len - 1] != '}' || !strstr(answer, text))
		fail("wanted %s in the answer %.300s", text, answer);
}

struct talker {
	pthread_t thread;
	const char *path;
	int number;
	uint64_t end;
	uint64_t period;
	uint64_t nr;
	uint64_t worst;
	char *buf;
	char *line;
	size_t have;
};

/* One question in each of the ways in which it can be put. */
static void ask(struct talker *t, int fd, unsigned way)
{
	char tag[64];
	char text[1024];
	size_t len = 0;

	(void)snprintf(tag, sizeof(tag), "nobody-%d-%llu", t->number, (unsigned long long)t->nr);
	switch (way % 5) {
	case 0:
		len = (size_t)snprintf(text, sizeof(text), "show %s\n", tag);
		say(fd, text, len);
		break;
	case 1:
		len = (size_t)snprintf(text, sizeof(text), "{\"command\":\"show\",\"id\":\"%s\"}\n",
				       tag);
		say(fd, text, len);
		break;
	case 2: /* cut in two, within the tag */
		len = (size_t)snprintf(text, sizeof(text), "show '%s'\n", tag);
		say(fd, text, len / 2);
		say(fd, text + len / 2, len - len / 2);
		break;
	case 3: /* several at once */
		for (int i = 0; i < BATCH; i++)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "show %s-%d\n", tag,
						i);
		say(fd, text, len);
		for (int i = 0; i < BATCH; i++) {
			(void)snprintf(text, sizeof(text), "%s-%d\"", tag, i);
			hear(fd, t->buf, &t->have, t->line);
			want(t->line, "ENOENT");
			want(t->line, tag);
		}
		t->nr += BATCH;
		return;
	default:
		say(fd, "version\nlist\n", 13);
		hear(fd, t->buf, &t->have, t->line);
		want(t->line, "\"mountpoint\":");
		hear(fd, t->buf, &t->have, t->line);
		want(t->line, "\"sandboxes\":");
		t->nr += 2;
		return;
	}
	hear(fd, t->buf, &t->have, t->line);
	want(t->line, "ENOENT");
	want(t->line, tag);
	t->nr++;
}

static void *talker_thread(void *arg)
{
	struct talker *t = arg;
	uint64_t next = now_ns() + t->period * (uint64_t)t->number / 64;
	int fd = open_file(t->path, O_RDWR);

	t->buf = malloc(ANSWER_SZ);
	t->line = malloc(ANSWER_SZ);
	if (!t->buf || !t->line)
		fail("out of memory");
	for (unsigned way = 0; now_ns() < t->end; way++) {
		uint64_t start, took;

		sleep_until(next);
		next += t->period;
		start = now_ns();
		ask(t, fd, way);
		took = now_ns() - start;
		if (took > t->worst)
			t->worst = took;
		/* Another conversation now and then. */
		if (way % 50 == 49) {
			(void)close(fd);
			fd = open_file(t->path, O_RDWR);
		}
	}
	if (t->have > 0)
		fail("%zu bytes that nobody asked for", t->have);
	(void)close(fd);
	free(t->buf);
	free(t->line);
	return NULL;
}

static int chat(const char *path, int nr, double seconds, double per_second)
{
	struct talker *all = calloc((size_t)nr, sizeof(*all));
	uint64_t total = 0, worst = 0;

	if (!all)
		fail("out of memory");
	for (int i = 0; i < nr; i++) {
		all[i] = (struct talker){.path = path, .number = i};
		all[i].end = now_ns() + (uint64_t)(seconds * (double)NS_PER_S);
		all[i].period = (uint64_t)((double)NS_PER_S / per_second);
		if (pthread_create(&all[i].thread, NULL, talker_thread, &all[i]) != 0)
			fail("cannot start thread %d", i);
	}
	for (int i = 0; i < nr; i++) {
		(void)pthread_join(all[i].thread, NULL);
		total += all[i].nr;
		worst = all[i].worst > worst ? all[i].worst : worst;
	}
	(void)printf("answers %llu worst_ms %llu\n", (unsigned long long)total,
		     (unsigned long long)(worst / 1000000));
	free(all);
	return 0;
}

struct followed {
	uint64_t lines;
	uint64_t missed;
	char last_time[32];
	const char *last_text; /* that ends it; NULL: only the time does */
	bool over;
};

static void look_at_line(struct followed *f, const char *line)
{
	const char *time = strstr(line, "\"time\":\"");
	char text[32] = "";

	if (strncmp(line, "{\"missed\":", 10) == 0) {
		f->missed += strtoull(line + 10, NULL, 10);
		return;
	}
	if (line[0] != '{' || line[strlen(line) - 1] != '}' || time != line + 1)
		fail("not an event: %.200s", line);
	(void)snprintf(text, sizeof(text), "%.24s", time + 8);
	/* Two threads may have looked at the clock in one order and told in another. */
	if (strncmp(text, f->last_time, 18) < 0)
		fail("the time goes back from %s to %s", f->last_time, text);
	(void)snprintf(f->last_time, sizeof(f->last_time), "%s", text);
	f->lines++;
	f->over = f->last_text && strstr(line, f->last_text);
}

static int follow(const char *path, double seconds, const char *last_text)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * (double)NS_PER_S);
	int fd = open_file(path, O_RDONLY);
	char *buf = malloc(ANSWER_SZ + 1);
	struct followed f = {.last_text = last_text};
	uint64_t bytes = 0;
	size_t have = 0;

	while (buf && !f.over && now_ns() < end) {
		struct pollfd p = {fd, POLLIN, 0};
		ssize_t got;
		char *nl;

		if (poll(&p, 1, POLL_MS) < 0)
			fail("poll: %s", strerror(errno));
		got = p.revents ? read(fd, buf + have, ANSWER_SZ - have) : 0;
		if (got < 0)
			fail("read of events: %s", strerror(errno));
		have += (size_t)got;
		bytes += (uint64_t)got;
		while ((nl = memchr(buf, '\n', have)) != NULL) {
			*nl = '\0';
			look_at_line(&f, buf);
			have -= (size_t)(nl + 1 - buf);
			memmove(buf, nl + 1, have);
		}
	}
	(void)printf("lines %llu missed %llu bytes %llu\n", (unsigned long long)f.lines,
		     (unsigned long long)f.missed, (unsigned long long)bytes);
	free(buf);
	(void)close(fd);
	return 0;
}

static int scrape(const char *path, double seconds, double per_second)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * (double)NS_PER_S);
	uint64_t next = now_ns();
	char *buf = malloc(ANSWER_SZ + 1);
	uint64_t nr = 0, worst = 0;

	while (buf && now_ns() < end) {
		uint64_t start = now_ns();
		int fd = open_file(path, O_RDONLY);
		size_t len = 0;
		ssize_t got;

		while ((got = read(fd, buf + len, ANSWER_SZ - len)) > 0)
			len += (size_t)got;
		(void)close(fd);
		buf[len] = '\0';
		if (got < 0 || len < 100 || buf[len - 1] != '\n' || strncmp(buf, "# HELP ", 7) != 0)
			fail("a text of %zu bytes: %s", len, strerror(errno));
		if (now_ns() - start > worst)
			worst = now_ns() - start;
		nr++;
		next += (uint64_t)((double)NS_PER_S / per_second);
		sleep_until(next);
	}
	(void)printf("scrapes %llu worst_ms %llu\n", (unsigned long long)nr,
		     (unsigned long long)(worst / 1000000));
	free(buf);
	return 0;
}

/* The caller has seen to it that fsck takes a while. */
static int wait_for_answer(const char *path)
{
	int fd = open_file(path, O_RDWR | O_NONBLOCK);
	struct pollfd p = {fd, POLLIN, 0};
	char buf[65536];
	int nr_again = 0;
	ssize_t got;

	if (read(fd, buf, sizeof(buf)) != 0)
		fail("an answer to no question");
	for (int round = 0; round < 20; round++) {
		say(fd, "fsck\n", 5);
		while ((got = read(fd, buf, sizeof(buf) - 1)) < 0 && errno == EAGAIN) {
			nr_again++;
			if (poll(&p, 1, 60000) != 1 || !(p.revents & POLLIN))
				fail("poll waits in vain");
		}
		if (got <= 0)
			fail("no answer: %zd, %s", got, strerror(errno));
		buf[got] = '\0';
		if (buf[got - 1] != '\n' || !strstr(buf, "\"ok\":true"))
			fail("an odd answer: %.200s", buf);
	}
	(void)printf("again %d\n", nr_again);
	(void)close(fd);
	return nr_again > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "chat") == 0 && atoi(argv[3]) > 0 &&
	    atoi(argv[3]) <= THREADS_MAX)
		return chat(argv[2], atoi(argv[3]), atof(argv[4]), atof(argv[5]));
	if ((argc == 4 || argc == 5) && strcmp(argv[1], "follow") == 0)
		return follow(argv[2], atof(argv[3]), argv[4]);
	if (argc == 5 && strcmp(argv[1], "scrape") == 0)
		return scrape(argv[2], atof(argv[3]), atof(argv[4]));
	if (argc == 3 && strcmp(argv[1], "wait") == 0)
		return wait_for_answer(argv[2]);
	(void)fprintf(stderr, "usage: ctltalk chat|follow|scrape|wait FILE ...\n");
	return 2;
}
