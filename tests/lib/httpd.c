/* tests/lib/httpd.c - a small HTTP cache with faults: httpd DIR [PORT] */

/*
 * Serves GET, HEAD and PUT of /ANY/PATH as files below DIR/data, with ranges, one thread a
 * connection, on a free port of 127.0.0.1 that it writes to DIR/port when it is ready. It
 * ends when its standard input does.
 *
 *   DIR/log     a line "METHOD PATH RANGE" for each request, before it is answered
 *   DIR/fault   "KIND [N]": what goes wrong with GETs below cas/, N times (0: always), from
 *               the moment that the file appears or is replaced
 *   DIR/auth    what the Authorization header must be; else 401
 *   DIR/s3      "KEY SECRET REGION": requests must be signed with it, else 403; and multipart
 *               uploads work (parts must come in order). A body whose hash is given in the
 *               head must have that, else 400
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "tests/lib/sigv4.h"

#define HEAD_MAX    16384
#define HEADERS_MAX 64

enum fault {
	FAULT_NONE,
	FAULT_HANG,	/* no answer at all */
	FAULT_SILENT,	/* a head, and no body */
	FAULT_DRIP,	/* a byte of the body each 20 ms */
	FAULT_RESET,	/* a reset instead of an answer */
	FAULT_HALF,	/* a reset after half of the body */
	FAULT_TRUNCATE, /* the connection ends after half of the body */
	FAULT_SHORT,	/* an answer, complete, of one byte less */
	FAULT_LONG,	/* one byte more */
	FAULT_EMPTY,
	FAULT_WRONG, /* other bytes */
	FAULT_HTML,  /* a page that says sorry, with status 200 */
	FAULT_ABSENT,
	FAULT_ERROR,
	FAULT_BUSY,    /* 503, and when to come again */
	FAULT_CHUNKS,  /* in chunks, the last one missing */
	FAULT_DELAY,   /* 100 ms, then the answer */
	FAULT_GATEWAY, /* 502 */
	FAULT_MOVED,   /* 307, to the same place by the name "localhost": a loop */
	FAULT_RANGE,   /* as truncate, but 416 to who asks for the rest */
};

static const char *const fault_names[] = {"none",   "hang",	"silent",  "drip",  "reset",
					  "half",   "truncate", "short",   "long",  "empty",
					  "wrong",  "html",	"absent",  "error", "busy",
					  "chunks", "delay",	"gateway", "moved", "range"};

struct server {
	const char *dir;
	int log_fd;
	pthread_mutex_t lock;
	struct timespec fault_time; /* of the file that the rest is from */
	ino_t fault_ino;
	enum fault fault;
	long left; /* -1: always */
};

static struct server server = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct request {
	int fd;
	char head[HEAD_MAX];
	size_t head_len;
	char *rest; /* what was read beyond the head */
	size_t rest_len;
	char method[8];
	char path[512];
	char query[512];
	const char *headers[HEADERS_MAX];
	size_t nr_headers;
	long long content_length;
	long long from; /* of a range, -1: none */
	long long to;
	bool expects;
	char auth[512];
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static bool send_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static void reset(int fd)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

static const char *dir_path(const char *name, char out[600])
{
	(void)snprintf(out, 600, "%s/%s", server.dir, name);
	return out;
}

static void read_fault(const char *path)
{
	char text[100] = "";
	char kind[32] = "";
	long count = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	server.fault = FAULT_NONE;
	if (fd < 0)
		return;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (sscanf(text, "%31s %ld", kind, &count) < 1)
		return;
	for (size_t i = 0; i < sizeof(fault_names) / sizeof(fault_names[0]); i++) {
		if (strcmp(fault_names[i], kind) == 0)
			server.fault = (enum fault)i;
	}
	server.left = count > 0 ? count : -1;
}

/* What goes wrong this time. */
static enum fault next_fault(const struct request *r)
{
	enum fault fault = FAULT_NONE;
	char path[600];
	struct stat st = {0};

