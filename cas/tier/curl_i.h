/* cas/tier/curl_i.h - what is used of libcurl */
#ifndef CAS_TIER_CURL_I_H
#define CAS_TIER_CURL_I_H

/* Its checks of argument types cannot be had where functions are called by pointers. */
#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

/* By its names there: it is loaded when it is needed. */
#define TIER_CURL_API(X)                                                                           \
	X(curl_easy_cleanup)                                                                       \
	X(curl_easy_getinfo)                                                                       \
	X(curl_easy_header)                                                                        \
	X(curl_easy_init)                                                                          \
	X(curl_easy_reset)                                                                         \
	X(curl_easy_setopt)                                                                        \
	X(curl_easy_strerror)                                                                      \
	X(curl_global_cleanup)                                                                     \
	X(curl_global_init)                                                                        \
	X(curl_multi_add_handle)                                                                   \
	X(curl_multi_cleanup)                                                                      \
	X(curl_multi_info_read)                                                                    \
	X(curl_multi_init)                                                                         \
	X(curl_multi_perform)                                                                      \
	X(curl_multi_poll)                                                                         \
	X(curl_multi_remove_handle)                                                                \
	X(curl_multi_setopt)                                                                       \
	X(curl_multi_wakeup)                                                                       \
	X(curl_slist_append)                                                                       \
	X(curl_slist_free_all)

struct tier_curl_api {
#define FIELD(name) __typeof__(&name) name;
	TIER_CURL_API(FIELD)
#undef FIELD
};

#endif
