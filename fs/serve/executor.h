/* fs/serve/executor.h - threads that run what may block, and never serve */
#ifndef FS_SERVE_EXECUTOR_H
#define FS_SERVE_EXECUTOR_H

/*
 * Jobs start in order of submission, each on a thread of its own while there are fewer
 * than the limit. Threads are started when a job finds none idle, and stay.
 */
struct fs_executor;

/* Embed as you like; owned by the submitter, not touched after run was called. */
struct fs_job {
	void (*run)(struct fs_job *job);
	struct fs_job *next; /* the executor's */
};

int fs_executor_new(int max_threads, struct fs_executor **out);

/* Any thread, does not block. */
void fs_executor_submit(struct fs_executor *executor, struct fs_job *job);

/* Runs what was submitted, joins the threads. Nothing may be submitted any more. */
void fs_executor_free(struct fs_executor *executor);

#endif
