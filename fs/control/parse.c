/* fs/control/parse.c - a line of the control file becomes a command and its options */
#include "fs/control/parse.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"

struct words {
	size_t nr;
	size_t cap;
	char **word;
};

static void words_fini(struct words *w)
{
	for (size_t i = 0; i < w->nr; i++)
		free(w->word[i]);
	free(w->word);
}

static int words_add(struct words *w, struct buf *b)
{
	char *word = strdup(buf_str(b));

	if (!word)
		return -ENOMEM;
	if (w->nr == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 16;
		char **grown = realloc(w->word, cap * sizeof(*grown));

		if (!grown) {
			free(word);
			return -ENOMEM;
		}
		w->word = grown;
		w->cap = cap;
	}
	w->word[w->nr++] = word;
	buf_reset(b);
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Append the quoted part that starts at *pos (on the quote), and move *pos behind it. */
static int take_quoted(const char *line, size_t len, size_t *pos, struct buf *b, struct err *err)
{
	char quote = line[*pos];
	size_t i = *pos + 1;

	for (; i < len && line[i] != quote; i++) {
		if (quote == '"' && line[i] == '\\' && i + 1 < len &&
		    (line[i + 1] == '"' || line[i + 1] == '\\'))
			i++;
		if (buf_append_char(b, line[i]) < 0)
			return -ENOMEM;
	}
	if (i == len)
		return err_set(err, -EINVAL, "a quote (%c) is not closed", quote);
	*pos = i + 1;
	return 0;
}

static int split_words(const char *line, size_t len, struct words *out, struct err *err)
{
	auto_buf struct buf b = {0};
	bool in_word = false;
	size_t i = 0;

	while (i < len) {
		char c = line[i];
		int ret = 0;

		if (is_blank(c)) {
			if (in_word)
				ret = words_add(out, &b);
			in_word = false;
			i++;
		} else if (c == '\'' || c == '"') {
			in_word = true;
			ret = take_quoted(line, len, &i, &b, err);
		} else if (c == '\\' && i + 1 == len) {
			ret = err_set(err, -EINVAL, "nothing follows the last backslash");
		} else {
			in_word = true;
			i += c == '\\';
			ret = buf_append_char(&b, line[i++]);
		}
		if (ret < 0)
			return ret;
	}
	return in_word ? words_add(out, &b) : 0;
}

/* Is @value one of "A|B|C"? Anything is, where there are no choices. */
static bool is_choice(const struct control_opt *opt, const char *value)
{
	size_t len = strlen(value);
	const char *p = opt->value;

	if (!p || !strchr(p, '|'))
		return true;
	while (p) {
		const char *end = strchrnul(p, '|');

		if ((size_t)(end - p) == len && memcmp(p, value, len) == 0)
			return true;
		p = *end ? end + 1 : NULL;
	}
	return false;
}

static int add_item(struct control_request *req, const struct control_opt *opt, const char *value,
		    struct err *err)
{
	struct control_item *items;
	char *copy = NULL;

	if (!(opt->flags & CONTROL_OPT_MULTI) && control_has(req, opt->name))
		return err_set(err, -EINVAL, "%s: %s is given twice", req->command->name,
			       opt->name);
	if (value && !is_choice(opt, value))
		return err_set(err, -EINVAL, "%s: %s is one of %s, not \"%.64s\"",
			       req->command->name, opt->name, opt->value, value);
	if (value && !(copy = strdup(value)))
		return -ENOMEM;
	/* Doubles at each power of two; a line holds few options. */
	if ((req->nr_items & (req->nr_items - 1)) == 0) {
		size_t cap = req->nr_items ? 2 * req->nr_items : 1;

		items = realloc(req->items, cap * sizeof(*items));
		if (!items) {
			free(copy);
			return -ENOMEM;
		}
		req->items = items;
	}
	req->items[req->nr_items++] = (struct control_item){opt, copy};
	return 0;
}

static int find_command(const struct control_command *table, const char *name,
			struct control_request *out, struct err *err)
{
	for (const struct control_command *c = table; c->name; c++) {
		if (strcmp(c->name, name) == 0) {
			out->command = c;
			return 0;
		}
	}
	return err_set(err, -EINVAL, "unknown command \"%.64s\"; \"help\" lists them", name);
}

/* @name need not end where the option's name does (--name=value). */
static const struct control_opt *find_opt(const struct control_command *command, const char *name,
					  size_t len)
{
	for (const struct control_opt *o = command->opts; o->name; o++)
		if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
			return o;
	return NULL;
}

static const struct control_opt *next_positional(const struct control_request *req)
{
	for (const struct control_opt *o = req->command->opts; o->name; o++)
		if ((o->flags & CONTROL_OPT_POSITIONAL) &&
		    ((o->flags & CONTROL_OPT_MULTI) || !control_has(req, o->name)))
			return o;
	return NULL;
}

/* The option at words[*pos], moving *pos behind it and its value. */
static int take_option(struct control_request *req, const struct words *w, size_t *pos,
		       struct err *err)
{
	const char *name = w->word[(*pos)++] + 2;
	const char *eq = strchr(name, '=');
	const struct control_opt *opt =
		find_opt(req->command, name, eq ? (size_t)(eq - name) : strlen(name));

	if (!opt || (opt->flags & CONTROL_OPT_POSITIONAL))
		return err_set(err, -EINVAL, "%s: unknown option --%.64s", req->command->name,
			       name);
	if (!(opt->flags & CONTROL_OPT_VALUE)) {
		if (eq)
			return err_set(err, -EINVAL, "%s: --%s takes no value", req->command->name,
				       opt->name);
		return add_item(req, opt, NULL, err);
	}
	if (eq)
		return add_item(req, opt, eq + 1, err);
	if (*pos == w->nr)
		return err_set(err, -EINVAL, "%s: --%s wants a value", req->command->name,
			       opt->name);
	return add_item(req, opt, w->word[(*pos)++], err);
}

static int parse_words(const struct control_command *table, const struct words *w,
		       struct control_request *out, struct err *err)
{
	bool only_words = false;
	int ret;

	if (w->nr == 0)
		return err_set(err, -EINVAL, "empty command");
	ret = find_command(table, w->word[0], out, err);
	for (size_t i = 1; ret == 0 && i < w->nr;) {
		const char *word = w->word[i];
		const struct control_opt *opt;

		if (!only_words && strcmp(word, "--") == 0) {
			only_words = true;
			i++;
		} else if (!only_words && strncmp(word, "--", 2) == 0) {
			ret = take_option(out, w, &i, err);
		} else {
			opt = next_positional(out);
			ret = opt ? add_item(out, opt, word, err)
				  : err_set(err, -EINVAL, "%s: unexpected word \"%.64s\"",
					    out->command->name, word);
			i++;
		}
	}
	return ret;
}

static int add_json(struct control_request *req, const struct control_opt *opt, const json_t *v,
		    struct err *err)
{
	char number[32];
	bool takes_value = opt->flags & CONTROL_OPT_VALUE;

	if (json_is_string(v) && takes_value)
		return add_item(req, opt, json_string_value(v), err);
	if (json_is_integer(v) && takes_value) {
		(void)snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(v));
		return add_item(req, opt, number, err);
	}
	if (json_is_boolean(v) && !takes_value)
		return json_is_true(v) ? add_item(req, opt, NULL, err) : 0;
	return err_set(err, -EINVAL, "%s: \"%s\" has a value of the wrong type", req->command->name,
		       opt->name);
}

