/* cas/spool/spool_i.h - what the files of the spool share */
#ifndef CAS_SPOOL_SPOOL_I_H
#define CAS_SPOOL_SPOOL_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "cas/base/lock.h"
#include "cas/catalog.h"
#include "cas/spool/spool.h"

#define HASH_NONFATAL_OOM 1
/* A SHA-256 needs no further hashing. */
#define HASH_FUNCTION(key, len, out) memcpy(&(out), (key), sizeof(out))
#include <uthash.h>

struct cas_put_bytes_at;
struct err;

#define CAS_SPOOL_MOVERS_MAX 255
#define CAS_SPOOL_NS_PER_MS  1000000ULL
/* A blob that failed so often (some six seconds) is stuck as far as waiters are concerned. */
#define CAS_SPOOL_STUCK 6

/*
 * The other store that owns DIR does not unlink what was touched less than FLOOR ago, so
 * a blob is safe from it once we have seen it there HOLD after its last touch.
 */
#define CAS_OWNER_FLOOR_SEC 600
#define CAS_OWNER_HOLD_SEC  5

enum cas_spool_state {
	CAS_SPOOL_READY,   /* in the list of those to move */
	CAS_SPOOL_WAITING, /* until due_ns: failed, or another process moves it */
	CAS_SPOOL_MOVING,  /* a thread has it, without the lock */
	CAS_SPOOL_MOVED,   /* in the blob directory, not yet durable there */
	CAS_SPOOL_HELD,	   /* there and durable; looked at again when due */
};

/* One spool file. The table owns it; whoever moves it may read what does not change. */
struct cas_spool_entry {
	struct cas_digest digest;
	struct cas_stamp stamp; /* of the spool file when its bytes were right */
	bool known;		/* stamp is valid */
	bool own;		/* accepted by this process */
	bool leftover;		/* somebody may have died moving it */
	bool again;		/* accepted once more while it was being moved */
	bool seen;		/* by the scan that runs */
	bool hold;		/* MOVED: its owner may still remove it */
	enum cas_spool_state state;
	uint64_t seq; /* in the order of acceptance, as far as that is known */
	unsigned attempts;
	unsigned long long due_ns;
	struct cas_spool_entry *next; /* of those READY, or MOVED */
	UT_hash_handle hh;
};

/* A result that waits. The table owns it; while it is @moving only the mover drops it. */
struct cas_spool_result {
	uint8_t hash[CAS_HASH_SZ]; /* of its action */
	uint64_t after;		   /* blobs with a lower seq move first */
	bool own;
	bool moving;
	bool again; /* put once more while it was being moved */
	bool seen;  /* by the scan that runs */
	unsigned attempts;
	unsigned long long due_ns; /* 0: at once */
	UT_hash_handle hh;
};

struct cas_spool {
	struct cas_store *store;
	struct cas_spool_options opts;
	int service_fd; /* STORE/spool/.mover; -1: not open */
	int results_fd; /* STORE/spool/results; -1: not open */

	struct lock lock; /* a leaf; guards the rest */
	pthread_cond_t work;
	pthread_cond_t room; /* an entry went, or moved on */
	pthread_cond_t end;  /* stop was set */
	struct cas_spool_entry *table;
	struct cas_spool_result *results;
	uint64_t next_seq;
	bool moving_results;
	struct cas_spool_entry *ready;
	struct cas_spool_entry **ready_tail;
	struct cas_spool_entry *moved;
	unsigned nr_moved;
	unsigned char at_work[256]; /* threads that move into each shard */
	unsigned nr_later;	    /* WAITING or HELD */
	uint64_t bytes;
	bool passive; /* another process serves: nothing is moved here */
	bool scanned; /* the leftovers have been looked for */
	bool scanning;
	bool settling;
	bool stop;
	int nr_idle;
	int nr_threads;
	pthread_t threads[CAS_SPOOL_MOVERS_MAX];
	pthread_t scanner;
	bool has_scanner;
	char last_error[256];
	unsigned long long told_ns; /* when a failure was last logged */
};

