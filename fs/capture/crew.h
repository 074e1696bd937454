/* fs/capture/crew.h - threads that lend a hand */
#ifndef FS_CAPTURE_CREW_H
#define FS_CAPTURE_CREW_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/*
 * Threads that take over parts of what somebody has to do and waits for. There are as many
 * as processors, on more than one, and they never make anybody wait: who has work begins at
 * once, and does all of it himself when they are busy with others'. Any thread may bring
 * some.
 */
struct fs_crew;

int fs_crew_new(struct fs_crew **out, struct err *err);
/* Nobody has work any more. NULL is fine. */
void fs_crew_free(struct fs_crew *crew);

/*
 * Call @item once for each number below @nr, on this thread and on others, in no order;
 * all calls are over when it returns. No locks held. NULL: on this thread alone.
 */
void fs_crew_run(struct fs_crew *crew, size_t nr, void (*item)(void *ctx, size_t i), void *ctx);

/*
 * Have one thread that is idle call @fn, while this one goes on. NULL: none is, or there is
 * no memory. What was lent is asked back in any case.
 */
struct fs_crew_loan;
struct fs_crew_loan *fs_crew_lend(struct fs_crew *crew, void (*fn)(void *ctx), void *ctx);
/* True: it was called, and is over. False: it never will be, and NULL was. */
bool fs_crew_return(struct fs_crew *crew, struct fs_crew_loan *loan);

#endif
