/* SPDX-License-Identifier: Apache-2.0 */
#include "origin.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Reads the name of "name:port", "[::1]:port" or either without a port. Fails if it is malformed or
 * too long. */
static bool parse_host(const char *host, char *name, size_t cap) {
    const bool in_brackets = host[0] == '[';
    const char *begin = host + in_brackets;
    const size_t n = strcspn(begin, in_brackets ? "]" : ":");
    const char *tail = begin + n;
    if (in_brackets) {
        if (*tail != ']') return false;
        tail++;
    }
    if (!n || n >= cap) return false;
    if (*tail && (*tail != ':' || strspn(tail + 1, "0123456789") != strlen(tail + 1))) return false;
    memcpy(name, begin, n);
    name[n] = '\0';
    /* "localhost." is the same name */
    if (!in_brackets && n > 1 && name[n - 1] == '.') name[n - 1] = '\0';
    return true;
}

/* Accepts only four numbers, the first of which is 127: "127.evil.example" is a name. */
static bool is_loopback_v4(const char *host) {
    unsigned a, b, c, d;
    int n = 0;
    return strspn(host, "0123456789.") == strlen(host) &&
           sscanf(host, "%3u.%3u.%3u.%3u%n", &a, &b, &c, &d, &n) == 4 && !host[n] && a == 127 &&
           b < 256 && c < 256 && d < 256;
}

/* Returns whether the host, without a port, is "127.0.0.1", "::1", "localhost" or "x.localhost". */
static bool is_loopback(const char *host) {
    const size_t n = strlen(host), k = strlen(".localhost");
    if (!strcasecmp(host, "localhost") || !strcmp(host, "::1") || is_loopback_v4(host)) return true;
    return n > k && !strcasecmp(host + n - k, ".localhost");
}

static bool is_wildcard(const char *host) {
    return !strcmp(host, "0.0.0.0") || !strcmp(host, "::");
}

bool host_allowed(const origin_rules *r, const char *host, const char *local) {
    char name[256];
    if (!host || !parse_host(host, name, sizeof name)) return false;
    if (is_loopback(name)) return true;
    if (r->bound && !is_wildcard(r->bound) && !strcasecmp(r->bound, name)) return true;
    /* Another site cannot point an address here, only a name. */
    if (local && !strcasecmp(local, name)) return true;
    for (size_t i = 0; i < r->n_hosts; i++)
        if (!strcasecmp(r->hosts[i], name)) return true;
    return false;
}

static bool is_allowed_origin(const origin_rules *r, const char *origin) {
    for (size_t i = 0; i < r->n_origins; i++)
        if (!strcmp(r->origins[i], "*") || (origin && !strcasecmp(r->origins[i], origin)))
            return true;
    return false;
}

/* Returns whether the origin, such as "http://127.0.0.1:8080", is this server. */
static bool is_same_origin(const char *host, const char *origin) {
    const char *at = strstr(origin, "://");
    return host && at && (!strncmp(origin, "http:", 5) || !strncmp(origin, "https:", 6)) &&
           !strcasecmp(at + 3, host);
}

origin_verdict origin_check(const origin_rules *r, const char *host, const char *origin,
                            const char *site, const char *mode) {
    if (origin) {
        if (is_same_origin(host, origin)) return ORIGIN_NONE;
        return is_allowed_origin(r, origin) ? ORIGIN_ALLOWED : ORIGIN_REJECTED;
    }
    /* Images and scripts in a page of another site have no Origin, but browsers send
     * Sec-Fetch-Site. Links that a user follows are allowed. */
    if (!site || !strcmp(site, "same-origin") || !strcmp(site, "none")) return ORIGIN_NONE;
    if (mode && !strcmp(mode, "navigate")) return ORIGIN_NONE;
    return is_allowed_origin(r, NULL) ? ORIGIN_NONE : ORIGIN_REJECTED;
}