static int add_json_member(struct control_request *req, const char *key, const json_t *value,
			   struct err *err)
{
	const struct control_opt *opt = find_opt(req->command, key, strlen(key));
	const json_t *element;
	size_t i;
	int ret = 0;

	if (!opt)
		return err_set(err, -EINVAL, "%s: unknown option \"%.64s\"", req->command->name,
			       key);
	if (!json_is_array(value))
		return add_json(req, opt, value, err);
	if (!(opt->flags & CONTROL_OPT_MULTI))
		return err_set(err, -EINVAL, "%s: \"%s\" is not a list", req->command->name, key);
	json_array_foreach(value, i, element)
	{
		ret = add_json(req, opt, element, err);
		if (ret < 0)
			break;
	}
	return ret;
}

/* {"command": NAME, and options by name} */
static int parse_members(const struct control_command *table, json_t *object,
			 struct control_request *out, struct err *err)
{
	const char *name = json_string_value(json_object_get(object, "command"));
	const char *key;
	json_t *value;
	int ret = name ? find_command(table, name, out, err)
		       : err_set(err, -EINVAL, "the object has no \"command\"");

	json_object_foreach(object, key, value)
	{
		if (ret == 0 && strcmp(key, "command") != 0)
			ret = add_json_member(out, key, value, err);
	}
	return ret;
}

