/* fs/message/script.c - a Command as a script that runs it */
/*
 * `env -i -- NAME=VALUE... PROGRAM ARGUMENT...` leaves nothing of the caller's environment,
 * and looks for PROGRAM with the PATH that it sets, as execvp does. It takes every word up to
 * the first without a "=" for a variable, though, and a "-" for an option. So a program with
 * such a name is started by nice, which changes nothing; the caller's PATH finds that one.
 */
#include "fs/message/script.h"

#include <errno.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/digest.h"
#include "cas/reapi/action.h"

/* In single quotes everything stands for itself but a single quote. */
static int quote(struct buf *out, const char *word)
{
	int ret = buf_append_char(out, '\'');

	while (ret == 0 && *word != '\0') {
		size_t len = strcspn(word, "'");

		ret = buf_append(out, word, len);
		word += len;
		if (ret == 0 && *word == '\'') {
			ret = buf_append_str(out, "'\\''");
			word++;
		}
	}
	return ret == 0 ? buf_append_char(out, '\'') : ret;
}

/* For a comment, which ends with its line. */
static int add_escaped(struct buf *out, const char *word)
{
	int ret = 0;

	for (; ret == 0 && *word != '\0'; word++) {
		unsigned char c = (unsigned char)*word;

		ret = c < ' ' || c > '~' || c == '\\' ? buf_printf(out, "\\x%02x", c)
						      : buf_append_char(out, *word);
	}
	return ret;
}

static int add_words(struct buf *out, char *const *words)
{
	int ret = 0;

	for (; ret == 0 && *words; words++) {
		ret = buf_append_str(out, " \\\n\t");
		if (ret == 0)
			ret = quote(out, *words);
	}
	return ret;
}

static int add_head(const struct cas_command *c, const struct cas_digest *digest, struct buf *out)
{
	int ret = buf_printf(out,
			     "#!/bin/sh\n"
			     "# The Command %s: start this in the input root of its action.\n",
			     CAS_DIGEST_TEXT(digest));

	for (size_t i = 0; ret == 0 && i < c->nr_outputs; i++) {
		ret = buf_append_str(out, "# output: ");
		if (ret == 0)
			ret = add_escaped(out, c->outputs[i]);
		if (ret == 0)
			ret = buf_append_char(out, '\n');
	}
	if (ret < 0 || c->workdir[0] == '\0')
		return ret;
	/* "./" keeps CDPATH out of it. */
	ret = buf_append_str(out, "cd ./");
	if (ret == 0)
		ret = quote(out, c->workdir);
	return ret == 0 ? buf_append_str(out, " || exit 126\n") : ret;
}

int fs_command_script(const struct cas_command *command, const struct cas_digest *digest,
		      struct buf *out)
{
	const char *program = command->argv[0];
	bool odd = strchr(program, '=') || strcmp(program, "-") == 0;
	int ret = add_head(command, digest, out);

	if (ret == 0 && odd)
		ret = buf_append_str(out, "nice=$(command -v nice) || exit 127\n");
	if (ret == 0)
		ret = buf_append_str(out, "exec env -i --");
	if (ret == 0)
		ret = add_words(out, command->env);
	if (ret == 0 && odd)
		ret = buf_append_str(out, " \\\n\t\"$nice\" -n 0 --");
	if (ret == 0)
		ret = add_words(out, command->argv);
	return ret == 0 ? buf_append_char(out, '\n') : ret;
}
