/* fs/serve/seat.c - to serve on the processor of whoever asks */
#include "fs/serve/seat.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"

#define STREAM_NS 100000ULL /* requests that follow each other within it are a stream, */
#define FIRST	  8	    /* after so many */
#define TICK_NS	  1000000ULL
#define FOLLOW_NS 200000ULL   /* at least, between two looks at where it comes from */
#define QUIET	  4	      /* ticks with less than two requests end it; */
#define BUSY	  3	      /* so do as many more without a free processor than with one, */
#define CROWD	  4	      /* and one where every fourth request was not of a dialogue */
#define REST_NS	  20000000ULL /* after such an end, before there is another */
#define LOOKS	  3	      /* at the load, before it begins */

struct fs_seat {
	struct fs_seat_options opts;
	pthread_t usher;
	bool started;
	int load_fd;   /* /proc/loadavg */
	sem_t called;  /* the usher is */
	sem_t entered; /* the waiter has */
	sem_t served;  /* a stream begins: for the waiter, who may hold no lock */
	_Atomic bool calling;
	_Atomic bool closed;
	/* The staff stands by on these. */
	struct lock lock;
	pthread_cond_t relieved;
	/* Written by the usher, with the lock held. */
	_Atomic bool taken; /* a stream is served */
	/* Of the usher. */
	_Atomic uint32_t guest;
	_Atomic unsigned long long rest_ns; /* no stream before */
	unsigned long long looked_ns;
	cpu_set_t own;
	int nr_own;
	int cpu;
	int nr_quiet;
	int nr_busy;
	/* Of the waiter. */
	_Atomic pid_t waiter;  /* 0: not there yet, or no more */
	_Atomic bool answered; /* but not back */
	/* Written by those who serve, each as he sees it. */
	_Atomic uint32_t tid;  /* who asked last */
	_Atomic uint32_t tid2; /* and who did before him */
	_Atomic unsigned long long asked_ns;
	_Atomic int nr_in_row;
	_Atomic unsigned nr_asked; /* since the last tick */
	_Atomic unsigned nr_crowd; /* of these, not of a dialogue */
	_Atomic int nr_open;	   /* wait for an answer */
};

static void pause_ns(unsigned long long ns)
{
	const struct timespec pause = {0, (long)ns};

	(void)nanosleep(&pause, NULL);
}

static void wait_for(sem_t *sem)
{
	while (sem_wait(sem) < 0)
		continue;
}

static int nr_running(const struct fs_seat *seat)
{
	char text[128];
	ssize_t len = pread(seat->load_fd, text, sizeof(text) - 1, 0);
	int nr;

	text[len > 0 ? len : 0] = '\0';
	return sscanf(text, "%*s %*s %*s %d/", &nr) == 1 ? nr : INT_MAX;
}

/*
 * Is a processor free besides those that the stream and others run on? Of the stream one runs, or
 * two: when the waiter has woken who asks but not come back. And we do, who need not.
 */
static bool has_room(const struct fs_seat *seat)
{
	return seat->opts.heedless ||
	       nr_running(seat) - atomic_load(&seat->answered) <= seat->nr_own;
}

/* The processor that @tid ran on last: field 39 of proc(5)'s stat. -1: nobody knows. */
static int place_of(uint32_t tid)
{
	char path[64];
	char text[1024];
	const char *at;
	ssize_t len;
	int cpu = -1;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%u/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	text[len > 0 ? len : 0] = '\0';
	at = strrchr(text, ')');
	for (int field = 2; at && field < 39; field++)
		at = strchr(at + 1, ' ');
	return at && sscanf(at, "%d", &cpu) == 1 ? cpu : -1;
}

/* False: the stream comes from where we must not be, or may not go. */
static bool follow(struct fs_seat *seat)
{
	uint32_t tid = atomic_load(&seat->tid);
	int cpu = place_of(tid);
	cpu_set_t set;

	atomic_store(&seat->guest, tid);
	seat->looked_ns = lock_now_ns();
	if (cpu < 0)
		cpu = seat->cpu;
	if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET((unsigned)cpu, &seat->own))
		return false;
	if (cpu == seat->cpu)
		return true;
	seat->cpu = cpu;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	return sched_setaffinity(atomic_load(&seat->waiter), sizeof(set), &set) == 0;
}

