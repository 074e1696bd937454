/* tests/lib/reapid.c - a small REAPI server with faults: reapid DIR */

/*
 * Serves CAS and action cache as files DIR/data/INSTANCE/cas/HASH and .../ac/HASH, a thread
 * a call, on a free port of 127.0.0.1 that it writes to DIR/port when it is ready. It ends
 * when its standard input does.
 *
 *   DIR/log           a line for each request, before it is answered: the method, and
 *                     "GET /INSTANCE/cas/HASH" (or PUT) for each blob
 *   DIR/metadata      the RequestMetadata of each
 *   DIR/fault         "KIND [N]": what goes wrong with reads of blobs, N times (0: always),
 *                     from the moment that the file appears or is replaced
 *   DIR/put-fault     the same for writes of blobs
 *   DIR/auth          what the authorization header must be; else UNAUTHENTICATED
 *   DIR/zstd          it offers compression (so does $REAPID_ZSTD)
 *   DIR/batch         the most bytes of a batch
 *   DIR/no-sha256     it names blobs by another function
 *   DIR/no-trees      it knows no GetTree
 *   DIR/leaves-first  its trees come with the root last
 *   DIR/key, cert     at the start: PEM files, TLS
 *   DIR/clients       with them: who may come, PEM; others are turned away
 *
 * $REAPID_DELAY_MS: each call is answered so much later, as by a server that is far away.
 */
#include "tests/lib/reapid.h"

#include <errno.h>
#include <fcntl.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/io.h"

#define OP_ALL	 1u
#define OP_CLOSE 2u

const char *dir;
static long delay_ms;

static const char *const fault_names[] = {
	"none",	 "hang", "silent",    "drip",	 "reset", "half", "truncate", "chunks",
	"short", "long", "empty",     "wrong",	 "html",  "junk", "garbage",  "absent",
	"error", "busy", "exhausted", "gateway", "delay", "cut",  "full"};

/* A file of faults, and what was read from it. */
struct faults {
	const char *name;
	struct timespec time;
	ino_t ino;
	enum fault fault;
	long left; /* -1: always */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct faults read_faults = {.name = "fault", .left = -1};
static struct faults write_faults = {.name = "put-fault", .left = -1};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

const char *dir_path(const char *name, char out[600])
{
	(void)snprintf(out, 600, "%s/%s", dir, name);
	return out;
}

bool dir_has(const char *name)
{
	char path[600];

	return access(dir_path(name, path), F_OK) == 0;
}

bool offers_zstd(void)
{
	return dir_has("zstd") || getenv("REAPID_ZSTD") != NULL;
}

bool is_far(void)
{
	return delay_ms > 0;
}

static void append_to(const char *name, const char *line, size_t len)
{
	char path[600];
	int fd = open(dir_path(name, path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, line, len) != (ssize_t)len)
		die(path);
	(void)close(fd);
}

void log_line(const char *format, ...)
{
	char line[800];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	line[len++] = '\n';
	append_to("log", line, (size_t)len);
}

void log_put(const char *instance, const struct cas_digest *d, const char *how)
{
	char hash[CAS_HASH_HEX_SZ + 1];

	cas_hash_format(d->hash, hash);
	log_line("PUT /%s/cas/%s %s", instance, hash, how);
}

/* ---- faults ---- */

static void read_fault(struct faults *f, const char *path)
{
	char text[100] = "";
	char kind[32] = "";
	long count = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	f->fault = FAULT_NONE;
	if (fd < 0)
		return;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (sscanf(text, "%31s %ld", kind, &count) < 1)
		return;
	for (size_t i = 0; i < sizeof(fault_names) / sizeof(fault_names[0]); i++) {
		if (strcmp(fault_names[i], kind) == 0)
			f->fault = (enum fault)i;
	}
	f->left = count > 0 ? count : -1;
}

enum fault next_fault(bool write)
{
	struct faults *f = write ? &write_faults : &read_faults;
	enum fault fault = FAULT_NONE;
	struct stat st = {0};
	char path[600];

