/* cas/put/tmp.h - a file that has no name yet, or a temporary one, until it is published */
#ifndef CAS_PUT_TMP_H
#define CAS_PUT_TMP_H

#include <stdbool.h>

#include "cas/digest.h"

struct cas_store;

/*
 * A file being made below @top_fd (cas/, ac/ or a variant directory; borrowed). Unnamed
 * where the filesystem can (O_TMPFILE), else @path is its temporary name there, locked
 * (OFD, shared) so that whoever clears away stale ones can tell that it is in use.
 *
 * Or it is a file of somebody else's, leased, with the name @from_fd/@from (borrowed), which
 * it leaves when it is published, if nobody can change it then.
 */
struct cas_tmp {
	int fd; /* open for reading, and writing if it is ours; -1 when there is none */
	int top_fd;
	bool dressed;	  /* has a blob's mode and owner */
	bool own;	  /* may replace when it gets its name, see cas_tmp_open_own */
	const char *from; /* NULL: it is ours */
	int from_fd;
	char path[96];
};

#define CAS_TMP_NONE ((struct cas_tmp){.fd = -1})

/*
 * Make one in the shard of @hash; the shard's directory is made when missing. @named:
 * do not try for an unnamed one. Mode (now a blob's, less the umask) and owner are the
 * caller's to set.
 */
int cas_tmp_open(const struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ],
		 bool named, struct cas_tmp *out);

/*
 * The same, but a named one is called after the store's id and the hash, has no lock, and
 * takes the place of one that is there: whoever calls is the only one of this store to
 * make that blob. Where renames cannot refuse to replace it will replace, which keeps
 * them to one.
 */
int cas_tmp_open_own(const struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ],
		     bool named, struct cas_tmp *out);
/* Remove what a dead cas_tmp_open_own of this blob has left. */
void cas_tmp_sweep_own(const struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ]);

/*
 * One whose shard is not known yet: unnamed in @top_fd itself, or -EOPNOTSUPP.
 */
int cas_tmp_open_anywhere(int top_fd, struct cas_tmp *out);

/*
 * Give it the name of @hash, never replacing. The descriptor stays open.
 * -EEXIST: something has that name. -EXDEV, -EOPNOTSUPP: this file cannot be linked
 * there (another filesystem, no /proc); make a named one in the shard and copy.
 * -EBUSY: somebody else's file is not his alone, or not what the name says; it has its name.
 */
int cas_tmp_publish(const struct cas_store *store, struct cas_tmp *tmp,
		    const uint8_t hash[CAS_HASH_SZ]);

/* As publish, but replacing what has the name. Only for a named one. */
int cas_tmp_replace(struct cas_tmp *tmp, const uint8_t hash[CAS_HASH_SZ]);

/* Rename @top_fd/@from to @top_fd/@to without replacing, on any filesystem. -EEXIST. */
int cas_tmp_move(int top_fd, const char *from, const char *to);

/* Close it, and remove its temporary name if it still has one. Always safe. */
void cas_tmp_fini(struct cas_tmp *tmp);
#define auto_tmp __attribute__((cleanup(cas_tmp_fini)))

#endif
