/* fs/message/proto_json.c - a REAPI message as proto3 JSON */
/*
 * protobuf-c's descriptors tell where the fields of any message are and what they hold, so
 * one walk does for all of them. The messages of REAPI do not contain themselves, which
 * bounds its depth.
 */
#include "fs/message/proto_json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/action.h"

#define NAME_SZ	   64
#define YEAR_1	   (-62135596800LL) /* in seconds since the epoch */
#define YEAR_10000 253402300800LL

json_t *fs_json_text(const char *s)
{
	json_t *plain = json_string(s);
	auto_buf struct buf b = {0};

	for (; plain == NULL && *s != '\0'; s++) {
		unsigned char c = (unsigned char)*s;
		int ret = c < 0x80 ? buf_append_char(&b, *s) : buf_printf(&b, "\\x%02x", c);

		if (ret < 0)
			return NULL;
	}
	return plain ? plain : json_string(buf_str(&b));
}

static json_t *json_base64(const ProtobufCBinaryData *bytes)
{
	size_t len = bytes->len;
	auto_free char *text = len < INT_MAX / 2 ? malloc(len / 3 * 4 + 5) : NULL;
	int got;

	if (text == NULL)
		return NULL;
	got = EVP_EncodeBlock((unsigned char *)text, bytes->data, (int)len);
	return json_stringn(text, (size_t)got);
}

/* 0, 3, 6 or 9 digits after a point, as proto3 JSON wants it. @nanos is 0 to 999,999,999. */
static void fraction(int32_t nanos, char out[16])
{
	out[0] = '\0';
	if (nanos == 0)
		return;
	if (nanos % 1000000 == 0)
		(void)snprintf(out, 16, ".%03d", nanos / 1000000);
	else if (nanos % 1000 == 0)
		(void)snprintf(out, 16, ".%06d", nanos / 1000);
	else
		(void)snprintf(out, 16, ".%09d", nanos);
}

static json_t *two_numbers(int64_t seconds, int32_t nanos)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRId64, seconds);
	return json_pack("{s:s, s:i}", "seconds", text, "nanos", nanos);
}

static json_t *json_timestamp(const Reapi__Timestamp *t)
{
	time_t sec = (time_t)t->seconds;
	char frac[16];
	char text[80];
	struct tm tm;

	if (t->seconds < YEAR_1 || t->seconds >= YEAR_10000 || t->nanos < 0 ||
	    t->nanos > 999999999 || gmtime_r(&sec, &tm) == NULL)
		return two_numbers(t->seconds, t->nanos);
	fraction(t->nanos, frac);
	(void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d%sZ", tm.tm_year + 1900,
		       tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, frac);
	return json_string(text);
}

static json_t *json_duration(const Reapi__Duration *d)
{
	bool minus = d->seconds < 0 || d->nanos < 0;
	char frac[16];

	if (d->nanos < -999999999 || d->nanos > 999999999 || d->seconds == INT64_MIN ||
	    (d->seconds < 0 && d->nanos > 0) || (d->seconds > 0 && d->nanos < 0))
		return two_numbers(d->seconds, d->nanos);
	fraction(minus ? -d->nanos : d->nanos, frac);
	return json_sprintf("%s%" PRId64 "%ss", minus ? "-" : "", minus ? -d->seconds : d->seconds,
			    frac);
}

/* NULL: a list, another Struct, or a number that JSON has none for. */
static json_t *json_struct_value(const Reapi__Value *v)
{
	double number;

	if (v && v->kind_case == REAPI__VALUE__KIND_STRING_VALUE)
		return fs_json_text(v->string_value);
	if (v && v->kind_case == REAPI__VALUE__KIND_BOOL_VALUE)
		return json_boolean(v->bool_value);
	if (!v || v->kind_case != REAPI__VALUE__KIND_NUMBER_VALUE)
		return NULL;
	number = v->number_value;
	if (number > -9e15 && number < 9e15 && number == (double)(int64_t)number)
		return json_integer((json_int_t)number);
	return json_real(number);
}

/* What limits are told in: a Struct of plain values. NULL: it is none. */
static json_t *json_struct(const ProtobufCBinaryData *data)
{
	Reapi__Struct *s = reapi__struct__unpack(NULL, data->len, data->data);
	json_t *obj = s ? json_object() : NULL;

	for (size_t i = 0; obj && i < s->n_fields; i++) {
		json_t *value = json_struct_value(s->fields[i]->value);

		if (json_object_set_new(obj, s->fields[i]->key, value) < 0) {
			json_decref(obj);
			obj = NULL;
		}
	}
	if (s)
		reapi__struct__free_unpacked(s, NULL);
	return obj;
}

static json_t *json_any(const Reapi__Any *any)
{
	json_t *obj = json_object();
	json_t *value = NULL;

	if (strcmp(any->type_url, CAS_RESULT_LIMIT_TYPE) == 0)
		value = json_struct(&any->value);
	if (value == NULL)
		value = json_base64(&any->value);
	if (json_object_set_new(obj, "value", value) < 0 ||
	    json_object_set_new(obj, "@type", fs_json_text(any->type_url)) < 0) {
		json_decref(obj);
		return NULL;
	}
	return obj;
}

/* Command.OutputDirectoryFormat is a number in our messages. */
static json_t *json_format(int32_t value)
{
	static const char *const names[] = {"TREE_ONLY", "DIRECTORY_ONLY", "TREE_AND_DIRECTORY"};

	return value >= 0 && value < 3 ? json_string(names[value]) : json_integer(value);
}

