/* SPDX-License-Identifier: Apache-2.0 */
#include "http_request.h"

#include "serve/work/account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- its life ---- */

void call_hold(serve_call *call) { call->n_holders++; }

void call_release(serve_call *call) {
    if (--call->n_holders) return;
    call->released(call);
    request_head_free(&call->head);
    json_decref(call->json);
    account_free(call->body);
    account_free(call->reply);
    account_release(call->account);
    free(call);
}

/* ---- what handlers ask ---- */

const char *call_header(const serve_call *call, const char *name) {
    return request_head_field(&call->head, name);
}
const char *call_query(const serve_call *call) { return call->head.query; }
const char *call_rest(const serve_call *call) { return call->rest ? call->rest : ""; }
const json_t *call_body(const serve_call *call) { return call->json; }
void call_drop_body(serve_call *call) {
    json_decref(call->json);
    call->json = NULL;
}
const char *call_scope(const serve_call *call) {
    return call->server->settings->share_prefixes ? "" : call->scope;
}
ag_serving *call_serving(const serve_call *call) { return call->server->engine; }
const char *const *call_model_names(const serve_call *call, size_t *n) {
    *n = call->server->settings->n_names;
    return call->server->settings->names;
}
int64_t call_started(const serve_call *call) { return call->server->started; }

ag_served_model *call_model(const serve_call *call, const char *name, serve_error *e) {
    server *s = call->server;
    if (!name && !call->route->model_optional) {
        serve_refuse(e, 400, "model", "the request names no model");
        return NULL;
    }
    ag_served_model *model = ag_serving_model(s->engine, name);
    if (!model && s->settings->any_model) model = ag_serving_model(s->engine, NULL);
    if (!model) {
        serve_refuse(e, 404, "model", "there is no model '%.200s' here; /v1/models lists them",
                     name);
        e->code = "model_not_found";
    }
    return model;
}

/* ---- replies ---- */

void call_reply_text(serve_call *call, int status, const char *type, const char *text, size_t n) {
    account_free(call->reply);
    call->reply = account_malloc(n + 1);
    call->n_reply = call->reply ? n : 0;
    if (call->reply) memcpy(call->reply, text, n);
    call->status = call->reply ? status : 503;
    call->type = type;
}

void call_reply_json(serve_call *call, int status, json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    account_free(call->reply);
    call->reply = text;
    call->n_reply = text ? strlen(text) : 0;
    call->status = text ? status : 503;
    call->type = "application/json";
}

void call_reply_header(serve_call *call, const char *name, const char *value) {
    const size_t n = strlen(call->headers);
    const int len =
        snprintf(call->headers + n, sizeof call->headers - n, "%s: %s\r\n", name, value);
    if (len >= 0 && (size_t)len < sizeof call->headers - n) return;
    call->headers[n] = '\0';
    call->lacks_header = true;
}

void call_reply_error(serve_call *call, const serve_error *e) {
    const serve_route *r = call->route;
    json_t *(*shape)(const serve_error *) = openai_error;
    if (r && r->error) shape = r->error;
    else if (r && r->protocol && r->protocol->error) shape = r->protocol->error;
    account *before = account_enter(NULL); /* which may be why there is an error */
    call_reply_json(call, e->status, shape(e));
    account_enter(before);
    call->retry_after = e->status == 503 && !e->retry_after ? 1 : e->retry_after;
    snprintf(call->error, sizeof call->error, "%d%s%s", e->status, e->param[0] ? " " : "",
             e->param);
}

void call_send_reply(serve_call *call) {
    if (!call->connection) return;
    if (call->lacks_header) {
        call->status = 500;
        call->n_reply = 0;
    }
    char headers[sizeof call->headers + 128];
    int n = snprintf(headers, sizeof headers, "%sX-Request-Id: %s\r\n", call->headers, call->id);
    if (call->status == 401)
        n += snprintf(headers + n, sizeof headers - (size_t)n, "WWW-Authenticate: Bearer\r\n");
    if (call->retry_after)
        snprintf(headers + n, sizeof headers - (size_t)n, "Retry-After: %u\r\n", call->retry_after);
    /* An error is sent also where the account has no memory left. */
    account *before = account_enter(call->status >= 400 ? NULL : call->account);
    connection_reply(call->connection, call->status ? call->status : 500, call->type, headers,
                     call->reply ? call->reply : "", call->n_reply);
    account_enter(before);
}

void call_send_error(serve_call *call, const serve_error *e) {
    call_reply_error(call, e);
    call_send_reply(call);
}
