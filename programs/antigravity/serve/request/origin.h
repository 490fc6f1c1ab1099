/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts and origins may speak to this server. A page in a browser can reach what listens on
 * its user's machine, under a name of its own that resolves to 127.0.0.1 (DNS rebinding): so the
 * Host of a request must be a name of ours, and an Origin must be allowed. */
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

/* "127.0.0.1", "::1", "localhost", "x.localhost", without a port. */
bool host_is_loopback(const char *host);
/* host: of the request, with its port. local: the address that the client connected to. */
bool host_allowed(const origin_rules *r, const char *host, const char *local);

typedef enum origin_verdict {
    ORIGIN_NONE,    /* no browser's page from elsewhere: no word of it in the response */
    ORIGIN_ALLOWED, /* the response says so */
    ORIGIN_REJECTED,
} origin_verdict;
/* origin, site (Sec-Fetch-Site) and mode (Sec-Fetch-Mode) may be NULL. */
origin_verdict origin_check(const origin_rules *r, const char *host, const char *origin,
                            const char *site, const char *mode);

#endif
