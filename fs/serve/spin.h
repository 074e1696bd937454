/* fs/serve/spin.h - to look for the next request for a moment before sleeping */
#ifndef FS_SERVE_SPIN_H
#define FS_SERVE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>

/*
 * Whoever walks a tree for the first time asks for one thing after the other, each as soon as
 * he has the last. To put the thread that serves to sleep in between, and to wake it up, often
 * on a processor that sleeps as well, takes longer than to answer. So a thread whose last
 * requests came in such a stream looks for the next one for as long as that would take: one
 * thread of a session at a time, and only while there is a processor that nobody wants.
 * (Where all are wanted the kernel hands over on one of them, which is quick, and would have
 * to wait for us.)
 */
struct fs_spin {
	bool off;
	int nr_processors;
	int load_fd; /* /proc/loadavg, -1: off */
	_Atomic bool taken;
};

/* One thread's; zero-initialized. */
struct fs_spin_self {
	int credit; /* times it may still look in vain; negative: not at all for some time */
	int nr_looks;
	int short_sleeps;
	unsigned long long asleep_ns; /* since when */
};

void fs_spin_init(struct fs_spin *spin, bool off);
void fs_spin_fini(struct fs_spin *spin);

/* Before and after the thread waits for a request on the connection @fd. */
void fs_spin_before(struct fs_spin *spin, struct fs_spin_self *self, int fd);
void fs_spin_after(struct fs_spin *spin, struct fs_spin_self *self);

#endif
