/* SPDX-License-Identifier: Apache-2.0 */
/* Admission of requests by their head, before the body is read. */
#include "../http/socket.h"
#include "dispatch.h"
#include "routes.h"

#include <stdio.h>
#include <string.h>

/* Adds CORS headers for an allowed origin. */
static void allow_origin(serve_http_request *http, const char *origin) {
    snprintf(http->headers, sizeof http->headers,
             "Access-Control-Allow-Origin: %.300s\r\nVary: Origin\r\n", origin);
}

/* *is_own: no page of another site sent it. */
static bool check_origin(serve_http_request *http, bool *is_own, serve_error *e) {
    char local[64] = "";
    const origin_rules *rules = &http->server->settings->origins;
    const char *origin = http_header(http, "origin"), *host = http->head.host;
    *is_own = true;
    if (connection_is_local(http->connection)) return true;
    socket_local_address(connection_socket(http->connection), local, sizeof local);
    if (!host_allowed(rules, host, local)) {
        reject_request(e, 403, NULL,
                       "Host '%.100s' is not a name of this server; --allowed-host adds one",
                       host ? host : "");
        e->code = "host_not_allowed";
        return false;
    }
    switch (origin_check(rules, host, origin, http_header(http, "sec-fetch-site"),
                         http_header(http, "sec-fetch-mode"))) {
    case ORIGIN_REJECTED:
        reject_request(e, 403, NULL,
                       "requests from pages of '%.100s' are not allowed; --cors allows them",
                       origin ? origin : "other sites");
        e->code = "origin_not_allowed";
        return false;
    case ORIGIN_ALLOWED:
        allow_origin(http, origin);
        *is_own = false;
        break;
    case ORIGIN_NONE:
        break;
    }
    return true;
}

/* Replies to OPTIONS, the CORS preflight of browsers. */
static void reply_options(serve_http_request *http, const char *allowed) {
    const bool is_cors = http->headers[0] != '\0';
    const char *wanted = http_header(http, "access-control-request-headers");
    http->status = 200; /* not 204, which some older clients treat as an error */
    http_reply_header(http, "Allow", allowed);
    if (!is_cors) return;
    http_reply_header(http, "Access-Control-Allow-Methods", allowed);
    http_reply_header(http, "Access-Control-Allow-Headers",
                      wanted ? wanted : "Authorization, Content-Type");
    http_reply_header(http, "Access-Control-Max-Age", "600");
}

/* Returns whether the client is a program on this machine, or the page of this server there. */
static bool is_local_client(const serve_http_request *http, bool is_own) {
    peer_address peer;
    if (connection_is_local(http->connection)) return true;
    return is_own && socket_peer_address(connection_socket(http->connection), &peer) &&
           peer_address_is_loopback(&peer);
}

/* is_own: no page of another site sent the request. */
static bool check_key(serve_http_request *http, bool is_own, serve_error *e) {
    const api_keys *keys = &http->server->keys;
    const bool is_known =
        api_keys_check(keys, http_header(http, "authorization"), http_header(http, "x-api-key"),
                       http->scope, &http->is_admin);
    if (!keys->n) http->is_admin = is_local_client(http, is_own);
    if (is_known) return true;
    if (http->route->is_public) return true;
    reject_request(e, 401, NULL,
                   "API key missing or unknown; send it as Authorization: Bearer KEY");
    e->code = "invalid_api_key";
    return false;
}

/* Rejects requests that change models, unless the server and the client may do that. */
static bool check_management(const serve_http_request *http, serve_error *e) {
    if (!http->route->changes_models) return true;
    if (!http->server->settings->allow_pull)
        return reject_request(e, 403, NULL,
                              "models cannot be changed through this server; --allow-pull allows "
                              "that");
    if (http->is_admin) return true;
    return reject_request(e, 403, NULL,
                          http->server->keys.n
                              ? "changing models requires a key that the server's file of keys "
                                "marks with the word admin"
                              : "without keys, only programs on the server's machine and its own "
                                "page may change models");
}

bool http_request_admit(serve_http_request *http, serve_error *e) {
    const char *allowed = NULL, *method = http->head.method;
    bool is_own;
    if (!check_origin(http, &is_own, e)) return false;
    const serve_route *route = route_find(method, http->head.path, &http->path_tail, &allowed);
    if (!strcmp(method, "OPTIONS")) {
        reply_options(http, allowed ? allowed : "GET, POST, OPTIONS");
        return true;
    }
    if (!route && allowed) {
        http_reply_header(http, "Allow", allowed);
        return reject_request(e, 405, NULL, "%.20s is not allowed for %.200s; use %s", method,
                              http->head.path, allowed);
    }
    if (!route) return reject_request(e, 404, NULL, "%.300s not found", http->head.path);
    http->route = route;
    return check_key(http, is_own, e) && check_management(http, e);
}
