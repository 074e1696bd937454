/* tests/lib/reapid_stream.c - ByteStream of the small REAPI server */
#include <fcntl.h>
#include <grpc/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "cas/hash.h"
#include "tests/lib/reapid.h"

#define PART 65536

/* [INSTANCE/][uploads/UUID/](blobs|compressed-blobs/zstd)/HASH/SIZE */
struct resource {
	char instance[100];
	char uuid[64];
	bool zstd;
	struct cas_digest digest;
};

static bool parse_resource(const char *name, struct resource *out)
{
	const char *blobs = strstr(name, "compressed-blobs/zstd/");
	const char *uploads = strstr(name, "uploads/");
	const char *end;

	*out = (struct resource){.zstd = blobs != NULL};
	if (blobs == NULL)
		blobs = strstr(name, "blobs/");
	if (blobs == NULL || cas_digest_parse(blobs + (out->zstd ? 22 : 6), &out->digest) < 0)
		return false;
	end = uploads ? uploads : blobs;
	if (uploads)
		(void)snprintf(out->uuid, sizeof(out->uuid), "%.36s", uploads + 8);
	(void)snprintf(out->instance, sizeof(out->instance), "%.*s",
		       end > name ? (int)(end - name - 1) : 0, name);
	return true;
}

/* ---- reading ---- */

static bool send_part(struct call *c, const void *data, size_t len)
{
	Reapi__ReadResponse response = REAPI__READ_RESPONSE__INIT;

	response.data.data = (uint8_t *)(uintptr_t)data;
	response.data.len = len;
	return send_message(c, &response.base);
}

static void compress(struct buf *data)
{
	size_t room = ZSTD_compressBound(data->len);
	struct buf to = {0};

	if (buf_reserve(&to, room) < 0)
		abort();
	to.len = ZSTD_compress(to.data, room, data->data, data->len, 3);
	buf_fini(data);
	*data = to;
}

/* True: all of it went. */
static bool send_parts(struct call *c, const struct buf *data, enum fault fault)
{
	bool cuts = fault == FAULT_HALF || fault == FAULT_TRUNCATE;
	size_t len = cuts ? data->len / 2 : data->len;
	size_t step = fault == FAULT_DRIP ? 1 : PART;

	for (size_t i = 0; i < len; i += step) {
		if (!send_part(c, data->data + i, len - i < step ? len - i : step))
			return false;
		if (fault == FAULT_DRIP)
			(void)usleep(20000);
	}
	if (!cuts)
		return true;
	/* What was sent must arrive before the end does. */
	(void)usleep(50000);
	drop_connection(c, fault == FAULT_HALF);
	return false;
}

static void read_blob(struct call *c, const Reapi__ReadRequest *request)
{
	struct resource res;
	struct buf data = {0};
	enum fault fault = next_fault(false);
	char hash[65];

	if (!parse_resource(request->resource_name, &res)) {
		send_status(c, GRPC_STATUS_INVALID_ARGUMENT, "what a name", 0);
		return;
	}
	cas_hash_format(res.digest.hash, hash);
	log_line("GET /%s/cas/%s %lld %s", res.instance, hash, (long long)request->read_offset,
		 res.zstd ? "zstd" : "");
	if (fail(c, fault))
		return;
	if (!load(res.instance, "cas", &res.digest, &data)) {
		send_status(c, GRPC_STATUS_NOT_FOUND, "no such blob", 0);
		return;
	}
	if (request->read_offset > (int64_t)data.len) {
		send_status(c, GRPC_STATUS_OUT_OF_RANGE, "beyond its end", 0);
		buf_fini(&data);
		return;
	}
	data.len -= (size_t)request->read_offset;
	memmove(data.data, data.data + request->read_offset, data.len);
	if (request->read_limit > 0 && (size_t)request->read_limit < data.len)
		data.len = (size_t)request->read_limit;
	spoil(fault, &data);
	if (res.zstd)
		compress(&data);
	if (res.zstd && fault == FAULT_GARBAGE)
		memset(data.data + data.len / 2, 0x55, data.len - data.len / 2);
	if (fault == FAULT_JUNK && send_bytes(c, "\xff\xff\xff", 3))
		send_status(c, GRPC_STATUS_OK, "", 0);
	else if (fault != FAULT_JUNK && send_parts(c, &data, fault))
		send_status(c, GRPC_STATUS_OK, "", 0);
	buf_fini(&data);
}

void serve_read(struct call *c)
{
	ProtobufCMessage *request = receive(c, &reapi__read_request__descriptor);

	if (request == NULL)
		return;
	read_blob(c, (const Reapi__ReadRequest *)request);
	protobuf_c_message_free_unpacked(request, NULL);
}