static int split_list(const json_t *list, struct words *out, struct err *err)
{
	auto_buf struct buf b = {0};
	const json_t *element;
	size_t i;

	if (!json_is_array(list))
		return err_set(err, -EINVAL, "\"words\" is not a list");
	json_array_foreach(list, i, element)
	{
		int ret = json_is_string(element)
				  ? buf_append_str(&b, json_string_value(element))
				  : err_set(err, -EINVAL, "a word in \"words\" is no string");

		if (ret == 0)
			ret = words_add(out, &b);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* {"words": [WORD, ...]}: what a line of words cannot hold is a newline. */
static int parse_list(const struct control_command *table, const json_t *object,
		      struct control_request *out, struct err *err)
{
	struct words w = {0};
	int ret = json_object_size(object) == 1
			  ? split_list(json_object_get(object, "words"), &w, err)
			  : err_set(err, -EINVAL, "\"words\" stands alone in its object");

	if (ret == 0)
		ret = parse_words(table, &w, out, err);
	words_fini(&w);
	return ret;
}

static int parse_json(const struct control_command *table, const char *line, size_t len,
		      struct control_request *out, struct err *err)
{
	json_error_t why;
	json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, &why);
	int ret;

	if (!json_is_object(object))
		ret = err_set(err, -EINVAL, "not a JSON object: %s", why.text);
	else if (json_object_get(object, "words"))
		ret = parse_list(table, object, out, err);
	else
		ret = parse_members(table, object, out, err);
	json_decref(object);
	return ret;
}

static int check_required(const struct control_request *req, struct err *err)
{
	for (const struct control_opt *o = req->command->opts; o->name; o++)
		if ((o->flags & CONTROL_OPT_REQUIRED) && !control_has(req, o->name))
			return err_set(err, -EINVAL, "%s: %s%s is missing", req->command->name,
				       o->flags & CONTROL_OPT_POSITIONAL ? "" : "--", o->name);
	return 0;
}

int control_parse(const struct control_command *table, const char *line, size_t len,
		  struct control_request *out, struct err *err)
{
	struct words w = {0};
	int ret;

	while (len > 0 && is_blank(line[0])) {
		line++;
		len--;
	}
	if (memchr(line, '\0', len))
		return err_set(err, -EINVAL, "a command cannot hold a NUL byte");
	if (len > 0 && line[0] == '{') {
		ret = parse_json(table, line, len, out, err);
	} else {
		ret = split_words(line, len, &w, err);
		if (ret == 0)
			ret = parse_words(table, &w, out, err);
		words_fini(&w);
	}
	return ret < 0 ? ret : check_required(out, err);
}

void control_request_fini(struct control_request *req)
{
	for (size_t i = 0; i < req->nr_items; i++)
		free(req->items[i].value);
	free(req->items);
	*req = (struct control_request){0};
}

#define USAGE_WIDTH  80
#define USAGE_INDENT "    "

static int opt_usage(const struct control_opt *opt, struct buf *out)
{
	bool required = opt->flags & CONTROL_OPT_REQUIRED;
	int ret = required ? 0 : buf_append_char(out, '[');

	if (ret == 0 && !(opt->flags & CONTROL_OPT_POSITIONAL))
		ret = buf_printf(out, "--%s%s", opt->name, opt->value ? " " : "");
	if (ret == 0 && opt->value)
		ret = buf_append_str(out, opt->value);
	if (ret == 0 && !required)
		ret = buf_append_char(out, ']');
	if (ret == 0 && (opt->flags & CONTROL_OPT_MULTI))
		ret = buf_append_str(out, "...");
	return ret;
}

int control_usage(const struct control_command *command, struct buf *out)
{
	size_t column = strlen(command->name);
	int ret = buf_append_str(out, command->name);

	for (const struct control_opt *o = command->opts; ret == 0 && o->name; o++) {
		auto_buf struct buf word = {0};
		bool fits;

		ret = opt_usage(o, &word);
		fits = column + 1 + word.len <= USAGE_WIDTH;
		column = (fits ? column + 1 : strlen(USAGE_INDENT)) + word.len;
		if (ret == 0)
			ret = buf_printf(out, "%s%s", fits ? " " : "\n" USAGE_INDENT,
					 buf_str(&word));
	}
	return ret;
}

static const struct control_item *find_item(const struct control_request *req, const char *name)
{
	for (size_t i = 0; i < req->nr_items; i++)
		if (strcmp(req->items[i].opt->name, name) == 0)
			return &req->items[i];
	return NULL;
}

const char *control_get(const struct control_request *req, const char *name)
{
	const struct control_item *item = find_item(req, name);

	return item ? item->value : NULL;
}

bool control_has(const struct control_request *req, const char *name)
{
	return find_item(req, name) != NULL;
}

bool control_takes_long(const struct control_request *req)
{
	const char *with = req->command->takes_long;

	return with && (*with == '\0' || control_has(req, with));
}

const char **control_values(const struct control_request *req, const char *name, size_t *nr)
{
	const char **values = calloc(req->nr_items + 1, sizeof(*values));

	*nr = 0;
	for (size_t i = 0; values && i < req->nr_items; i++) {
		if (strcmp(req->items[i].opt->name, name) == 0)
			values[(*nr)++] = req->items[i].value;
	}
	return values;
}

int control_get_number(const struct control_request *req, const char *name, int64_t min,
		       int64_t max, int64_t *out, struct err *err)
{
	const char *text = control_get(req, name);
	const char *digits;
	char *end;
	long long v;

	if (!text)
		return 0;
	digits = text + (text[0] == '-');
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno != 0 || digits[0] < '0' || digits[0] > '9' || *end != '\0' || v < min || v > max)
		return err_set(err, -EINVAL,
			       "%s: %s wants a number from %lld to %lld, not \"%.64s\"",
			       req->command->name, name, (long long)min, (long long)max, text);
	*out = v;
	return 0;
}
