/* tools/cmd/client.h - speak to a mount through its control file */
#ifndef TOOLS_CMD_CLIENT_H
#define TOOLS_CMD_CLIENT_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;
struct cli;
struct daemon;
struct err;

/*
 * One open control file. Every touch of the mount happens in a thread of its own that
 * is given up when its deadline passes: a mount that stopped answering costs an error,
 * never a hang. After -ETIMEDOUT or -EINTR only client_close is allowed. One thread.
 */
struct client;

/*
 * Open @mountpoint/.casbox/control. @cancel_fd (or -1) is a descriptor that becomes
 * readable when waiting has become pointless: -EINTR; not owned.
 * -ENOTCONN: the daemon of that mount is dead. -ENOENT: no casbox is mounted there.
 * -EACCES: the mount belongs to another user.
 */
int client_open(const char *mountpoint, int cancel_fd, struct client **out, struct err *err);
/* The same for a daemon that was found; -ETIMEDOUT at once when it is stopped. */
int client_open_daemon(const struct daemon *daemon, int cancel_fd, struct client **out,
		       struct err *err);

/*
 * The process whose mount namespace alone has the mount, and with it all paths that answers
 * name; 0: ours has it.
 */
pid_t client_hidden_in(const struct client *client);

/* The same for @mount, or when that is NULL for the mount that serves the store of @cli. */
int client_find(struct cli *cli, const char *mount, struct client **out, struct err *err);
void client_close(struct client *client);

/*
 * For commands that touch no data. Longer than the daemon's watchdog takes to break the
 * connection of a wedged mount, so that the answer is the kernel's error and not a guess.
 */
#define CLIENT_QUICK_MS 75000

/*
 * Send one command of @nr words and wait for its answer, for ever when @deadline_ms is
 * 0. 0: *answer is the JSON object, whatever it says.
 */
int client_call(struct client *client, const char *const *words, size_t nr, int deadline_ms,
		json_t **answer, struct err *err);

/* What an answer says: 0 when "ok", else its errno and error. */
int client_check(const json_t *answer, struct err *err);

/* Both; *answer (may be NULL) is set only on success. */
int client_ask(struct client *client, const char *const *words, size_t nr, int deadline_ms,
	       json_t **answer, struct err *err);

/* Append @word to @line so that the control file's parser reads it as one word. */
int client_quote(struct buf *line, const char *word);

/* A member of an answer as a string; "" when it is none. Borrowed. */
const char *client_text(const json_t *answer, const char *key);

#endif