/* Anew each time: somebody may have told the process to be elsewhere. */
static bool know_own(struct fs_seat *seat)
{
	cpu_set_t own;

	if (sched_getaffinity(0, sizeof(own), &own) < 0)
		return false;
	seat->own = own;
	seat->nr_own = CPU_COUNT(&own);
	return seat->nr_own > 1;
}

static void set_taken(struct fs_seat *seat, bool taken)
{
	lock_take(&seat->lock);
	atomic_store(&seat->taken, taken);
	if (!taken)
		(void)pthread_cond_broadcast(&seat->relieved);
	lock_drop(&seat->lock);
}

static bool set_policy(const struct fs_seat *seat, int policy)
{
	struct sched_param param = {0};

	(void)sched_getparam(0, &param);
	if (policy == SCHED_IDLE)
		param.sched_priority = 0;
	return sched_setscheduler(atomic_load(&seat->waiter), policy, &param) == 0;
}

static bool begin(struct fs_seat *seat)
{
	bool room = false;

	if (!know_own(seat))
		return false;
	/* One who asks and one who serves may be seen both at once. */
	for (int i = 0; i < LOOKS && !room; i++) {
		if (i > 0)
			pause_ns(TICK_NS / 20);
		room = has_room(seat);
	}
	seat->cpu = -1;
	seat->nr_quiet = 0;
	seat->nr_busy = 0;
	if (!room || !follow(seat) || !set_policy(seat, SCHED_IDLE))
		return false;
	atomic_store(&seat->nr_asked, 0);
	atomic_store(&seat->nr_crowd, 0);
	set_taken(seat, true);
	(void)sem_post(&seat->served);
	return true;
}

static void end(struct fs_seat *seat, bool rest)
{
	if (atomic_load(&seat->taken))
		set_taken(seat, false);
	atomic_store(&seat->rest_ns, rest ? lock_now_ns() + REST_NS : 0);
	(void)know_own(seat);
	(void)sched_setaffinity(atomic_load(&seat->waiter), sizeof(seat->own), &seat->own);
	(void)set_policy(seat, sched_getscheduler(0)); /* refused: see seat.h */
}