/* ---- writing ---- */

static const char *upload_path(const char *uuid, char out[600])
{
	char name[100];

	(void)snprintf(name, sizeof(name), "uploads/%s", uuid);
	return dir_path(name, out);
}

static void send_committed(struct call *c, int64_t size)
{
	Reapi__WriteResponse response = REAPI__WRITE_RESPONSE__INIT;

	response.committed_size = size;
	if (send_message(c, &response.base))
		send_status(c, GRPC_STATUS_OK, "", 0);
}

static bool decompress(struct buf *data, uint64_t size)
{
	struct buf to = {0};
	size_t got;

	if (buf_reserve(&to, size) < 0)
		abort();
	got = ZSTD_decompress(to.data, size, data->data, data->len);
	to.len = size;
	buf_fini(data);
	*data = to;
	return !ZSTD_isError(got) && got == size;
}

/* All of it has come. */
static void finish(struct call *c, const struct resource *res, const char *path)
{
	struct cas_digest got;
	struct buf data = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || buf_reserve(&data, (size_t)st.st_size) < 0 ||
	    pread(fd, data.data, (size_t)st.st_size, 0) != st.st_size)
		abort();
	(void)close(fd);
	data.len = (size_t)st.st_size;
	if ((res->zstd && !decompress(&data, res->digest.size)) ||
	    cas_hash_bytes(data.data, data.len, &got) < 0 || !cas_digest_equal(&got, &res->digest))
		send_status(c, GRPC_STATUS_INVALID_ARGUMENT, "not the bytes of that digest", 0);
	else if (store(res->instance, "cas", &res->digest, data.data, data.len))
		send_committed(c, res->zstd ? -1 : (int64_t)data.len);
	buf_fini(&data);
}

/* Write what comes to the file. True: all of it has come. */
static bool take_parts(struct call *c, Reapi__WriteRequest *request, int fd, enum fault fault)
{
	for (size_t nr = 0; request; nr++) {
		bool last = request->finish_write;

		if (pwrite(fd, request->data.data, request->data.len, request->write_offset) !=
		    (ssize_t)request->data.len)
			abort();
		if (nr > 0)
			protobuf_c_message_free_unpacked(&request->base, NULL);
		if (fault == FAULT_CUT && (last || nr == 4)) {
			drop_connection(c, false);
			return false;
		}
		if (last)
			return true;
		request = (Reapi__WriteRequest *)receive(c, &reapi__write_request__descriptor);
	}
	return false;
}

static void write_blob(struct call *c, Reapi__WriteRequest *request)
{
	enum fault fault = next_fault(true);
	struct resource res;
	struct buf known = {0};
	char path[600];
	int fd;

	if (!parse_resource(request->resource_name, &res)) {
		send_status(c, GRPC_STATUS_INVALID_ARGUMENT, "what a name", 0);
		return;
	}
	log_line("WRITE %s %lld", request->resource_name, (long long)request->write_offset);
	log_put(res.instance, &res.digest, "stream");
	if (fail(c, fault))
		return;
	if (load(res.instance, "cas", &res.digest, &known)) {
		send_committed(c, res.zstd ? -1 : (int64_t)res.digest.size);
		buf_fini(&known);
		return;
	}
	fd = open(upload_path(res.uuid, path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		abort();
	if (take_parts(c, request, fd, fault))
		finish(c, &res, path);
	(void)close(fd);
}

void serve_write(struct call *c)
{
	ProtobufCMessage *request = receive(c, &reapi__write_request__descriptor);

	if (request == NULL)
		return;
	write_blob(c, (Reapi__WriteRequest *)request);
	protobuf_c_message_free_unpacked(request, NULL);
}

void serve_query(struct call *c)
{
	Reapi__QueryWriteStatusResponse response = REAPI__QUERY_WRITE_STATUS_RESPONSE__INIT;
	ProtobufCMessage *message = receive(c, &reapi__query_write_status_request__descriptor);
	const Reapi__QueryWriteStatusRequest *request =
		(const Reapi__QueryWriteStatusRequest *)message;
	struct resource res;
	struct stat st;
	char path[600];

	if (request == NULL)
		return;
	log_line("QUERY %s", request->resource_name);
	if (!parse_resource(request->resource_name, &res) ||
	    stat(upload_path(res.uuid, path), &st) < 0) {
		send_status(c, GRPC_STATUS_NOT_FOUND, "no such upload", 0);
	} else {
		response.committed_size = st.st_size;
		if (send_message(c, &response.base))
			send_status(c, GRPC_STATUS_OK, "", 0);
	}
	protobuf_c_message_free_unpacked(message, NULL);
}