	(void)pthread_mutex_lock(&lock);
	if (stat(dir_path(f->name, path), &st) < 0) {
		f->fault = FAULT_NONE;
		f->ino = 0;
	} else if (st.st_ino != f->ino || st.st_mtim.tv_sec != f->time.tv_sec ||
		   st.st_mtim.tv_nsec != f->time.tv_nsec) {
		f->ino = st.st_ino;
		f->time = st.st_mtim;
		read_fault(f, path);
	}
	if (f->left != 0) {
		fault = f->fault;
		if (f->left > 0)
			f->left--;
	}
	(void)pthread_mutex_unlock(&lock);
	return fault;
}

void spoil(enum fault fault, struct buf *data)
{
	static const char sorry[] = "<html><body>502 Sorry</body></html>";

	switch ((int)fault) { /* the others are no matter of bytes */
	case FAULT_SHORT:
		data->len -= data->len > 0;
		break;
	case FAULT_LONG:
		if (buf_append_char(data, 'x') < 0)
			abort();
		break;
	case FAULT_EMPTY:
		data->len = 0;
		break;
	case FAULT_HTML:
		data->len = 0;
		if (buf_append_str(data, sorry) < 0)
			abort();
		break;
	case FAULT_WRONG:
		for (size_t i = 0; i < data->len; i++)
			data->data[i] = (char)(data->data[i] ^ 0x55);
		break;
	case FAULT_CHUNKS:
		data->len /= 2;
		break;
	default:
		break;
	}
}

bool fail(struct call *c, enum fault fault)
{
	switch ((int)fault) { /* the others are a matter of bytes */
	case FAULT_HANG:
		hang(c);
		break;
	case FAULT_SILENT:
		(void)send_bytes(c, NULL, 0);
		hang(c);
		break;
	case FAULT_RESET:
		drop_connection(c, true);
		break;
	case FAULT_ABSENT:
		send_status(c, GRPC_STATUS_NOT_FOUND, "not here", 0);
		break;
	case FAULT_ERROR:
		send_status(c, GRPC_STATUS_INTERNAL, "I am unwell", 0);
		break;
	case FAULT_BUSY:
		send_status(c, GRPC_STATUS_UNAVAILABLE, "come again", 1000);
		break;
	case FAULT_EXHAUSTED:
		send_status(c, GRPC_STATUS_RESOURCE_EXHAUSTED, "too many", 200);
		break;
	case FAULT_GATEWAY:
		send_status(c, GRPC_STATUS_UNAVAILABLE, "nobody behind me", 0);
		break;
	case FAULT_FULL:
		send_status(c, GRPC_STATUS_RESOURCE_EXHAUSTED, "no room", 0);
		break;
	case FAULT_DELAY:
		(void)usleep(100000);
		return false;
	default:
		return false;
	}
	return true;
}

/* ---- calls ---- */

static gpr_timespec in_ms(int ms)
{
	return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

/* Do these; false: they failed. */
static bool run(struct call *c, const grpc_op *ops, size_t nr)
{
	if (grpc_call_start_batch(c->call, ops, nr, (void *)(uintptr_t)OP_ALL, NULL) !=
	    GRPC_CALL_OK)
		return false;
	for (;;) {
		grpc_event ev = grpc_completion_queue_next(
			c->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);

		if (ev.tag == (void *)(uintptr_t)OP_ALL)
			return ev.success;
		c->closed = true;
	}
}

ProtobufCMessage *receive(struct call *c, const ProtobufCMessageDescriptor *type)
{
	grpc_byte_buffer *bytes = NULL;
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &bytes};
	grpc_byte_buffer_reader reader;
	ProtobufCMessage *message;
	grpc_slice slice;

	if (!run(c, &op, 1) || bytes == NULL)
		return NULL;
	if (!grpc_byte_buffer_reader_init(&reader, bytes))
		abort();
	slice = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	message = protobuf_c_message_unpack(type, NULL, GRPC_SLICE_LENGTH(slice),
					    GRPC_SLICE_START_PTR(slice));
	if (message == NULL) {
		(void)fprintf(stderr, "%s: malformed %s\n", c->method, type->short_name);
		exit(1);
	}
	grpc_slice_unref(slice);
	grpc_byte_buffer_destroy(bytes);
	return message;
}

bool send_bytes(struct call *c, const void *data, size_t len)
{
	grpc_slice slice = grpc_slice_from_copied_buffer(data ? data : "", len);
	grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&slice, 1);
	grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
			  {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = bytes}};
	size_t skip = c->begun ? 1 : 0;
	bool sent = run(c, ops + skip, (data ? 2 : 1) - skip);

	c->begun = true;
	grpc_byte_buffer_destroy(bytes);
	grpc_slice_unref(slice);
	return sent;
}

bool send_message(struct call *c, const ProtobufCMessage *message)
{
	size_t len = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(len + 1);
	bool sent;

	if (packed == NULL)
		abort();
	(void)protobuf_c_message_pack(message, packed);
	sent = send_bytes(c, packed, len);
	free(packed);
	return sent;
}

