/* cas/tier/grpc.c - a connection over gRPC */
#include "cas/tier/grpc.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/tier/grpc_i.h"
#include "cas/tier/secret.h"
#include "cas/tier/url.h"

/*
 * gRPC tries nothing again by itself: that is for cas/tier/tier.c, which also paces new
 * connections. A connection on which a call got no answer in time may be dead without
 * anybody having been told: the next call begins on a new one. So it does when nobody was
 * there, for gRPC would not look again for a while. Calls that are under way on the old
 * one go on.
 *
 * gRPC makes threads of its own, so it is started with the first call, not at open, after
 * which a process may still split in two.
 */

#define MESSAGE_MAX (CAS_TIER_ACTION_MAX + (64 << 10))
#define PEM_MAX	    (4 << 20)

/* gRPC says what a caller is told anyway; with GRPC_TRACE it would print credentials. */
static void forward_log(gpr_log_func_args *args)
{
	if (args->severity == GPR_LOG_SEVERITY_ERROR)
		log_debug("gRPC: %s", args->message);
}

int tier_uuid_new(char out[TIER_UUID_SZ])
{
	char hex[33];
	int ret = io_random_hex(hex, 16);

	if (ret < 0)
		return ret;
	/* Version 4, variant 1. */
	(void)snprintf(out, TIER_UUID_SZ, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hex, hex + 8, hex + 13,
		       hex + 17, hex + 20);
	return 0;
}

/*
 * gRPC brings some fifty libraries along, which cost 7 ms of a process's start: they are
 * loaded by those that use them. This stays for the life of the process.
 */
