/* cas/store/lease.h - is anybody able to write to this file? */
#ifndef CAS_STORE_LEASE_H
#define CAS_STORE_LEASE_H

/*
 * Read leases. A lease is granted while nobody has the file open for writing, in this or
 * any other process, nor mapped shared and writable; an open for writing afterwards
 * breaks it and waits until it is released. Losing one sends no signal here.
 */

/*
 * Take one on @fd, which must be open for reading only. -EAGAIN: there is a writer.
 * -EACCES: not our file; -EOPNOTSUPP: the filesystem has no leases.
 */
int cas_lease_take(int fd);

/* 1 while it holds and nobody has asked to write, 0 when broken. */
int cas_lease_held(int fd);

void cas_lease_drop(int fd);

#endif
