/* cas/reapi/closure_i.h - all blobs below some Directories or results, each once */
#ifndef CAS_REAPI_CLOSURE_I_H
#define CAS_REAPI_CLOSURE_I_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "cas/digest.h"

struct cas_closure_seen; /* closure.c */
struct cas_store;
struct err;

struct cas_digests {
	struct cas_digest *at;
	size_t nr;
	size_t cap;
};

/* -ENOMEM. */
int cas_digests_add(struct cas_digests *list, const struct cas_digest *digest);

/*
 * @files in the order in which they were met; @dirs level by level, @levels[i] being where
 * level i begins. The empty blob is left out.
 */
struct cas_closure {
	struct cas_store *store;
	const _Atomic bool *cancel;
	struct cas_digests files;
	struct cas_digests dirs;
	size_t *levels;
	size_t nr_levels;
	struct cas_closure_seen *seen;
};

void cas_closure_init(struct cas_closure *c, struct cas_store *store, const _Atomic bool *cancel);
void cas_closure_fini(struct cas_closure *c);

int cas_closure_add_file(struct cas_closure *c, const struct cas_digest *digest);

/*
 * The Directory and all below it, which are read from the store (or come from its tiers).
 * Errors as cas_directory_load, and -ECANCELED.
 */
int cas_closure_add_tree(struct cas_closure *c, const struct cas_digest *root, struct err *err);

/*
 * What the stored result of @action names: files, streams, Trees and their files, root
 * Directories; and Action and Command, when they are here. Errors as above, -ENOENT: there
 * is no such result.
 */
int cas_closure_add_action(struct cas_closure *c, const struct cas_digest *action, struct err *err);

/* The same of an ActionResult that is a blob, which is not added itself. */
int cas_closure_add_outputs(struct cas_closure *c, const struct cas_digest *result,
			    struct err *err);

#endif