static int load_api(struct tier_grpc *g, struct err *err)
{
	void *lib = dlopen(TIER_GRPC_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (lib == NULL)
		return err_set(err, -EINVAL, "tier %s: cannot load gRPC core: %s", g->name,
			       dlerror());
#define LOAD(fn)                                                                                   \
	*(void **)&g->api.fn = dlsym(lib, #fn);                                                    \
	if (g->api.fn == NULL)                                                                     \
		return err_set(err, -EINVAL, "tier %s: gRPC core lacks %s", g->name, #fn);
	TIER_GRPC_API(LOAD)
#undef LOAD
	return 0;
}

static bool is_loopback(const char *host)
{
	struct in_addr v4;

	return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
	       (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

static int read_pem(const struct tier_grpc *g, const char *path, struct buf *out, struct err *err)
{
	int ret = io_read_file(AT_FDCWD, path, PEM_MAX, out);

	if (ret < 0)
		return err_set(err, ret, "tier %s: cannot read %s: %s", g->name, path,
			       strerrordesc_np(-ret));
	if (strstr(buf_str(out), "-----BEGIN ") == NULL)
		return err_set(err, -EINVAL, "tier %s: %s is no PEM file", g->name, path);
	return 0;
}

static int take_path(const struct tier_grpc *g, const struct tier_url *url, const char *option,
		     char **out, struct err *err)
{
	const char *value = tier_url_get(url, option);
	auto_buf struct buf pem = {0};

	if (value == NULL)
		return 0;
	if (!g->has_tls)
		return err_set(err, -EINVAL, "tier %s: %s is for grpcs://", g->name, option);
	*out = strdup(value);
	return *out ? read_pem(g, value, &pem, err) : -ENOMEM;
}

static int take_options(struct tier_grpc *g, const struct tier_url *url, struct err *err)
{
	int ret = tier_secret_open(url, "token-file", &g->token_file, err);

	if (ret == 0 && g->token_file && !g->has_tls && !is_loopback(url->host))
		return err_set(err, -EINVAL,
			       "tier %s: a token would travel in plain text, use grpcs://",
			       g->name);
	if (ret == 0)
		ret = take_path(g, url, "ca-file", &g->ca_file, err);
	if (ret == 0)
		ret = take_path(g, url, "cert-file", &g->cert_file, err);
	if (ret == 0)
		ret = tier_secret_open(url, "key-file", &g->key_file, err);
	if (ret == 0 && (g->cert_file == NULL) != (g->key_file == NULL))
		ret = err_set(err, -EINVAL, "tier %s: cert-file and key-file go together", g->name);
	return ret;
}

int tier_grpc_open(const struct tier_url *url, struct tier_grpc **out, struct err *err)
{
	struct tier_grpc *g;
	int ret;

	if (url->host[0] == '\0')
		return err_set(err, -EINVAL, "tier %s: it names no host", url->text);
	g = calloc(1, sizeof(*g));
	if (g == NULL)
		return -ENOMEM;
	lock_init(&g->lock, LOCK_RANK_LEAF, "tier_grpc.lock");
	g->has_tls = url->scheme[strlen(url->scheme) - 1] == 's';
	g->name = strdup(url->text);
	if (asprintf(&g->target, "dns:///%s:%u", url->host, url->port ? url->port : 443) < 0)
		g->target = NULL;
	ret = g->name && g->target ? tier_uuid_new(g->invocation) : -ENOMEM;
	if (ret == 0)
		ret = load_api(g, err);
	if (ret == 0)
		ret = take_options(g, url, err);
	if (ret < 0) {
		tier_grpc_close(g);
		return ret;
	}
	*out = g;
	return 0;
}

void tier_grpc_close(struct tier_grpc *g)
{
	if (g == NULL)
		return;
	tier_channel_give(g, g->channel);
	if (g->has_run)
		g->api.grpc_shutdown_blocking();
	free(g->name);
	free(g->target);
	free(g->token_file);
	free(g->ca_file);
	free(g->cert_file);
	free(g->key_file);
	lock_fini(&g->lock);
	free(g);
}

/* ---- channels ---- */

static int make_credentials(const struct tier_grpc *g, grpc_channel_credentials **out,
			    struct err *err)
{
	auto_buf struct buf ca = {0};
	auto_buf struct buf cert = {0};
	auto_secret struct buf key = {0};
	grpc_ssl_pem_key_cert_pair pair;
	int ret = 0;

	if (!g->has_tls) {
		*out = g->api.grpc_insecure_credentials_create();
		return 0;
	}
	if (g->ca_file)
		ret = read_pem(g, g->ca_file, &ca, err);
	if (ret == 0 && g->cert_file)
		ret = read_pem(g, g->cert_file, &cert, err);
	if (ret == 0 && g->key_file)
		ret = buf_reserve(&key, PEM_MAX);
	if (ret == 0 && g->key_file)
		ret = read_pem(g, g->key_file, &key, err);
	if (ret < 0)
		return ret;
	pair = (grpc_ssl_pem_key_cert_pair){key.data, cert.data};
	*out = g->api.grpc_ssl_credentials_create(ca.data, g->cert_file ? &pair : NULL, NULL, NULL);
	return *out ? 0 : -ENOMEM;
}

static grpc_arg number(const char *key, int value)
{
	return (grpc_arg){GRPC_ARG_INTEGER, (char *)(uintptr_t)key, {.integer = value}};
}

static grpc_channel *make_channel(const struct tier_grpc *g, grpc_channel_credentials *creds)
{
	grpc_arg args[] = {
		number(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, MESSAGE_MAX),
		number(GRPC_ARG_ENABLE_RETRIES, 0),
		number(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
		/* Else a new channel is given the connection of the old one. */
		number(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
		number(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
		number(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000),
		/* A host that comes back is looked up first: not 30 s later. */
		number(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500),
		/* Plain text is not for a proxy to read, least of all a token. */
		number(GRPC_ARG_ENABLE_HTTP_PROXY, g->has_tls),
		{GRPC_ARG_STRING,
		 (char *)(uintptr_t)GRPC_ARG_PRIMARY_USER_AGENT_STRING,
		 {.string = (char *)(uintptr_t) "casbox/" CASBOX_VERSION}},
	};
	const grpc_channel_args all = {sizeof(args) / sizeof(args[0]), args};

	return g->api.grpc_channel_create(g->target, creds, &all);
}

static int channel_new(const struct tier_grpc *g, struct tier_channel **out, struct err *err)
{
	grpc_channel_credentials *creds = NULL;
	struct tier_channel *c;
	int ret = make_credentials(g, &creds, err);

	if (ret < 0)
		return ret;
	c = calloc(1, sizeof(*c));
	if (c) {
		c->grpc = make_channel(g, creds);
		c->nr_refs = 1;
	}
	g->api.grpc_channel_credentials_release(creds);
	*out = c;
	return c ? 0 : -ENOMEM;
}

int tier_channel_take(struct tier_grpc *g, struct tier_channel **out, struct err *err)
{
	int ret = 0;

	lock_take(&g->lock);
	if (!g->has_run) {
		g->api.gpr_set_log_function(forward_log);
		g->api.grpc_init();
		g->has_run = true;
	}
	if (g->channel == NULL)
		ret = channel_new(g, &g->channel, err);
	if (ret == 0) {
		g->channel->nr_refs++;
		*out = g->channel;
	}
	lock_drop(&g->lock);
	return ret;
}

void tier_channel_give(struct tier_grpc *g, struct tier_channel *c)
{
	bool is_last;

	if (c == NULL)
		return;
	lock_take(&g->lock);
	is_last = --c->nr_refs == 0;
	lock_drop(&g->lock);
	if (is_last) {
		g->api.grpc_channel_destroy(c->grpc);
		free(c);
	}
}

void tier_channel_doubt(struct tier_grpc *g, struct tier_channel *c)
{
	bool is_ours;

	lock_take(&g->lock);
	is_ours = g->channel == c;
	if (is_ours)
		g->channel = NULL;
	lock_drop(&g->lock);
	if (is_ours)
		tier_channel_give(g, c);
}
