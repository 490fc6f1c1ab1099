/* SPDX-License-Identifier: Apache-2.0 */
#include "curl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool open_curl(curl_api *api, char *message, size_t cap) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
    const char *path = getenv("AG_CURL_LIBRARY");
    if (path && path[0]) {
        api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!api->library) snprintf(message, cap, "AG_CURL_LIBRARY: %s", dlerror());
        return api->library != NULL;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !api->library; i++)
        api->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!api->library)
        snprintf(message, cap,
                 "libcurl: not found: neither %s nor %s; models cannot be fetched without it "
                 "(Debian: apt-get install libcurl4)",
                 names[0], names[1]);
    return api->library != NULL;
}

bool curl_api_load(curl_api *api, char *message, size_t cap) {
    *api = (curl_api){0};
    if (!open_curl(api, message, cap)) return false;
    const char *missing = NULL;
    /* POSIX allows a function pointer in a void pointer, C does not: copies its bytes. */
#define CURL_FIND(name)                           \
    {                                             \
        void *p = dlsym(api->library, #name);     \
        memcpy(&api->name, &p, sizeof api->name); \
        if (!p && !missing) missing = #name;      \
    }
    CURL_FUNCTIONS(CURL_FIND)
#undef CURL_FIND
    if (missing) snprintf(message, cap, "libcurl: the library has no %s", missing);
    return !missing;
}
