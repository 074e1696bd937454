/* fs/serve/spin.c - to look for the next request for a moment before sleeping */
#include "fs/serve/spin.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "cas/base/lock.h"

#define SPIN_NS	   60000ULL
#define CREDIT_MAX 4
#define LOOKS	   64 /* at the load once in so many */

void fs_spin_init(struct fs_spin *spin, bool off)
{
	cpu_set_t set;

	/* Fails when the machine has more processors than the set has bits: plenty, then. */
	spin->nr_processors =
		sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
	spin->load_fd =
		off || spin->nr_processors < 2 ? -1 : open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	spin->off = spin->load_fd < 0;
	atomic_init(&spin->taken, false);
}

void fs_spin_fini(struct fs_spin *spin)
{
	if (!spin->off)
		(void)close(spin->load_fd);
}

/* Is a processor left for whoever we answer, besides ours and those that others run on? */
static bool has_room(const struct fs_spin *spin)
{
	char text[128];
	ssize_t len = pread(spin->load_fd, text, sizeof(text) - 1, 0);
	int nr;

	text[len > 0 ? len : 0] = '\0';
	return sscanf(text, "%*s %*s %*s %d/", &nr) == 1 && nr + 1 <= spin->nr_processors;
}

static bool look(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	unsigned long long end = lock_now_ns() + SPIN_NS;

	/* To yield the processor would cost a slice of whoever gets it, far more than this. */
	while (poll(&p, 1, 0) == 0) {
		if (lock_now_ns() >= end)
			return false;
	}
	return true;
}

void fs_spin_before(struct fs_spin *spin, struct fs_spin_self *self, int fd)
{
	if (spin->off)
		return;
	if (self->credit > 0 && self->nr_looks++ % LOOKS == 0 && !has_room(spin))
		self->credit = -LOOKS;
	if (self->credit > 0 && !atomic_exchange(&spin->taken, true)) {
		self->credit = look(fd) ? CREDIT_MAX : self->credit - 1;
		self->short_sleeps = 0;
		atomic_store(&spin->taken, false);
	}
	self->asleep_ns = lock_now_ns();
}

/* Two short sleeps in a row are a stream; looking in vain a few times is its end, and so is load,
 * for some time. */
void fs_spin_after(struct fs_spin *spin, struct fs_spin_self *self)
{
	if (spin->off || self->credit > 0)
		return;
	if (self->credit < 0) {
		self->credit++;
		return;
	}
	if (lock_now_ns() - self->asleep_ns >= SPIN_NS)
		self->short_sleeps = 0;
	else if (++self->short_sleeps == 2)
		self->credit = CREDIT_MAX;
}
