/* tools/run/run_identity.h - has anything changed in a tree of the host? */
#ifndef TOOLS_RUN_RUN_IDENTITY_H
#define TOOLS_RUN_RUN_IDENTITY_H

#include "cas/digest.h"

struct err;

/*
 * A digest of the names, kinds, modes, owners, sizes, inode numbers and times (mtime and
 * ctime) of @path and all below it; equal as long as nothing there was changed. What was
 * found is kept in @memory_fd (a directory, or -1), so that the next look costs one lstat
 * for each directory, program and shared library, and for every file in a tree of up to
 * 20,000 names. In a larger one a file that is neither program nor library and is written
 * to in place (not replaced, as package managers, install and mv do) is not noticed.
 * What is not there has an identity as well.
 */
int run_identity(int memory_fd, const char *path, struct cas_digest *out, struct err *err);

/* The same for the names right in the directory @path, and what its links lead to. */
int run_identity_shallow(const char *path, struct cas_digest *out, struct err *err);

#endif
