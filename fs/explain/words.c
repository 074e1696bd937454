/* fs/explain/words.c - an explanation in words */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cas/base/buf.h"
#include "fs/explain/explain.h"

#define LISTED 20

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

static json_int_t number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static bool is(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

static bool has(const json_t *o, const char *key)
{
	return json_object_get(o, key) != NULL;
}

/* A moment as people read it, and how long ago that is. */
static void moment(json_int_t ns, char out[96])
{
	time_t sec = (time_t)(ns / 1000000000);
	int64_t ago = (int64_t)time(NULL) - (int64_t)sec;
	struct tm tm;
	size_t len;

	if (ns <= 0 || localtime_r(&sec, &tm) == NULL) {
		(void)strcpy(out, "at a time that is not known");
		return;
	}
	len = strftime(out, 64, "on %Y-%m-%d at %H:%M:%S", &tm);
	if (ago >= 172800)
		(void)snprintf(out + len, 96 - len, ", %" PRId64 " days ago", ago / 86400);
	else if (ago >= 7200)
		(void)snprintf(out + len, 96 - len, ", %" PRId64 " hours ago", ago / 3600);
	else if (ago >= 120)
		(void)snprintf(out + len, 96 - len, ", %" PRId64 " minutes ago", ago / 60);
	else if (ago >= 0)
		(void)snprintf(out + len, 96 - len, ", %" PRId64 " s ago", ago);
}

static int line_at(struct buf *out, const char *before, json_int_t ns)
{
	char when[96];

	moment(ns, when);
	return buf_printf(out, "%s %s.\n", before, when);
}

static int words_of_place(const json_t *f, struct buf *out)
{
	int ret = 0;

	if (is(f, "present"))
		ret = buf_printf(out,
				 "It lies at %s, mode %04o, and takes %lld bytes of the disk.\n",
				 text_of(f, "path"), (unsigned)number_of(f, "mode"),
				 (long long)number_of(f, "disk_bytes"));
	else if (is(f, "empty"))
		ret = buf_append_str(out, "It is empty: every store has it, and no file.\n");
	else if (!has(f, "spool_path"))
		ret = buf_printf(out, "It is not in this store%s.\n",
				 number_of(f, "tiers") > 0
					 ? "; who opens it asks the tiers for it"
					 : ", and there are no tiers to ask for it");
	if (ret == 0 && has(f, "spool_path"))
		ret = buf_printf(out, "It waits in the spool, at %s, to be moved.\n",
				 text_of(f, "spool_path"));
	if (ret == 0 && is(f, "present"))
		ret = buf_append_str(
			out, is(f, "hashed") ? "It is as it was when it was last hashed.\n"
					     : "It will be hashed before it is served next: it "
					       "is not known to be right.\n");
	if (ret == 0 && (has(f, "hardlink_0444") || has(f, "hardlink_0555")))
		ret = buf_printf(out, "Hardlink checkouts link %s.\n",
				 has(f, "hardlink_0444") ? text_of(f, "hardlink_0444")
							 : text_of(f, "hardlink_0555"));
	return ret;
}

static int words_of_origin(const json_t *f, struct buf *out)
{
	int ret = 0;

	if (has(f, "source")) {
		ret = buf_printf(out, "It came from the tier %s", text_of(f, "source"));
		if (ret == 0)
			ret = line_at(out, "", number_of(f, "came_ns"));
	} else if (has(f, "recorded_ns")) {
		ret = line_at(out, "It was put here, not brought from a tier; first recorded",
			      number_of(f, "recorded_ns"));
	} else if (is(f, "present")) {
		ret = buf_append_str(out, "Nothing is recorded of where it came from.\n");
	}
	if (ret == 0 && has(f, "last_use_ns"))
		ret = line_at(out, "It was last used", number_of(f, "last_use_ns"));
	return ret;
}

/* "@what: @nr", and the first of them. */
static int words_of_list(const json_t *f, const char *nr_key, const char *key, const char *what,
			 const char *name, const char *as, struct buf *out)
{
	const json_t *list = json_object_get(f, key);
	json_int_t nr = number_of(f, nr_key);
	int ret = 0;

	if (nr == 0)
		return 0;
	ret = buf_printf(out, "%s: %lld\n", what, (long long)nr);
	for (size_t i = 0; ret == 0 && i < json_array_size(list); i++) {
		const json_t *o = json_array_get(list, i);
		const char *path = text_of(o, "path");

		ret = buf_printf(out, "    %s", text_of(o, name));
		if (ret == 0 && as && *text_of(o, as))
			ret = buf_printf(out, " (%s)", text_of(o, as));
		if (ret == 0 && has(o, "path"))
			ret = buf_printf(out, " %s", *path ? path : "as a whole");
		if (ret == 0)
			ret = buf_append_char(out, '\n');
	}
	if (ret == 0 && (size_t)nr > json_array_size(list))
		ret = buf_append_str(out, "    ...\n");
	return ret;
}

static int words_of_blob(const json_t *f, struct buf *out)
{
	int ret = buf_printf(out, "%s is %s of %lld bytes.\n", text_of(f, "digest"),
			     is(f, "directory") ? "a Directory" : "a blob",
			     (long long)number_of(f, "size"));

	if (ret == 0)
		ret = words_of_place(f, out);
	if (ret == 0)
		ret = words_of_origin(f, out);
	if (ret == 0)
		ret = words_of_list(f, "nr_pins", "pins", "Pins that keep it", "pin", NULL, out);
	if (ret == 0)
		ret = words_of_list(f, "nr_sandboxes", "sandboxes", "Sandboxes that have it",
				    "sandbox", "as", out);
	if (ret == 0)
		ret = words_of_list(f, "nr_results", "results", "Stored results that name it",
				    "action", "as", out);
	if (ret == 0 && number_of(f, "nr_pins") + number_of(f, "nr_sandboxes") == 0 &&
	    is(f, "present"))
		ret = buf_append_str(out, "No pin and no sandbox needs it: it may be evicted when "
					  "it is the least recently used.\n");
	if (ret == 0 && number_of(f, "directories_unread") > 0)
		ret = buf_printf(
			out, "%lld Directories of these could not be read: it may be in them.\n",
			(long long)number_of(f, "directories_unread"));
	return ret;
}

static int words_of_time(const json_t *f, const char *key, const char *what, struct buf *out)
{
	if (!has(f, key))
		return 0;
	return buf_printf(out, "    %8.2f ms  %s\n", (double)number_of(f, key) / 1e6, what);
}

static int words_of_times(const json_t *f, struct buf *out)
{
	const json_t *t = json_object_get(f, "times");
	int ret;

	if (!t)
		return 0;
	ret = buf_append_str(out, "Where its time went:\n");
	if (ret == 0)
		ret = words_of_time(t, "setup_ns", "set-up, until it was answered", out);
	if (ret == 0)
		ret = words_of_time(t, "live_ns", "from then until it was to finish", out);
	if (ret == 0 && number_of(t, "upcalls") > 0)
		ret = buf_printf(out,
				 "    %8.2f ms  of that first touches: %lld requests for names and "
				 "bytes that the kernel did not have (of all sandboxes)\n",
				 (double)number_of(t, "upcalls_ns") / 1e6,
				 (long long)number_of(t, "upcalls"));
	if (ret == 0 && number_of(t, "waits") > 0)
		ret = buf_printf(
			out,
			"    %8.2f ms  of that waiting, %lld times, for blobs from tiers (all sandboxes)\n",
			(double)number_of(t, "waited_ns") / 1e6, (long long)number_of(t, "waits"));
	if (ret == 0)
		ret = words_of_time(t, "freeze_ns", "freezing it", out);
	if (ret == 0)
		ret = words_of_time(t, "capture_ns", "capturing its outputs", out);
	return ret;
}

static int words_of_change(const json_t *c, struct buf *out)
{
	static const char *const letters[] = {"added", "deleted", "modified", "type"};
	char letter = '?';

	for (size_t i = 0; i < 4; i++)
		if (strcmp(text_of(c, "change"), letters[i]) == 0)
			letter = "ADMT"[i];
	return buf_printf(out, "    %c %s\n", letter,
			  *text_of(c, "path") ? text_of(c, "path") : ".");
}

static int words_of_former(const json_t *f, struct buf *out)
{
	const json_t *list = json_object_get(f, "changes");
	json_int_t nr = number_of(f, "nr_changes");
	int ret;

	if (!has(f, "former_root"))
		return 0;
	if (is(f, "former_unread"))
		return buf_printf(out,
				  "It took over the caches of the root %s, which cannot be read "
				  "any more.\n",
				  text_of(f, "former_root"));
	ret = buf_printf(out, "It took over what the kernel had cached of the root %s%s\n",
			 text_of(f, "former_root"),
			 nr == 0 ? ", which is the same."
				 : ". What changed from that to this one:");
	for (size_t i = 0; ret == 0 && i < json_array_size(list); i++)
		ret = words_of_change(json_array_get(list, i), out);
	if (ret == 0 && (size_t)nr > json_array_size(list))
		ret = buf_printf(out, "    and %lld more: casbox diff %s %s\n",
				 (long long)nr - (long long)json_array_size(list),
				 text_of(f, "former_root"), text_of(f, "root"));
	return ret;
}

static int words_of_notes(const json_t *f, struct buf *out)
{
	static const char *const words[][2] = {
		{"stray", "written outside of the outputs, and dropped"},
		{"changed", "inputs that were changed or hidden, against the policy"},
		{"failed", "could not be captured"},
		{"missing", "blobs that no tier had"},
	};
	const json_t *notes = json_object_get(f, "notes");
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < 4; i++) {
		const json_t *list = json_object_get(notes, words[i][0]);

		if (json_array_size(list) > 0)
			ret = buf_printf(out, "%zu %s:\n", json_array_size(list), words[i][1]);
		for (size_t n = 0; ret == 0 && n < json_array_size(list) && n < LISTED; n++) {
			const json_t *o = json_array_get(list, n);
			const char *text = json_is_string(o) ? json_string_value(o)
					   : has(o, "path")  ? text_of(o, "path")
							     : text_of(o, "subject");

			ret = buf_printf(out, "    %s\n", text);
		}
	}
	return ret;
}

