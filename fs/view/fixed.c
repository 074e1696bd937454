/* fs/view/fixed.c - directories and files that are always there */
#include "fs/view/fixed.h"

#include "fs/node/identity.h"

int fs_fixed_entry(const struct fs_view *view, const struct fs_fixed *fixed, const char *label,
		   struct fs_entry *out)
{
	out->view = view;
	out->kind = fixed->kind;
	out->tag = fixed->tag;
	out->has_mode = true;
	out->mode = fixed->mode;
	out->fleeting = fixed->kind == FS_KIND_TEXT || fixed->kind == FS_KIND_CONTROL ||
			fixed->kind == FS_KIND_EVENTS;
	return fs_key_of_label(label, NULL, &out->key);
}