static bool is_waited_for(const struct fs_seat *seat)
{
	struct pollfd p = {.fd = seat->opts.fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* A tick has passed. */
static bool goes_on(struct fs_seat *seat, bool *rest)
{
	unsigned nr_asked = atomic_exchange(&seat->nr_asked, 0);
	unsigned nr_crowd = atomic_exchange(&seat->nr_crowd, 0);

	seat->nr_quiet = nr_asked < 2 ? seat->nr_quiet + 1 : 0;
	if (!has_room(seat))
		seat->nr_busy++;
	else if (seat->nr_busy > 0)
		seat->nr_busy--;
	*rest = seat->nr_busy >= BUSY || nr_crowd * CROWD > nr_asked ||
		(nr_asked == 0 && is_waited_for(seat));
	return !*rest && seat->nr_quiet < QUIET;
}

static void serve_stream(struct fs_seat *seat)
{
	unsigned long long tick = lock_now_ns() + TICK_NS;
	bool rest = !begin(seat);

	while (!rest && !atomic_load(&seat->closed)) {
		const struct timespec until = {(time_t)(tick / 1000000000),
					       (long)(tick % 1000000000)};
		unsigned long long now;

		(void)sem_clockwait(&seat->called, CLOCK_MONOTONIC, &until);
		atomic_store(&seat->calling, false);
		now = lock_now_ns();
		if (now >= tick && !goes_on(seat, &rest))
			break;
		if (now >= tick)
			tick = now + TICK_NS;
		if (now - seat->looked_ns >= FOLLOW_NS)
			rest = !follow(seat);
	}
	end(seat, rest);
}

static void *usher_thread(void *arg)
{
	struct fs_seat *seat = arg;

	wait_for(&seat->entered);
	while (!atomic_load(&seat->closed)) {
		wait_for(&seat->called);
		atomic_store(&seat->calling, false);
		if (!atomic_load(&seat->closed))
			serve_stream(seat);
	}
	return NULL;
}

static int start(struct fs_seat *seat)
{
	char name[16];
	int ret;

	if (!know_own(seat))
		return -ENOENT;
	seat->load_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	if (seat->load_fd < 0)
		return -errno;
	ret = -pthread_create(&seat->usher, NULL, usher_thread, seat);
	if (ret < 0)
		return ret;
	seat->started = true;
	(void)snprintf(name, sizeof(name), "usher-%s", seat->opts.name);
	(void)pthread_setname_np(seat->usher, name);
	return 0;
}

NO_LOCK_CHECK int fs_seat_new(const struct fs_seat_options *opts, struct fs_seat **out)
{
	struct fs_seat *seat = calloc(1, sizeof(*seat));
	int ret;

	if (!seat)
		return -ENOMEM;
	seat->opts = *opts;
	seat->load_fd = -1;
	(void)sem_init(&seat->called, 0, 0);
	(void)sem_init(&seat->entered, 0, 0);
	(void)sem_init(&seat->served, 0, 0);
	lock_init(&seat->lock, LOCK_RANK_QUEUE, "seat");
	lock_cond_init(&seat->relieved);
	ret = start(seat);
	if (ret < 0) {
		fs_seat_free(seat);
		return ret;
	}
	*out = seat;
	return 0;
}

void fs_seat_close(struct fs_seat *seat)
{
	if (!seat || atomic_exchange(&seat->closed, true))
		return;
	(void)sem_post(&seat->entered);
	(void)sem_post(&seat->called);
	if (seat->started)
		(void)pthread_join(seat->usher, NULL);
	(void)sem_post(&seat->served);
}

NO_LOCK_CHECK void fs_seat_free(struct fs_seat *seat)
{
	if (!seat)
		return;
	fs_seat_close(seat);
	if (seat->load_fd >= 0)
		(void)close(seat->load_fd);
	(void)sem_destroy(&seat->called);
	(void)sem_destroy(&seat->entered);
	(void)sem_destroy(&seat->served);
	(void)pthread_cond_destroy(&seat->relieved);
	lock_fini(&seat->lock);
	free(seat);
}

void fs_seat_enter(struct fs_seat *seat)
{
	atomic_store(&seat->waiter, gettid());
	(void)sem_post(&seat->entered);
}

void fs_seat_before(struct fs_seat *seat, enum fs_seat_role role)
{
	if (!seat)
		return;
	if (role == FS_SEAT_WAITER) {
		atomic_store(&seat->answered, false);
		while (!atomic_load(&seat->taken) && !atomic_load(&seat->closed))
			(void)sem_wait(&seat->served);
	} else if (atomic_load(&seat->taken)) {
		lock_take(&seat->lock);
		while (atomic_load(&seat->taken))
			(void)lock_wait(&seat->lock, &seat->relieved, 0);
		lock_drop(&seat->lock);
	}
}

static void call(struct fs_seat *seat)
{
	if (!atomic_exchange(&seat->calling, true))
		(void)sem_post(&seat->called);
}

/* Nobody is served yet: is it a stream? */
static void count(struct fs_seat *seat, bool crowd)
{
	unsigned long long now = lock_now_ns();

	if (crowd || now - atomic_exchange(&seat->asked_ns, now) > STREAM_NS)
		atomic_store(&seat->nr_in_row, 0);
	else if (atomic_fetch_add(&seat->nr_in_row, 1) >= FIRST &&
		 now >= atomic_load(&seat->rest_ns))
		call(seat);
}

/* Two who take turns are two streams. */
static bool is_back(struct fs_seat *seat, uint32_t tid, uint32_t last)
{
	return tid != last && atomic_exchange(&seat->tid2, last) == tid;
}

void fs_seat_asked(struct fs_seat *seat, uint32_t tid, bool bulk)
{
	bool crowd = bulk;
	uint32_t last;

	if (!seat)
		return;
	/* Beside one that nobody waits for, such as a RELEASE, it is a dialogue still. */
	crowd |= atomic_fetch_add(&seat->nr_open, 1) > 1;
	if (tid == 0)
		return;
	last = atomic_exchange(&seat->tid, tid);
	crowd |= is_back(seat, tid, last);
	(void)atomic_fetch_add(&seat->nr_asked, 1);
	if (crowd)
		(void)atomic_fetch_add(&seat->nr_crowd, 1);
	if (!atomic_load(&seat->taken))
		count(seat, crowd);
	else if (tid == last && tid != atomic_load(&seat->guest))
		call(seat);
}

void fs_seat_answered(struct fs_seat *seat)
{
	if (!seat)
		return;
	(void)atomic_fetch_sub(&seat->nr_open, 1);
	if (atomic_load(&seat->taken))
		atomic_store(&seat->answered, true);
}

bool fs_seat_is_taken(const struct fs_seat *seat)
{
	return seat && atomic_load(&seat->taken);
}
