/* cas/put/put.h - turn bytes into a published blob */
#ifndef CAS_PUT_PUT_H
#define CAS_PUT_PUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cas/digest.h"

struct cas_store;
struct err;
struct watch;

/*
 * A put is OPEN, then SEALED, then PUBLISHED; freeing it earlier abandons it.
 * Nothing is visible to readers before PUBLISHED. One thread drives a put; different
 * puts need no locking between them.
 */
struct cas_put;

/* Start a put in @store, which must outlive it. -EROFS: the store is read-only. */
int cas_put_new(struct cas_store *store, struct cas_put **out, struct err *err);

/*
 * Tell @watch, which must outlive the put, how much cas_put_copy_fd has read so far (taken
 * back when the put is freed unpublished); as it says, that and cas_put_publish end with
 * -ECANCELED. For what may be large.
 */
void cas_put_set_watch(struct cas_put *put, const struct watch *watch);

int cas_put_write(struct cas_put *put, const void *data, size_t len, struct err *err);

/*
 * All of the regular file @fd from offset 0: reflinked where possible and hashed, else
 * copied and hashed in one pass. 1 MiB blocks of zeros stay holes.
 */
int cas_put_copy_fd(struct cas_put *put, int fd, struct err *err);

/*
 * Seal, compare against @expect (NULL: accept any) and publish. Finding the right blob
 * already there counts as success and changes nothing on disk; finding a wrong file
 * under the name replaces it.
 * -EBADMSG: the bytes do not hash to @expect; nothing was published.
 * -ENOSPC, -EDQUOT: nothing is left behind.
 */
int cas_put_publish(struct cas_put *put, const struct cas_digest *expect, struct cas_digest *out,
		    struct err *err);

/* Release the put; unpublished bytes disappear. NULL is fine. */
void cas_put_free(struct cas_put *put);

/* The whole journey for bytes in memory, or for a file. */
int cas_put_bytes(struct cas_store *store, const void *data, size_t len, struct cas_digest *out,
		  struct err *err);
int cas_put_fd(struct cas_store *store, int fd, struct cas_digest *out, struct err *err);

/*
 * Take the regular file @dir_fd/@name into the store. It is moved when nobody can
 * change it afterwards: link count 1, a read lease holds from before hashing until
 * after it left its name, its owner is or could be made the store's, same filesystem,
 * no space taken by blocks of zeros, and @may_move, which says that nobody else
 * is in its directory; else reflinked or copied and left where it is.
 * *moved tells which; on failure the file is where it was. -EAGAIN: the file changed while it was
 * copied, three times over.
 */
int cas_put_take(struct cas_store *store, int dir_fd, const char *name, bool may_move,
		 struct cas_digest *out, bool *moved, struct err *err);

/* What a file was found to hold when it looked like @st and nobody was writing to it. */
struct cas_put_known {
	struct stat st;
	struct cas_digest digest;
	bool shrinks; /* as cas_copy_probe_fd */
};

/* The same for a file of which something may be @known (NULL: nothing). */
int cas_put_take_known(struct cas_store *store, int dir_fd, const char *name, bool may_move,
		       const struct cas_put_known *known, struct cas_digest *out, bool *moved,
		       struct err *err);

/*
 * What cas_put_take_known would do about a file that may move, without doing it; *out is what the
 * file holds, and looks like, but for NOT_MOVABLE. Nobody may be able to write to it after that.
 */
enum cas_put_outlook {
	CAS_PUT_MOVABLE,     /* it would be moved */
	CAS_PUT_IS_BLOB,     /* the store has it, with a row, and counts this as a use */
	CAS_PUT_NOT_MOVABLE, /* it would be copied */
};
int cas_put_look(struct cas_store *store, int dir_fd, const char *name,
		 const struct cas_put_known *known, struct cas_put_known *out,
		 enum cas_put_outlook *outlook, struct err *err);

/*
 * For a file that had left its name and was no blob yet when whoever moved it was killed, as
 * earlier versions of cas_put_take did it: give the file of inode @ino its name back, which must be
 * free (-EEXIST); mode, owner and time stay those of a blob. 1: done, 0: there is no such file.
 */
int cas_put_untake(struct cas_store *store, uint64_t ino, int dir_fd, const char *name,
		   struct err *err);

#endif
