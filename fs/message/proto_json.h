/* fs/message/proto_json.h - a REAPI message as proto3 JSON */
#ifndef FS_MESSAGE_PROTO_JSON_H
#define FS_MESSAGE_PROTO_JSON_H

#include <jansson.h>
#include <stddef.h>

struct ProtobufCMessage;
struct buf;
struct err;

/*
 * Any message of cas/reapi.proto: names in lowerCamelCase, default values left out, 64-bit
 * integers as strings, bytes in base64, times in RFC 3339, durations in seconds. Beyond that
 * mapping: text that is not UTF-8 appears with its odd bytes as \xNN; an Any is its type and
 * its bytes ("@type", "value"), but for a Struct of plain values; a time that has no year of four
 * digits is its two numbers. NULL: no memory.
 */
json_t *fs_proto_json(const struct ProtobufCMessage *message);

/* @s as a JSON string, of which odd bytes are \xNN when it is not UTF-8. NULL: no memory. */
json_t *fs_json_text(const char *s);

enum fs_message { FS_MESSAGE_ACTION, FS_MESSAGE_COMMAND, FS_MESSAGE_RESULT };

/*
 * Append to @out the message @data as text, indented, with a newline. -EUCLEAN: it is no
 * such message. -ENOMEM.
 */
int fs_message_text(enum fs_message kind, const void *data, size_t len, struct buf *out,
		    struct err *err);

#endif