static size_t pack_details(int code, unsigned retry_ms, uint8_t out[200])
{
	Reapi__Status status = REAPI__STATUS__INIT;
	Reapi__RetryInfo info = REAPI__RETRY_INFO__INIT;
	Reapi__Duration delay = REAPI__DURATION__INIT;
	Reapi__Any any = REAPI__ANY__INIT;
	Reapi__Any *list = &any;
	uint8_t packed[50];

	delay.seconds = retry_ms / 1000;
	delay.nanos = (int32_t)(retry_ms % 1000) * 1000000;
	info.retry_delay = &delay;
	any.type_url = (char *)(uintptr_t) "type.googleapis.com/google.rpc.RetryInfo";
	any.value.data = packed;
	any.value.len = reapi__retry_info__pack(&info, packed);
	status.code = code;
	status.n_details = 1;
	status.details = &list;
	return reapi__status__pack(&status, out);
}

void send_status(struct call *c, int code, const char *text, unsigned retry_ms)
{
	grpc_slice details = grpc_slice_from_copied_string(text);
	grpc_metadata tail = {.key = grpc_slice_from_static_string("grpc-status-details-bin")};
	uint8_t packed[200];
	grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
			  {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
			   .data.send_status_from_server = {.status = (grpc_status_code)code,
							    .status_details = &details}}};
	size_t skip = c->begun ? 1 : 0;

	tail.value = grpc_slice_from_copied_buffer(
		(const char *)packed, retry_ms ? pack_details(code, retry_ms, packed) : 0);
	if (retry_ms) {
		ops[1].data.send_status_from_server.trailing_metadata_count = 1;
		ops[1].data.send_status_from_server.trailing_metadata = &tail;
	}
	(void)run(c, ops + skip, 2 - skip);
	c->begun = true;
	grpc_slice_unref(tail.value);
	grpc_slice_unref(details);
}

/* gRPC does not tell which socket a call came by, so it is found by the port at its end. */
void drop_connection(struct call *c, bool with_reset)
{
	char *peer = grpc_call_get_peer(c->call);
	const char *colon = strrchr(peer, ':');
	int port = colon ? atoi(colon + 1) : 0;

	for (int fd = 3; fd < 1024; fd++) {
		const struct linger now = {.l_onoff = 1, .l_linger = 0};
		struct sockaddr_in6 addr;
		socklen_t len = sizeof(addr);

		if (getpeername(fd, (struct sockaddr *)&addr, &len) < 0 ||
		    ntohs(addr.sin6_port) != port)
			continue;
		if (with_reset)
			(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		(void)shutdown(fd, SHUT_RDWR);
	}
	gpr_free(peer);
}

void hang(struct call *c)
{
	char path[600];
	struct stat st;
	ino_t ino = stat(dir_path("fault", path), &st) == 0 ? st.st_ino : 0;

	while (!c->closed) {
		grpc_event ev = grpc_completion_queue_next(c->cq, in_ms(50), NULL);

		if (ev.type == GRPC_OP_COMPLETE)
			c->closed = true;
		if (stat(path, &st) < 0 || st.st_ino != ino)
			return;
	}
}

/* ---- blobs ---- */

const char *blob_path(const char *instance, const char *kind, const struct cas_digest *d,
		      char out[1200])
{
	char hash[CAS_HASH_HEX_SZ + 1];

	cas_hash_format(d->hash, hash);
	(void)snprintf(out, 1200, "%s/data/%s/%s/%s", dir, instance, kind, hash);
	return out;
}

bool load(const char *instance, const char *kind, const struct cas_digest *d, struct buf *out)
{
	char path[1200];
	int ret;

	if (cas_digest_is_empty(d) && buf_reserve(out, 1) == 0)
		return true;
	ret = io_read_file(AT_FDCWD, blob_path(instance, kind, d, path), 1u << 30, out);
	/* What cannot be read is not absent: a case would look for the reason elsewhere. */
	if (ret < 0 && ret != -ENOENT) {
		errno = -ret;
		die(path);
	}
	return ret == 0;
}

bool store(const char *instance, const char *kind, const struct cas_digest *d, const void *data,
	   size_t len)
{
	static _Atomic unsigned counter;
	char path[1200];
	char tmp[1300];
	int fd;

	(void)blob_path(instance, kind, d, path);
	(void)snprintf(tmp, sizeof(tmp), "%s.%u", path, counter++);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, data, len) != (ssize_t)len || rename(tmp, path) < 0)
		die(tmp);
	(void)close(fd);
	return true;
}