	(void)pthread_mutex_lock(&server.lock);
	if (stat(dir_path("fault", path), &st) < 0) {
		server.fault = FAULT_NONE;
		server.fault_ino = 0;
	} else if (st.st_ino != server.fault_ino || st.st_mtim.tv_sec != server.fault_time.tv_sec ||
		   st.st_mtim.tv_nsec != server.fault_time.tv_nsec) {
		server.fault_ino = st.st_ino;
		server.fault_time = st.st_mtim;
		read_fault(path);
	}
	if (strstr(r->path, "/cas/") && strcmp(r->method, "GET") == 0 && server.left != 0) {
		fault = server.fault;
		if (server.left > 0)
			server.left--;
	}
	(void)pthread_mutex_unlock(&server.lock);
	return fault;
}

/* Until the other side goes, or the fault does. */
static void hang(const struct request *r)
{
	char path[600];
	struct pollfd p = {.fd = r->fd, .events = POLLRDHUP};
	struct stat st;
	ino_t ino = stat(dir_path("fault", path), &st) == 0 ? st.st_ino : 0;

	while (poll(&p, 1, 50) == 0) {
		if (stat(path, &st) < 0 || st.st_ino != ino)
			return;
	}
}

static void answer_status(const struct request *r, int status, const char *extra)
{
	char head[300];

	(void)snprintf(head, sizeof(head), "HTTP/1.1 %d x\r\n%sContent-Length: 0\r\n\r\n", status,
		       extra);
	(void)send_all(r->fd, head, strlen(head));
}

static void send_head(const struct request *r, long long from, long long len, long long size)
{
	char head[300];
	char range[100] = "";

	if (r->from >= 0)
		(void)snprintf(range, sizeof(range), "Content-Range: bytes %lld-%lld/%lld\r\n",
			       from, from + len - 1, size);
	(void)snprintf(head, sizeof(head), "HTTP/1.1 %s\r\n%sContent-Length: %lld\r\n\r\n",
		       r->from >= 0 ? "206 Partial" : "200 OK", range, len);
	(void)send_all(r->fd, head, strlen(head));
}

static void send_chunks(const struct request *r, const char *data, long long len)
{
	char head[100];

	(void)snprintf(head, sizeof(head),
		       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%llx\r\n", len / 2);
	(void)send_all(r->fd, head, strlen(head));
	(void)send_all(r->fd, data, (size_t)len / 2);
	(void)send_all(r->fd, "\r\n", 2);
}

/* A body, or what goes wrong with it. True: the connection can go on. */
static bool send_body(const struct request *r, enum fault fault, char *data, long long from,
		      long long len, long long size)
{
	static const char sorry[] = "<html><body>502 Sorry</body></html>";
	long long half = len / 2;

	switch ((int)fault) { /* the others are no matter of bodies */
	case FAULT_SHORT:
		send_head(r, from, len - 1, size);
		return send_all(r->fd, data, (size_t)len - 1);
	case FAULT_LONG:
		send_head(r, from, len + 1, size);
		return send_all(r->fd, data, (size_t)len) && send_all(r->fd, "x", 1);
	case FAULT_EMPTY:
		send_head(r, from, 0, size);
		return true;
	case FAULT_HTML:
		send_head(r, from, sizeof(sorry) - 1, size);
		return send_all(r->fd, sorry, sizeof(sorry) - 1);
	case FAULT_WRONG:
		for (long long i = 0; i < len; i++)
			data[i] = (char)(data[i] ^ 0x55);
		break;
	case FAULT_CHUNKS:
		send_chunks(r, data, len);
		return false;
	case FAULT_SILENT:
		send_head(r, from, len, size);
		hang(r);
		return false;
	case FAULT_DRIP:
		send_head(r, from, len, size);
		for (long long i = 0; i < len; i++) {
			if (!send_all(r->fd, data + i, 1))
				return false;
			(void)usleep(20000);
		}
		return true;
	case FAULT_HALF:
	case FAULT_TRUNCATE:
	case FAULT_RANGE:
		send_head(r, from, len, size);
		(void)send_all(r->fd, data, (size_t)half);
		/* What was sent must arrive before the reset does. */
		(void)usleep(50000);
		if (fault == FAULT_HALF)
			reset(r->fd);
		return false;
	default:
		break;
	}
	send_head(r, from, len, size);
	return strcmp(r->method, "HEAD") == 0 || send_all(r->fd, data, (size_t)len);
}

static const char *data_path(const struct request *r, char out[1200])
{
	(void)snprintf(out, 1200, "%s/data%s", server.dir, r->path);
	return out;
}

static bool serve_file(const struct request *r, enum fault fault)
{
	char path[1200];
	struct stat st;
	char *data;
	long long from = r->from >= 0 ? r->from : 0;
	long long len;
	bool go_on;
	int fd = open(data_path(r, path), O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		answer_status(r, 404, "");
		return true;
	}
	len = r->to >= 0 && r->to < st.st_size ? r->to + 1 - from : st.st_size - from;
	if (len < 0)
		len = 0;
	data = malloc((size_t)len + 1);
	if (data == NULL || pread(fd, data, (size_t)len, from) != (ssize_t)len)
		die("read");
	(void)close(fd);
	go_on = send_body(r, fault, data, from, len, st.st_size);
	free(data);
	return go_on;
}

static void answer_moved(const struct request *r)
{
	struct sockaddr_in here = {0};
	socklen_t len = sizeof(here);
	char extra[250];

	(void)getsockname(r->fd, (struct sockaddr *)&here, &len);
	(void)snprintf(extra, sizeof(extra), "Location: http://localhost:%d%.150s\r\n",
		       ntohs(here.sin_port), r->path);
	answer_status(r, 307, extra);
}

static bool answer_get(const struct request *r)
{
	enum fault fault = next_fault(r);

	switch ((int)fault) { /* the others are no matter of heads */
	case FAULT_RANGE:
		if (r->from <= 0)
			break;
		answer_status(r, 416, "");
		return true;
	case FAULT_HANG:
		hang(r);
		return false;
	case FAULT_RESET:
		reset(r->fd);
		return false;
	case FAULT_ABSENT:
		answer_status(r, 404, "");
		return true;
	case FAULT_ERROR:
		answer_status(r, 500, "");
		return true;
	case FAULT_GATEWAY:
		answer_status(r, 502, "");
		return true;
	case FAULT_MOVED:
		answer_moved(r);
		return true;
	case FAULT_BUSY:
		answer_status(r, 503, "Retry-After: 1\r\n");
		return true;
	case FAULT_DELAY:
		(void)usleep(100000);
		break;
	default:
		break;
	}
	return serve_file(r, fault);
}

static void make_parents(char *path)
{
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		(void)mkdir(path, 0755);
		*p = '/';
	}
}

/* What the head says of the body's hash, if anything. */
static bool is_hash(const struct request *r, EVP_MD_CTX *sum)
{
	unsigned char got[EVP_MAX_MD_SIZE];
	char hex[2 * EVP_MAX_MD_SIZE + 1];
	unsigned len = 0;

	(void)EVP_DigestFinal_ex(sum, got, &len);
	for (unsigned i = 0; i < len; i++)
		(void)snprintf(hex + 2 * (size_t)i, 3, "%02x", got[i]);
	for (size_t i = 0; i < r->nr_headers; i++) {
		if (strncasecmp(r->headers[i], "x-amz-content-sha256: ", 22) == 0 &&
		    strlen(r->headers[i]) == 22 + 64)
			return strcmp(r->headers[i] + 22, hex) == 0;
	}
	return true;
}

static bool answer_put(struct request *r)
{
	char path[1200];
	char tmp[1300];
	static _Atomic unsigned counter;
	long long left = r->content_length;
	EVP_MD_CTX *sum;
	bool right;
	int fd;

	make_parents((char *)(uintptr_t)data_path(r, path));
	(void)snprintf(tmp, sizeof(tmp), "%s.%u", path, counter++);
	if (strncmp(r->query, "partNumber=", 11) == 0)
		(void)snprintf(tmp, sizeof(tmp), "%s.parts", path);
	fd = open(tmp, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	sum = EVP_MD_CTX_new();
	if (fd < 0 || !sum || EVP_DigestInit_ex(sum, EVP_sha256(), NULL) != 1)
		die(tmp);
	if (r->expects)
		(void)send_all(r->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	while (left > 0) {
		char data[65536];
		ssize_t n = (ssize_t)r->rest_len;

		if (n > 0) {
			memcpy(data, r->rest, r->rest_len);
			r->rest_len = 0;
		} else {
			n = recv(r->fd, data, sizeof(data), 0);
		}
		if (n <= 0 || write(fd, data, (size_t)n) != n)
			break;
		(void)EVP_DigestUpdate(sum, data, (size_t)n);
		left -= n;
	}
	(void)close(fd);
	right = is_hash(r, sum);
	EVP_MD_CTX_free(sum);
	if (left != 0 || !right) {
		(void)unlink(tmp);
		answer_status(r, 400, "");
		return false;
	}
	if (r->query[0] == '\0' && rename(tmp, path) < 0)
		die(path);
	answer_status(r, 201, "ETag: \"of a part\"\r\n");
	return true;
}

static void header(struct request *r, const char *line)
{
	if (r->nr_headers < HEADERS_MAX)
		r->headers[r->nr_headers++] = line;
	if (strncasecmp(line, "content-length:", 15) == 0)
		r->content_length = atoll(line + 15);
	else if (strncasecmp(line, "expect:", 7) == 0)
		r->expects = true;
	else if (strncasecmp(line, "authorization: ", 15) == 0)
		(void)snprintf(r->auth, sizeof(r->auth), "%s", line + 15);
	else if (strncasecmp(line, "range: bytes=", 13) == 0 &&
		 sscanf(line + 13, "%lld-%lld", &r->from, &r->to) < 1)
		r->from = -1;
}

/* Read and take apart a head. */
static bool read_request(struct request *r)
{
	char *end;
	char *save = NULL;

	r->head_len = 0;
	r->content_length = 0;
	r->from = r->to = -1;
	r->expects = false;
	r->auth[0] = '\0';
	do {
		ssize_t n = r->head_len + 1 < HEAD_MAX ? recv(r->fd, r->head + r->head_len,
							      HEAD_MAX - 1 - r->head_len, 0)
						       : 0;

		if (n <= 0)
			return false;
		r->head_len += (size_t)n;
		r->head[r->head_len] = '\0';
		end = strstr(r->head, "\r\n\r\n");
	} while (end == NULL);
	*end = '\0';
	r->rest = end + 4;
	r->rest_len = (size_t)(r->head + r->head_len - r->rest);
	if (sscanf(r->head, "%7s %511s", r->method, r->path) != 2 || strstr(r->path, ".."))
		return false;
	r->nr_headers = 0;
	r->query[0] = '\0';
	end = strchr(r->path, '?');
	if (end) {
		*end = '\0';
		(void)snprintf(r->query, sizeof(r->query), "%s", end + 1);
	}
	for (char *line = strtok_r(r->head, "\r\n", &save); line;
	     line = strtok_r(NULL, "\r\n", &save))
		header(r, line);
	return true;
}

static bool is_allowed(const struct request *r)
{
	char path[600];
	char want[512] = "";
	int fd = open(dir_path("auth", path), O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return true;
	(void)!read(fd, want, sizeof(want) - 1);
	(void)close(fd);
	want[strcspn(want, "\n")] = '\0';
	return strcmp(want, r->auth) == 0;
}

static bool is_s3(char key[100], char secret[100], char region[100])
{
	char path[600];
	char text[310] = "";
	int fd = open(dir_path("s3", path), O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	return sscanf(text, "%99s %99s %99s", key, secret, region) == 3;
}

static bool is_signed(const struct request *r)
{
	const struct sigv4_request s = {r->method, r->path, r->query, r->headers, r->nr_headers};
	char key[100];
	char secret[100];
	char region[100];
	const char *why = "";

	if (!is_s3(key, secret, region) || sigv4_check(&s, key, secret, region, &why))
		return true;
	(void)dprintf(server.log_fd, "REFUSED %s\n", why);
	return false;
}

/* POST ?uploads, POST ?uploadId=...; parts are put beside the object, after one another. */
static bool answer_post(struct request *r)
{
	static const char begun[] = "<Result><UploadId>an id/with+odd</UploadId></Result>";
	static const char ended[] = "<Result/>";
	const char *body = strncmp(r->query, "uploads", 7) == 0 ? begun : ended;
	char path[1200];
	char from[1300];
	char head[200];

	while (r->content_length > (long long)r->rest_len) {
		char skip[4096];
		ssize_t n = recv(r->fd, skip, sizeof(skip), 0);

		if (n <= 0)
			return false;
		r->content_length -= n;
	}
	(void)snprintf(from, sizeof(from), "%s.parts", data_path(r, path));
	if (body == begun)
		(void)unlink(from);
	else if (rename(from, path) < 0)
		die(from);
	(void)snprintf(head, sizeof(head), "HTTP/1.1 200 x\r\nContent-Length: %zu\r\n\r\n",
		       strlen(body));
	return send_all(r->fd, head, strlen(head)) && send_all(r->fd, body, strlen(body));
}

static void *serve(void *arg)
{
	struct request *r = calloc(1, sizeof(*r));
	bool go_on = true;

	if (r == NULL)
		die("malloc");
	r->fd = (int)(intptr_t)arg;
	while (go_on && read_request(r)) {
		char line[700];
		int n = snprintf(line, sizeof(line), "%s %s %lld %.100s\n", r->method, r->path,
				 r->from, r->query);

		(void)!write(server.log_fd, line, (size_t)n);
		if (!is_allowed(r)) {
			answer_status(r, 401, "");
			go_on = r->content_length == 0;
		} else if (!is_signed(r)) {
			answer_status(r, 403, "");
			go_on = r->content_length == 0;
		} else if (strcmp(r->method, "POST") == 0) {
			go_on = answer_post(r);
		} else if (strcmp(r->method, "GET") == 0) {
			go_on = answer_get(r);
		} else if (strcmp(r->method, "HEAD") == 0) {
			go_on = serve_file(r, FAULT_NONE);
		} else if (strcmp(r->method, "PUT") == 0) {
			go_on = answer_put(r);
		} else {
			answer_status(r, 405, "");
			go_on = r->content_length == 0;
		}
	}
	(void)close(r->fd);
	free(r);
	return NULL;
}

static int start_listening(uint16_t port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char path[600];
	char tmp[600];
	int one = 1;
	FILE *f;

	addr.sin_port = htons(port);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, 512) < 0 ||
	    getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		die("listen");
	f = fopen(dir_path("port.tmp", tmp), "w");
	if (f == NULL || fprintf(f, "%u\n", ntohs(addr.sin_port)) < 0 || fclose(f) != 0 ||
	    rename(tmp, dir_path("port", path)) < 0)
		die("port");
	return fd;
}

static void *end_with_stdin(void *arg)
{
	char c;

	while (read(STDIN_FILENO, &c, 1) > 0) {
	}
	exit(0);
}

int main(int argc, char **argv)
{
	char path[600];
	pthread_attr_t small;
	pthread_t thread;
	int listen_fd;

	if (argc < 2 || argc > 3) {
		(void)fprintf(stderr, "usage: httpd DIR [PORT]\n");
		return 2;
	}
	server.dir = argv[1];
	server.left = -1;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)mkdir(dir_path("data", path), 0755);
	server.log_fd =
		open(dir_path("log", path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (server.log_fd < 0)
		die(path);
	(void)pthread_attr_init(&small);
	(void)pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&small, 256 << 10);
	if (pthread_create(&thread, &small, end_with_stdin, NULL) != 0)
		die("thread");
	listen_fd = start_listening(argc > 2 ? (uint16_t)atoi(argv[2]) : 0);
	for (;;) {
		int one = 1;
		int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (pthread_create(&thread, &small, serve, (void *)(intptr_t)fd) != 0)
			(void)close(fd);
	}
}
