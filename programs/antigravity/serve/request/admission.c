/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a request may come in, by its head alone: before its body is read. */
#include "dispatch.h"
#include "routes.h"

#include <stdio.h>
#include <string.h>

/* Of CORS, where a page from elsewhere may ask. */
static void allow_origin(serve_call *call, const char *origin) {
    snprintf(call->headers, sizeof call->headers,
             "Access-Control-Allow-Origin: %.300s\r\nVary: Origin\r\n", origin);
}

static bool check_origin(serve_call *call, serve_error *e) {
    char local[64] = "";
    const origin_rules *rules = &call->server->settings->origins;
    const char *origin = call_header(call, "origin"), *host = call->head.host;
    if (connection_is_local(call->connection)) return true;
    socket_local_address(connection_socket(call->connection), local, sizeof local);
    if (!host_allowed(rules, host, local)) {
        serve_refuse(e, 403, NULL, "the Host '%.100s' is not a name of this server: --allowed-host",
                     host ? host : "");
        e->code = "host_not_allowed";
        return false;
    }
    switch (origin_check(rules, host, origin, call_header(call, "sec-fetch-site"),
                         call_header(call, "sec-fetch-mode"))) {
    case ORIGIN_REFUSED:
        serve_refuse(e, 403, NULL, "pages of '%.100s' may not ask this server: --cors",
                     origin ? origin : "other sites");
        e->code = "origin_not_allowed";
        return false;
    case ORIGIN_ALLOWED:
        allow_origin(call, origin);
        break;
    case ORIGIN_NONE:
        break;
    }
    return true;
}

/* OPTIONS: a browser asks before it sends what a page wants to be sent. */
static void answer_options(serve_call *call, const char *allowed) {
    const bool is_cors = call->headers[0] != '\0';
    const char *wanted = call_header(call, "access-control-request-headers");
    call->status = 200; /* not 204, which some older clients take for a failure */
    call_reply_header(call, "Allow", allowed);
    if (!is_cors) return;
    call_reply_header(call, "Access-Control-Allow-Methods", allowed);
    call_reply_header(call, "Access-Control-Allow-Headers",
                      wanted ? wanted : "Authorization, Content-Type");
    call_reply_header(call, "Access-Control-Max-Age", "600");
}

static bool check_key(serve_call *call, serve_error *e) {
    const api_keys *keys = &call->server->keys;
    if (api_keys_check(keys, call_header(call, "authorization"), call_header(call, "x-api-key"),
                       call->scope))
        return true;
    if (call->route->is_public) return true;
    serve_refuse(e, 401, NULL, "this server wants an API key that it knows: Authorization: Bearer");
    e->code = "invalid_api_key";
    return false;
}

bool call_admit(serve_call *call, serve_error *e) {
    const char *allowed = NULL, *method = call->head.method;
    if (!check_origin(call, e)) return false;
    const serve_route *route = route_find(method, call->head.path, &call->rest, &allowed);
    if (!strcmp(method, "OPTIONS")) {
        answer_options(call, allowed ? allowed : "GET, POST, OPTIONS");
        return true;
    }
    if (!route && allowed) {
        call_reply_header(call, "Allow", allowed);
        return serve_refuse(e, 405, NULL, "%.20s is not for %.200s: %s", method, call->head.path,
                            allowed);
    }
    if (!route) return serve_refuse(e, 404, NULL, "there is nothing at %.300s", call->head.path);
    call->route = route;
    return check_key(call, e);
}
