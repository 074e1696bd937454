/* fs/helper/helper_look.h - the mount helper's side of looking at directories and names */
#ifndef FS_HELPER_HELPER_LOOK_H
#define FS_HELPER_HELPER_LOOK_H

struct err;

/*
 * A copy of the mount at a base, alone, without those on it: what is opened there holds
 * no mount of a sandbox, and so is in nobody's way who unmounts one. Made when it is
 * needed and kept for a moment, since letting go of a mount takes the kernel milliseconds;
 * not longer, as session one does not end while there is one. Where none may be made the
 * mount itself is looked at: nothing is mounted on it there.
 */
struct helper_bare {
	int fd; /* -1: none yet */
};

/* Read the directory @target below @base to its end. */
int helper_list(struct helper_bare *bare, const char *base, const char *target, struct err *err);

/* Have the kernel know the name @target, and whose attributes it has. As above. */
int helper_look(struct helper_bare *bare, const char *base, const char *target, struct err *err);

struct pollfd;

/* Wait for one of @fds to be readable; let go of the copy when that takes long. */
void helper_bare_rest(struct helper_bare *bare, struct pollfd *fds, unsigned nr);

#endif
