/* SPDX-License-Identifier: Apache-2.0 */
/* Table of all lists of routes, and the search in it. */
#include "routes.h"

#include <string.h>

static const serve_route *const lists[] = {
    openai_routes,     model_routes, token_routes,       state_routes,     metrics_routes,
    kv_routes,         page_routes,  anthropic_routes,   responses_routes, ollama_routes,
    management_routes, llama_routes, llama_state_routes,
};
enum { N_LISTS = sizeof lists / sizeof lists[0] };

/* Compares a path with a pattern, which may end in "*". */
static bool matches(const char *pattern, const char *path, const char **tail) {
    const size_t n = strlen(pattern);
    *tail = "";
    if (pattern[n - 1] != '*') return !strcmp(pattern, path);
    if (strncmp(pattern, path, n - 1) != 0 || !path[n - 1]) return false;
    *tail = path + (strrchr(pattern, '/') - pattern) + 1;
    return true;
}

static const char *allowed_methods(bool get, bool post, bool delete) {
    static const char *const methods[] = {
        "OPTIONS",
        "GET, HEAD, OPTIONS",
        "POST, OPTIONS",
        "GET, HEAD, POST, OPTIONS",
        "DELETE, OPTIONS",
        "GET, HEAD, DELETE, OPTIONS",
        "POST, DELETE, OPTIONS",
        "GET, HEAD, POST, DELETE, OPTIONS",
    };
    return methods[(get ? 1 : 0) + (post ? 2 : 0) + (delete ? 4 : 0)];
}

const serve_route *route_find(const char *method, const char *path, const char **tail,
                              const char **allowed) {
    bool get = false, post = false, delete = false;
    const char *wanted = strcmp(method, "HEAD") != 0 ? method : "GET";
    *tail = "";
    for (size_t l = 0; l < N_LISTS; l++) {
        for (const serve_route *r = lists[l]; r->path; r++) {
            if (!matches(r->path, path, tail)) continue;
            if (!strcmp(r->method, wanted)) return r;
            get = get || !strcmp(r->method, "GET");
            post = post || !strcmp(r->method, "POST");
            delete = delete || !strcmp(r->method, "DELETE");
        }
    }
    *allowed = get || post || delete ? allowed_methods(get, post, delete) : NULL;
    return NULL;
}