static const char *plural(int64_t nr)
{
	return nr == 1 ? "" : "s";
}

static int words_of_trace(const json_t *f, struct buf *out)
{
	int ret;

	if (!has(f, "inputs_read"))
		return 0;
	ret = buf_printf(
		out, "As far as its trace tells (.casbox/sandboxes/%s/), it read %lld input%s, ",
		text_of(f, "sandbox"), (long long)number_of(f, "inputs_read"),
		plural(number_of(f, "inputs_read")));
	if (ret == 0 && has(f, "inputs_unread"))
		ret = buf_printf(out, "never looked at %lld, ",
				 (long long)number_of(f, "inputs_unread"));
	return ret < 0 ? ret
		       : buf_printf(out,
				    "looked for %lld name%s in vain, and missed %lld blob%s.\n",
				    (long long)number_of(f, "lookups_failed"),
				    plural(number_of(f, "lookups_failed")),
				    (long long)number_of(f, "blobs_missing"),
				    plural(number_of(f, "blobs_missing")));
}

static int words_of_sandbox(const json_t *f, struct buf *out)
{
	const json_t *outputs = json_object_get(f, "outputs");
	int ret =
		buf_printf(out, "Sandbox %s is %s. Its input root is %s.\n", text_of(f, "sandbox"),
			   is(f, "gone") ? "gone" : text_of(f, "state"), text_of(f, "root"));

	if (ret == 0)
		ret = line_at(out, "It was made", number_of(f, "created_ns"));
	if (ret == 0 && has(f, "finished_ns")) {
		ret = buf_printf(out, "Its command ended with %lld; ",
				 (long long)number_of(f, "exit_code"));
		if (ret == 0)
			ret = line_at(out, "it was finished", number_of(f, "finished_ns"));
	}
	if (ret == 0 && has(f, "writable")) {
		ret = buf_printf(out, "Writable: %s; outputs:", text_of(f, "writable"));
		for (size_t i = 0; ret == 0 && i < json_array_size(outputs); i++)
			ret = buf_printf(out, " %s", json_string_value(json_array_get(outputs, i)));
		if (ret == 0)
			ret = buf_append_str(out, json_array_size(outputs) ? "\n" : " none\n");
	}
	if (ret == 0)
		ret = words_of_times(f, out);
	if (ret == 0)
		ret = words_of_former(f, out);
	if (ret == 0)
		ret = words_of_notes(f, out);
	return ret == 0 ? words_of_trace(f, out) : ret;
}

