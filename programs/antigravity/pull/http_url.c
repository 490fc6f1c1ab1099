/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of URLs. */
#include "http.h"

#include <string.h>
#include <strings.h>

bool http_is_url(const char *text) {
    return !strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8);
}

size_t http_origin_length(const char *url) {
    const char *host = strstr(url, "://");
    return host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;
}

int http_shown_length(const char *url) { return (int)strcspn(url, "?#"); }