static json_t *json_int64(int64_t value)
{
	return json_sprintf("%" PRId64, value);
}

static json_t *json_message(const ProtobufCMessage *msg)
{
	if (msg->descriptor == &reapi__timestamp__descriptor)
		return json_timestamp((const Reapi__Timestamp *)msg);
	if (msg->descriptor == &reapi__duration__descriptor)
		return json_duration((const Reapi__Duration *)msg);
	if (msg->descriptor == &reapi__uint32_value__descriptor)
		return json_integer(((const Reapi__UInt32Value *)msg)->value);
	if (msg->descriptor == &reapi__any__descriptor)
		return json_any((const Reapi__Any *)msg);
	return fs_proto_json(msg);
}

/* One value of the field's type at @at. */
static json_t *json_value(const ProtobufCFieldDescriptor *field, const void *at)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_INT32:
		if (strcmp(field->name, "output_directory_format") == 0)
			return json_format(*(const int32_t *)at);
		return json_integer(*(const int32_t *)at);
	case PROTOBUF_C_TYPE_UINT32:
		return json_integer(*(const uint32_t *)at);
	case PROTOBUF_C_TYPE_INT64:
		return json_int64(*(const int64_t *)at);
	case PROTOBUF_C_TYPE_BOOL:
		return json_boolean(*(const protobuf_c_boolean *)at);
	case PROTOBUF_C_TYPE_STRING:
		return fs_json_text(*(char *const *)at);
	case PROTOBUF_C_TYPE_BYTES:
		return json_base64(at);
	case PROTOBUF_C_TYPE_MESSAGE:
		return json_message(*(ProtobufCMessage *const *)at);
	/* No message of ours has a field of these types. */
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
	case PROTOBUF_C_TYPE_ENUM:
		break;
	}
	assert(!"a field of a type that no message has");
	return json_null();
}

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
	switch ((int)field->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
		return sizeof(int32_t);
	case PROTOBUF_C_TYPE_INT64:
		return sizeof(int64_t);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return sizeof(void *);
	}
}

/* What proto3 leaves out. */
static bool is_default(const ProtobufCFieldDescriptor *field, const void *at)
{
	switch ((int)field->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
		return *(const int32_t *)at == 0;
	case PROTOBUF_C_TYPE_INT64:
		return *(const int64_t *)at == 0;
	case PROTOBUF_C_TYPE_BOOL:
		return !*(const protobuf_c_boolean *)at;
	case PROTOBUF_C_TYPE_BYTES:
		return ((const ProtobufCBinaryData *)at)->len == 0;
	case PROTOBUF_C_TYPE_STRING:
		return **(char *const *)at == '\0';
	default:
		return *(void *const *)at == NULL;
	}
}

static json_t *json_list(const ProtobufCFieldDescriptor *field, const char *at, size_t nr)
{
	json_t *list = json_array();
	size_t step = value_size(field);

	for (size_t i = 0; i < nr; i++) {
		if (json_array_append_new(list, json_value(field, at + i * step)) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static void camel(const char *name, char out[NAME_SZ])
{
	size_t n = 0;
	bool up = false;

	for (; *name != '\0' && n + 1 < NAME_SZ; name++) {
		if (*name == '_') {
			up = true;
			continue;
		}
		out[n++] = up && *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name;
		up = false;
	}
	out[n] = '\0';
}

static int set_field(json_t *obj, const ProtobufCMessage *msg,
		     const ProtobufCFieldDescriptor *field)
{
	const char *base = (const char *)msg;
	const void *at = base + field->offset;
	char name[NAME_SZ];
	json_t *value;

	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		size_t nr = *(const size_t *)(base + field->quantifier_offset);

		if (nr == 0)
			return 0;
		value = json_list(field, *(char *const *)at, nr);
	} else if (is_default(field, at)) {
		return 0;
	} else {
		value = json_value(field, at);
	}
	camel(field->name, name);
	return json_object_set_new(obj, name, value);
}

json_t *fs_proto_json(const struct ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *d = message->descriptor;
	json_t *obj = json_object();

	for (unsigned i = 0; i < d->n_fields; i++) {
		if (set_field(obj, message, &d->fields[i]) < 0) {
			json_decref(obj);
			return NULL;
		}
	}
	return obj;
}

static const struct {
	const ProtobufCMessageDescriptor *descriptor;
	const char *name;
} messages[] = {
	[FS_MESSAGE_ACTION] = {&reapi__action__descriptor, "an Action"},
	[FS_MESSAGE_COMMAND] = {&reapi__command__descriptor, "a Command"},
	[FS_MESSAGE_RESULT] = {&reapi__action_result__descriptor, "an ActionResult"},
};

int fs_message_text(enum fs_message kind, const void *data, size_t len, struct buf *out,
		    struct err *err)
{
	ProtobufCMessage *msg =
		protobuf_c_message_unpack(messages[kind].descriptor, NULL, len, data);
	auto_free char *text = NULL;
	json_t *obj;
	int ret;

	if (msg == NULL)
		return err_set(err, -EUCLEAN, "not %s", messages[kind].name);
	obj = fs_proto_json(msg);
	protobuf_c_message_free_unpacked(msg, NULL);
	if (obj)
		text = json_dumps(obj, JSON_INDENT(2));
	json_decref(obj);
	ret = text ? buf_append_str(out, text) : -ENOMEM;
	if (ret == 0)
		ret = buf_append_char(out, '\n');
	return ret < 0 ? err_set(err, ret, "no memory to show %s", messages[kind].name) : 0;
}