static int words_of_names(const json_t *f, const char *key, const char *what, struct buf *out)
{
	const json_t *list = json_object_get(f, key);
	int ret = json_array_size(list) > 0 ? buf_append_str(out, what) : 0;

	for (size_t i = 0; ret == 0 && i < json_array_size(list); i++)
		ret = buf_printf(out, "%s%s", i ? ", " : " ",
				 json_string_value(json_array_get(list, i)));
	return ret == 0 && json_array_size(list) > 0 ? buf_append_str(out, ".\n") : ret;
}

/* "in the top directory", or "in DIR", with its digest. */
static int words_of_in(const json_t *f, struct buf *out)
{
	const char *in = text_of(f, "in");

	return buf_printf(out, "%s%s (%s)", *in ? "" : "the top directory", in,
			  text_of(f, "in_digest"));
}

static int words_of_found(const json_t *f, struct buf *out)
{
	const json_t *e = json_object_get(f, "entry");
	int ret = buf_printf(out, "%s is there: a %s", text_of(f, "path"), text_of(e, "kind"));

	if (ret == 0)
		ret = has(e, "target") ? buf_printf(out, " to %s", text_of(e, "target"))
				       : buf_printf(out, ", %s, mode %04o", text_of(e, "digest"),
						    (unsigned)number_of(f, "shown_mode"));
	if (ret == 0)
		ret = buf_append_str(out, ", in ");
	if (ret == 0)
		ret = words_of_in(f, out);
	if (ret == 0)
		ret = buf_append_str(out, ".\n");
	if (ret == 0 && has(f, "present") && !is(f, "present"))
		ret = buf_append_str(out,
				     "Its blob is not in this store: opening it asks the tiers, "
				     "and fails where there are none.\n");
	return ret;
}