/* Take a blob, in memory or in a file: durable with the next cas_store_sync. */
int cas_spool_accept(struct cas_store *store, const struct cas_digest *digest,
		     const struct cas_put_bytes_at *from, struct err *err);

/* For the store's looks: 1, 0, negative. */
int cas_spool_has(struct cas_store *store, const struct cas_digest *digest);
/* 1 and *size when a spool file has that hash. */
int cas_spool_size(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ], uint64_t *size);
/*
 * 0 and *fd (may be NULL) when its bytes are right, -ENOENT, -EBADMSG (wrong, and moved
 * aside) or another errno.
 */
int cas_spool_check(struct cas_store *store, const struct cas_digest *digest, int *fd,
		    struct err *err);
/* After puts: let whoever serves the spool know. */
void cas_spool_wake(struct cas_store *store);

/* Lock held. Find, or add (NULL: no memory). A new one is READY unless we are passive. */
struct cas_spool_entry *cas_spool_find_locked(struct cas_spool *s, const uint8_t *hash)
	REQUIRES(s->lock);
struct cas_spool_entry *cas_spool_add_locked(struct cas_spool *s, const struct cas_digest *digest)
	REQUIRES(s->lock);

/* Let a thread look for work. */
void cas_spool_call_mover_locked(struct cas_spool *s) REQUIRES(s->lock);

/* Bring the table up to date with the files; each new one is a leftover if @leftover. */
int cas_spool_scan(struct cas_spool *s, bool leftover, struct err *err);
/* The thread of one that serves. */
void *cas_spool_scanner(void *arg);

/* Lock held on entry and return. Does another process serve? Else start to move here. */
bool cas_spool_is_served_locked(struct cas_spool *s) REQUIRES(s->lock);

/* What is to be moved, copied out of the entry. */
struct cas_spool_job {
	struct cas_digest digest;
	struct cas_stamp stamp;
	bool known;
	bool leftover;
};

/*
 * Move one: 0 it is in the blob directory, *hold tells whether its owner might still
 * remove it. -ENOENT: no such spool file any more. -EBUSY: another process is at it.
 * -EBADMSG: the spool file is wrong, and was moved aside. Else why it did not work.
 */
int cas_spool_move(struct cas_spool *s, const struct cas_spool_job *job, bool *hold,
		   struct err *err);
/* Look once more, after the hold: 1 there, 0 gone, negative. */
int cas_spool_confirm(struct cas_spool *s, const struct cas_digest *digest);
int cas_spool_unlink(struct cas_spool *s, const struct cas_digest *digest);

/* --- results (spool_result.c) --- */

/* The waiting result of an action, or -ENOENT. */
int cas_spool_result_open(const struct cas_store *store, const uint8_t hash[CAS_HASH_SZ]);
/* The directory of those that wait, or -ENOENT. */
int cas_spool_results_open(int spool_fd);
int cas_spool_results_make(struct cas_spool *s, struct err *err);
void cas_spool_results_free(struct cas_spool *s);
/* Take one: durable with the next cas_store_sync. */
int cas_spool_result_put(struct cas_spool *s, const struct cas_digest *action, const void *data,
			 size_t len);

/* Lock held on entry and return. Find or add; NULL: no memory. */
struct cas_spool_result *cas_spool_result_add_locked(struct cas_spool *s, const uint8_t *hash)
	REQUIRES(s->lock);
/* Those that no scan has seen have been moved by another process. */
void cas_spool_results_forget_locked(struct cas_spool *s) REQUIRES(s->lock);
/* Do any wait? *stuck becomes false when one of them has not failed often. */
bool cas_spool_results_left_locked(const struct cas_spool *s, bool own_only, bool *stuck)
	REQUIRES(s->lock);
/* Move some of those whose time has come; false: there was none. */
bool cas_spool_move_results_locked(struct cas_spool *s) REQUIRES(s->lock);
/* When the next that failed is due; 0: none. */
unsigned long long cas_spool_results_due_locked(const struct cas_spool *s) REQUIRES(s->lock);

#endif
