/* SPDX-License-Identifier: Apache-2.0 */
/* http.h without libcurl. */
#include "../terminal/output.h"
#include "http.h"

int http_open(const http_params *p, http **out) {
    (void)p;
    *out = NULL;
    return complain_failure("cannot fetch models: built without libcurl; rebuild with curl/curl.h "
                            "(Debian: libcurl4-openssl-dev)");
}

void http_close(http *h) { (void)h; }

http_result http_get(http *h, const http_request *r, http_answer *a, char message[HTTP_MESSAGE]) {
    (void)h, (void)r, (void)a;
    message[0] = '\0';
    return HTTP_FAILED;
}