static int words_of_missing(const json_t *f, struct buf *out)
{
	int ret = buf_printf(out, "There is no '%s' in ", text_of(f, "name"));

	if (ret == 0)
		ret = words_of_in(f, out);
	if (ret == 0)
		ret = buf_append_str(out, ".\n");
	if (ret == 0)
		ret = words_of_names(f, "other_case", "Names are case-sensitive; there is:", out);
	if (ret == 0)
		ret = words_of_names(f, "similar", "Similar names there:", out);
	if (ret == 0)
		ret = words_of_names(f, "elsewhere", "That name is at:", out);
	return ret;
}

static int words_of_why(const json_t *f, struct buf *out)
{
	static const struct {
		const char *why;
		const char *words;
	} others[] = {
		{"found-directory", "is a directory of the tree"},
		{"not-a-directory", "cannot be followed: a file is in the way"},
		{"outside", "leads out of the tree, above its top"},
		{"absolute", "is absolute, and so none of the tree; give it relative to the top"},
		{"link-outside", "goes through an absolute symlink, out of the tree"},
		{"loop", "goes through more than 40 symlinks: a loop"},
		{"too-deep", "is too deep"},
		{"name-too-long", "has a component of more than 255 bytes"},
		{"directory-missing", "leads through a Directory that is not in this store"},
		{"directory-broken", "leads through a blob that is no Directory"},
	};
	const char *path = text_of(f, "path");
	int ret = 0;

	if (strcmp(text_of(f, "why"), "found") == 0)
		return words_of_found(f, out);
	if (strcmp(text_of(f, "why"), "missing") == 0)
		return words_of_missing(f, out);
	for (size_t i = 0; ret == 0 && i < sizeof(others) / sizeof(others[0]); i++) {
		if (strcmp(text_of(f, "why"), others[i].why) != 0)
			continue;
		ret = buf_printf(out, "%s %s", *path ? path : "''", others[i].words);
		if (ret == 0 && has(f, "name"))
			ret = buf_printf(out, ": '%s' in ", text_of(f, "name"));
		else if (ret == 0)
			ret = buf_append_str(out, ", at ");
		if (ret == 0)
			ret = words_of_in(f, out);
		if (ret == 0)
			ret = buf_append_str(out, ".\n");
	}
	return ret;
}

static int words_of_name(const json_t *f, struct buf *out)
{
	const json_t *links = json_object_get(f, "links");
	int ret = words_of_why(f, out);

	for (size_t i = 0; ret == 0 && i < json_array_size(links); i++) {
		const json_t *l = json_array_get(links, i);

		ret = buf_printf(out, "%s is a symlink to %s.\n", text_of(l, "link"),
				 text_of(l, "target"));
	}
	if (ret == 0 && has(f, "output"))
		ret = buf_printf(out,
				 "It belongs to the declared output %s: what the action makes "
				 "there is no input, and not told here.\n",
				 text_of(f, "output"));
	if (ret == 0 && has(f, "above_output"))
		ret = buf_printf(out,
				 "The sandbox has it as a directory all the same, made for the "
				 "output %s.\n",
				 text_of(f, "above_output"));
	if (ret == 0 && is(f, "looked_for_in_vain"))
		ret = buf_printf(out, "Sandbox %s looked for it, and did not find it.\n",
				 text_of(f, "sandbox"));
	if (ret == 0 && is(f, "read"))
		ret = buf_printf(out, "Sandbox %s read it.\n", text_of(f, "sandbox"));
	return ret;
}

int fs_explain_words(const json_t *facts, struct buf *out)
{
	const char *about = text_of(facts, "about");

	if (strcmp(about, "blob") == 0)
		return words_of_blob(facts, out);
	if (strcmp(about, "sandbox") == 0)
		return words_of_sandbox(facts, out);
	return words_of_name(facts, out);
}
