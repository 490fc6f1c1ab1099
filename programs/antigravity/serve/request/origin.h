/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the Host and Origin headers. A web page can reach servers on its user's machine, also
 * under a name that resolves to 127.0.0.1 (DNS rebinding). So Host must be a name of this server,
 * and Origin must be allowed. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_ORIGIN_H
#define ANTIGRAVITY_SERVE_REQUEST_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>

enum { MAX_ORIGINS = 32 };

typedef struct origin_rules {
    const char *bound;              /* --host */
    const char *hosts[MAX_ORIGINS]; /* --allowed-host */
    size_t n_hosts;
    const char *origins[MAX_ORIGINS]; /* --cors; "*": any */
    size_t n_origins;
} origin_rules;

/* Returns whether a Host header names this server. host: with its port. local: the address that the
 * client connected to. */
bool host_allowed(const origin_rules *r, const char *host, const char *local);

typedef enum origin_verdict {
    ORIGIN_NONE,    /* not a cross-origin request: no CORS headers */
    ORIGIN_ALLOWED, /* allowed, with CORS headers */
    ORIGIN_REJECTED,
} origin_verdict;
/* Checks a request. origin, site (Sec-Fetch-Site) and mode (Sec-Fetch-Mode) may be NULL. */
origin_verdict origin_check(const origin_rules *r, const char *host, const char *origin,
                            const char *site, const char *mode);

#endif
