/* cas/base/call.c - how long something may take, and who may end it earlier */
#include "cas/base/call.h"

#include <errno.h>
#include <stddef.h>

void cas_call_init(struct cas_call *call, unsigned timeout_ms)
{
	*call = (struct cas_call){0};
	if (timeout_ms > 0)
		call->deadline_ns = lock_now_ns() + timeout_ms * 1000000ULL;
	lock_init(&call->lock, LOCK_RANK_QUEUE, "cas_call.lock");
}

void cas_call_fini(struct cas_call *call)
{
	lock_fini(&call->lock);
}

void cas_call_cancel(struct cas_call *call)
{
	lock_take(&call->lock);
	atomic_store(&call->cancelled, true);
	if (call->wake)
		call->wake(call->wake_ctx);
	lock_drop(&call->lock);
}

void cas_call_register(struct cas_call *call, void (*wake)(void *ctx), void *ctx)
{
	lock_take(&call->lock);
	call->wake = wake;
	call->wake_ctx = ctx;
	if (atomic_load(&call->cancelled))
		wake(ctx);
	lock_drop(&call->lock);
}

void cas_call_unregister(struct cas_call *call)
{
	lock_take(&call->lock);
	call->wake = NULL;
	call->wake_ctx = NULL;
	lock_drop(&call->lock);
}

static unsigned long long earlier(unsigned long long a, unsigned long long b)
{
	return b > 0 && b < a ? b : a;
}

void cas_call_pace(struct cas_call *call, unsigned window_ms, unsigned long long limit_ns)
{
	call->window_ns = window_ms * 1000000ULL;
	call->begun_ns = lock_now_ns();
	call->limit_ns = limit_ns;
	call->moved = 0;
	atomic_store(&call->deadline_ns, earlier(call->begun_ns + call->window_ns, limit_ns));
}

void cas_call_progress(struct cas_call *call, uint64_t bytes)
{
	unsigned long long slowest;

	if (call->window_ns == 0)
		return;
	call->moved += bytes;
	slowest = call->begun_ns + call->window_ns +
		  call->moved / CAS_CALL_SLOWEST * 1000000000ULL +
		  call->moved % CAS_CALL_SLOWEST * 1000000000ULL / CAS_CALL_SLOWEST;
	slowest = earlier(slowest, call->limit_ns);
	atomic_store(&call->deadline_ns, earlier(lock_now_ns() + call->window_ns, slowest));
}

int cas_call_check(const struct cas_call *call)
{
	unsigned long long deadline = atomic_load(&call->deadline_ns);

	if (atomic_load(&call->cancelled))
		return -ECANCELED;
	return deadline > 0 && lock_now_ns() >= deadline ? -ETIMEDOUT : 0;
}

unsigned cas_call_left_ms(const struct cas_call *call, unsigned max)
{
	unsigned long long deadline = atomic_load(&call->deadline_ns);
	unsigned long long now = lock_now_ns();
	unsigned long long left;

	if (deadline == 0)
		return max;
	if (now >= deadline)
		return 0;
	/* Rounded up: a wait of 0 ms just before the deadline would spin. */
	left = (deadline - now + 999999) / 1000000;
	return left < max ? (unsigned)left : max;
}