void parse_digest(const Reapi__Digest *message, struct cas_digest *out)
{
	out->size = (uint64_t)message->size_bytes;
	if (cas_hash_parse(message->hash, strlen(message->hash), out->hash) < 0) {
		(void)fprintf(stderr, "malformed digest %s\n", message->hash);
		exit(1);
	}
}

/* ---- the server ---- */

static const struct {
	const char *method;
	void (*serve)(struct call *c);
} methods[] = {
	{"GetCapabilities", serve_capabilities},
	{"FindMissingBlobs", serve_find_missing},
	{"BatchReadBlobs", serve_batch_read},
	{"BatchUpdateBlobs", serve_batch_update},
	{"GetTree", serve_tree},
	{"Read", serve_read},
	{"Write", serve_write},
	{"QueryWriteStatus", serve_query},
	{"GetActionResult", serve_action_get},
	{"UpdateActionResult", serve_action_put},
};

/* The header, or "". */
static void header(const struct call *c, const char *name, char *out, size_t room)
{
	out[0] = '\0';
	for (size_t i = 0; i < c->headers.count; i++) {
		const grpc_metadata *m = &c->headers.metadata[i];

		if (grpc_slice_str_cmp(m->key, name) == 0)
			(void)snprintf(out, room, "%.*s", (int)GRPC_SLICE_LENGTH(m->value),
				       (const char *)GRPC_SLICE_START_PTR(m->value));
	}
}

static bool is_allowed(const struct call *c)
{
	struct buf want = {0};
	char path[600];
	char got[512];
	bool same = true;

	if (io_read_file(AT_FDCWD, dir_path("auth", path), 511, &want) == 0) {
		header(c, "authorization", got, sizeof(got));
		same = strcspn(want.data, "\n") == strlen(got) &&
		       memcmp(want.data, got, strlen(got)) == 0;
	}
	buf_fini(&want);
	return same;
}

static void note_metadata(const struct call *c)
{
	char line[300];
	Reapi__RequestMetadata *m = NULL;

	for (size_t i = 0; i < c->headers.count && m == NULL; i++) {
		const grpc_metadata *h = &c->headers.metadata[i];

		if (grpc_slice_str_cmp(h->key,
				       "build.bazel.remote.execution.v2.requestmetadata-bin") == 0)
			m = reapi__request_metadata__unpack(NULL, GRPC_SLICE_LENGTH(h->value),
							    GRPC_SLICE_START_PTR(h->value));
	}
	if (m && m->tool_details) {
		int len = snprintf(line, sizeof(line), "%s %s %s %s %s\n", c->method,
				   m->tool_details->tool_name, m->tool_details->tool_version,
				   m->tool_invocation_id, m->action_id);

		append_to("metadata", line, (size_t)len);
	}
	if (m)
		reapi__request_metadata__free_unpacked(m, NULL);
}

static void dispatch(struct call *c)
{
	const struct timespec nap = {.tv_sec = delay_ms / 1000,
				     .tv_nsec = delay_ms % 1000 * 1000000};

	note_metadata(c);
	if (delay_ms > 0)
		(void)nanosleep(&nap, NULL);
	if (!is_allowed(c)) {
		log_line("REFUSED %s", c->method);
		send_status(c, GRPC_STATUS_UNAUTHENTICATED, "who are you", 0);
		return;
	}
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (strcmp(methods[i].method, c->method) == 0) {
			methods[i].serve(c);
			return;
		}
	}
	send_status(c, GRPC_STATUS_UNIMPLEMENTED, "what?", 0);
}

static void *serve_call(void *arg)
{
	struct call *c = arg;
	grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
		      .data.recv_close_on_server.cancelled = &c->cancelled};
	const char *slash;
	char *path = grpc_slice_to_c_string(c->details.method);

	slash = strrchr(path, '/');
	(void)snprintf(c->method, sizeof(c->method), "%s", slash ? slash + 1 : path);
	gpr_free(path);
	if (grpc_call_start_batch(c->call, &op, 1, (void *)(uintptr_t)OP_CLOSE, NULL) !=
	    GRPC_CALL_OK)
		abort();
	dispatch(c);
	/* One that was not answered ends with its connection, or here. */
	if (!c->closed)
		(void)grpc_call_cancel(c->call, NULL);
	while (!c->closed)
		c->closed = grpc_completion_queue_next(c->cq, in_ms(100), NULL).type ==
			    GRPC_OP_COMPLETE;
	grpc_call_unref(c->call);
	grpc_call_details_destroy(&c->details);
	grpc_metadata_array_destroy(&c->headers);
	grpc_completion_queue_shutdown(c->cq);
	while (grpc_completion_queue_next(c->cq, in_ms(100), NULL).type != GRPC_QUEUE_SHUTDOWN) {
	}
	grpc_completion_queue_destroy(c->cq);
	free(c);
	return NULL;
}

