/* SPDX-License-Identifier: Apache-2.0 */
/* Function pointers to libcurl, loaded at run time. */
#ifndef ANTIGRAVITY_CURL_API_H
#define ANTIGRAVITY_CURL_API_H

/* curl's argument checks are macros, which break calls through pointers. */
#define CURL_DISABLE_TYPECHECK

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#define CURL_FUNCTIONS(X) \
    X(curl_global_init)   \
    X(curl_easy_init)     \
    X(curl_easy_reset)    \
    X(curl_easy_setopt)   \
    X(curl_easy_perform)  \
    X(curl_easy_getinfo)  \
    X(curl_easy_strerror) \
    X(curl_easy_cleanup)  \
    X(curl_slist_append)  \
    X(curl_slist_free_all)

typedef struct curl_api {
    void *library; /* stays loaded until the process ends */
#define CURL_POINTER(name) __typeof__(name) *name;
    CURL_FUNCTIONS(CURL_POINTER)
#undef CURL_POINTER
} curl_api;

/* Loads $AG_CURL_LIBRARY if it is set, else libcurl.so.4 or Debian's GnuTLS build of it. On false
 * the reason is in message[cap]. */
bool curl_api_load(curl_api *api, char *message, size_t cap);

#endif
