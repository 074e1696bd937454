/* cas/tier/grpc_status.c - what the status of a call, or of a blob in it, means */
#include <errno.h>
#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "cas/tier/grpc.h"

#define RETRY_MAX_MS 300000

int tier_status_judge(int code, bool sends_blobs, bool may_retry)
{
	switch (code) {
	case GRPC_STATUS_OK:
		return 0;
	case GRPC_STATUS_INVALID_ARGUMENT:
		return sends_blobs ? -EBADMSG : -EPROTO;
	case GRPC_STATUS_NOT_FOUND:
		return -ENOENT;
	case GRPC_STATUS_ALREADY_EXISTS:
		return sends_blobs ? -EEXIST : -EPROTO;
	case GRPC_STATUS_PERMISSION_DENIED:
	case GRPC_STATUS_UNAUTHENTICATED:
		return -EACCES;
	case GRPC_STATUS_RESOURCE_EXHAUSTED:
		/* Of a quota for blobs, or of patience: only the latter passes by itself. */
		return sends_blobs && !may_retry ? -ENOSPC : -EAGAIN;
	case GRPC_STATUS_FAILED_PRECONDITION:
	case GRPC_STATUS_OUT_OF_RANGE:
		return -EPROTO;
	case GRPC_STATUS_UNIMPLEMENTED:
		return -EOPNOTSUPP;
	case GRPC_STATUS_DATA_LOSS:
		return sends_blobs ? -EAGAIN : -EBADMSG;
	default:
		/* CANCELLED, DEADLINE_EXCEEDED, UNKNOWN, ABORTED, INTERNAL, UNAVAILABLE, new ones.
		 */
		return -EAGAIN;
	}
}

static const char *const names[] = {"OK",
				    "CANCELLED",
				    "UNKNOWN",
				    "INVALID_ARGUMENT",
				    "DEADLINE_EXCEEDED",
				    "NOT_FOUND",
				    "ALREADY_EXISTS",
				    "PERMISSION_DENIED",
				    "RESOURCE_EXHAUSTED",
				    "FAILED_PRECONDITION",
				    "ABORTED",
				    "OUT_OF_RANGE",
				    "UNIMPLEMENTED",
				    "INTERNAL",
				    "UNAVAILABLE",
				    "DATA_LOSS",
				    "UNAUTHENTICATED"};

const char *tier_status_name(int code, char out[16])
{
	if (code >= 0 && (size_t)code < sizeof(names) / sizeof(names[0]))
		return names[code];
	(void)snprintf(out, 16, "code %d", code);
	return out;
}

/* The detail of this type, or NULL. */
static const Reapi__Any *find_detail(const Reapi__Status *status, const char *type)
{
	for (size_t i = 0; i < status->n_details; i++) {
		const char *slash = strrchr(status->details[i]->type_url, '/');

		if (slash && strcmp(slash + 1, type) == 0)
			return status->details[i];
	}
	return NULL;
}

unsigned tier_status_retry_ms(const Reapi__Status *status)
{
	const Reapi__Any *any = find_detail(status, "google.rpc.RetryInfo");
	Reapi__RetryInfo *info;
	unsigned ms = 0;

	if (any == NULL)
		return 0;
	info = reapi__retry_info__unpack(NULL, any->value.len, any->value.data);
	if (info && info->retry_delay && info->retry_delay->seconds >= 0 &&
	    info->retry_delay->nanos >= 0) {
		const Reapi__Duration *d = info->retry_delay;

		ms = d->seconds < RETRY_MAX_MS / 1000
			     ? (unsigned)(d->seconds * 1000 + d->nanos / 1000000)
			     : RETRY_MAX_MS;
		/* It is worth another try, if at once. */
		if (ms == 0)
			ms = 1;
	}
	if (info)
		reapi__retry_info__free_unpacked(info, NULL);
	return ms;
}

char *tier_status_missing(const Reapi__Status *status)
{
	const Reapi__Any *any = find_detail(status, "google.rpc.PreconditionFailure");
	Reapi__PreconditionFailure *failure;
	char *subject = NULL;

	if (any == NULL)
		return NULL;
	failure = reapi__precondition_failure__unpack(NULL, any->value.len, any->value.data);
	for (size_t i = 0; failure && subject == NULL && i < failure->n_violations; i++) {
		if (strcmp(failure->violations[i]->type, "MISSING") == 0)
			subject = strdup(failure->violations[i]->subject);
	}
	if (failure)
		reapi__precondition_failure__free_unpacked(failure, NULL);
	return subject;
}