static void serve_forever(grpc_server *server, grpc_completion_queue *cq)
{
	pthread_attr_t small;

	(void)pthread_attr_init(&small);
	(void)pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	for (;;) {
		struct call *c = calloc(1, sizeof(*c));
		pthread_t thread;

		if (c == NULL)
			abort();
		c->cq = grpc_completion_queue_create_for_next(NULL);
		grpc_call_details_init(&c->details);
		grpc_metadata_array_init(&c->headers);
		if (grpc_server_request_call(server, &c->call, &c->details, &c->headers, c->cq, cq,
					     c) != GRPC_CALL_OK ||
		    !grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL)
			     .success)
			abort();
		if (pthread_create(&thread, &small, serve_call, c) != 0)
			abort();
	}
}

static grpc_server_credentials *credentials(void)
{
	struct buf key = {0};
	struct buf cert = {0};
	struct buf clients = {0};
	grpc_ssl_pem_key_cert_pair pair;
	grpc_server_credentials *creds;
	char path[600];

	if (!dir_has("key"))
		return grpc_insecure_server_credentials_create();
	if (io_read_file(AT_FDCWD, dir_path("key", path), 1 << 20, &key) < 0 ||
	    io_read_file(AT_FDCWD, dir_path("cert", path), 1 << 20, &cert) < 0)
		die(path);
	pair = (grpc_ssl_pem_key_cert_pair){key.data, cert.data};
	if (dir_has("clients") &&
	    io_read_file(AT_FDCWD, dir_path("clients", path), 1 << 20, &clients) < 0)
		die(path);
	creds = grpc_ssl_server_credentials_create_ex(
		clients.data, &pair, 1,
		clients.data ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
			     : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
		NULL);
	buf_fini(&clients);
	buf_fini(&key);
	buf_fini(&cert);
	return creds;
}

static void write_port(int port)
{
	char path[600];
	char tmp[600];
	FILE *f = fopen(dir_path("port.tmp", tmp), "w");

	if (f == NULL || fprintf(f, "%d\n", port) < 0 || fclose(f) != 0 ||
	    rename(tmp, dir_path("port", path)) < 0)
		die("port");
}

static void *end_with_stdin(void *arg)
{
	char c;

	while (read(STDIN_FILENO, &c, 1) > 0) {
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	/* Else two servers share a port, and each gets calls that are for the other. */
	grpc_arg alone = {
		GRPC_ARG_INTEGER, (char *)(uintptr_t)GRPC_ARG_ALLOW_REUSEPORT, {.integer = 0}};
	const grpc_channel_args args = {1, &alone};
	grpc_completion_queue *cq;
	grpc_server_credentials *creds;
	grpc_server *server;
	pthread_t thread;
	char path[600];
	char at[50];
	int port;

	if (argc < 2 || argc > 3) {
		(void)fprintf(stderr, "usage: reapid DIR [PORT]\n");
		return 2;
	}
	dir = argv[1];
	if (getenv("REAPID_DELAY_MS"))
		delay_ms = atol(getenv("REAPID_DELAY_MS"));
	(void)mkdir(dir_path("data", path), 0755);
	(void)mkdir(dir_path("uploads", path), 0755);
	append_to("log", "", 0);
	grpc_init();
	creds = credentials();
	server = grpc_server_create(&args, NULL);
	cq = grpc_completion_queue_create_for_next(NULL);
	grpc_server_register_completion_queue(server, cq, NULL);
	(void)snprintf(at, sizeof(at), "127.0.0.1:%s", argc > 2 ? argv[2] : "0");
	port = grpc_server_add_http2_port(server, at, creds);
	if (port <= 0 || pthread_create(&thread, NULL, end_with_stdin, NULL) != 0)
		return 1;
	grpc_server_credentials_release(creds);
	grpc_server_start(server);
	write_port(port);
	serve_forever(server, cq);
}
