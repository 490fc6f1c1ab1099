/* SPDX-License-Identifier: Apache-2.0 */
#include "http_request.h"

#include "../anthropic/anthropic.h"
#include "../models/served_models.h"
#include "../threads/account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- references ---- */

void http_request_retain(serve_http_request *http) { http->n_holders++; }

void http_request_release(serve_http_request *http) {
    if (!--http->n_holders) http->released(http);
}

/* ---- functions for handlers ---- */

const char *http_header(const serve_http_request *http, const char *name) {
    return request_head_field(&http->head, name);
}
bool http_is_anthropic(const serve_http_request *http) {
    return http_header(http, "anthropic-version") != NULL;
}
const char *http_query(const serve_http_request *http) { return http->head.query; }
const char *http_path_tail(const serve_http_request *http) {
    return http->path_tail ? http->path_tail : "";
}
const json_t *http_body(const serve_http_request *http) { return http->json; }
void http_drop_body(serve_http_request *http) {
    json_decref(http->json);
    http->json = NULL;
}
const char *http_scope(const serve_http_request *http) {
    return http->server->settings->share_prefixes ? "" : http->scope;
}
const char *http_client(const serve_http_request *http) { return http->scope; }
struct response_store *http_responses(const serve_http_request *http) {
    return http->server->responses;
}
ag_serving *http_serving(const serve_http_request *http) { return http->server->engine; }
model_list *http_models(const serve_http_request *http) {
    return http->server->settings->models->list;
}
int64_t http_server_started(const serve_http_request *http) { return http->server->started; }

const model_entry *http_model_entry(const serve_http_request *http, const char *name,
                                    serve_error *e) {
    const model_list *models = http_models(http);
    if (!name && !http->route->model_optional) {
        reject_field(e, "model", "missing");
        return NULL;
    }
    const model_entry *found = model_list_find(models, name);
    if (!found && http->server->settings->any_model) found = model_list_find(models, NULL);
    if (!found) {
        reject_request(e, 404, "model", "model '%.200s' not found; /v1/models lists the models",
                       name ? name : "");
        e->code = "model_not_found";
    }
    return found;
}

ag_served_model *http_model(const serve_http_request *http, const char *name, serve_error *e) {
    const model_entry *found = http_model_entry(http, name, e);
    return found ? found->model : NULL;
}

/* ---- replies ---- */

void http_reply_text(serve_http_request *http, int status, const char *type, const char *text,
                     size_t n) {
    account_free(http->reply);
    http->reply = account_malloc(n + 1);
    http->n_reply = http->reply ? n : 0;
    if (http->reply) memcpy(http->reply, text, n);
    http->status = http->reply ? status : 503;
    http->type = type;
}

void http_reply_json(serve_http_request *http, int status, json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    account_free(http->reply);
    http->reply = text;
    http->n_reply = text ? strlen(text) : 0;
    http->status = text ? status : 503;
    http->type = "application/json";
}

void http_reply_header(serve_http_request *http, const char *name, const char *value) {
    const size_t n = strlen(http->headers);
    const int len =
        snprintf(http->headers + n, sizeof http->headers - n, "%s: %s\r\n", name, value);
    if (len >= 0 && (size_t)len < sizeof http->headers - n) return;
    http->headers[n] = '\0';
    http->lacks_header = true;
}

void http_reply_error(serve_http_request *http, const serve_error *e) {
    const serve_route *r = http->route;
    json_t *(*shape)(const serve_error *) = openai_error;
    if (r && r->error) shape = r->error;
    else if (r && r->protocol && r->protocol->error) shape = r->protocol->error;
    else if (http_is_anthropic(http)) shape = anthropic_error;
    account *previous = account_enter(NULL); /* the account may have no memory left */
    http_reply_json(http, e->status, shape(e));
    account_enter(previous);
    http->retry_after_s = e->retry_after_s;
    snprintf(http->error, sizeof http->error, "%d%s%s", e->status, e->param[0] ? " " : "",
             e->param);
}

void http_send_reply(serve_http_request *http) {
    if (!http->connection) return;
    if (http->lacks_header) {
        http->status = 500;
        http->n_reply = 0;
    }
    char headers[sizeof http->headers + 128];
    int n = snprintf(headers, sizeof headers, "%sX-Request-Id: %s\r\n", http->headers, http->id);
    if (http->status == 401)
        n += snprintf(headers + n, sizeof headers - (size_t)n, "WWW-Authenticate: Bearer\r\n");
    if (http->error[0] && (http->status == 503 || http->status == 429))
        snprintf(headers + n, sizeof headers - (size_t)n, "Retry-After: %u\r\n",
                 http->retry_after_s ? http->retry_after_s : 1);
    /* An error is sent even if the account has no memory left. */
    account *previous = account_enter(http->status >= 400 ? NULL : http->account);
    connection_reply(http->connection, http->status ? http->status : 500, http->type, headers,
                     http->reply ? http->reply : "", http->n_reply);
    account_enter(previous);
}

void http_send_error(serve_http_request *http, const serve_error *e) {
    http_reply_error(http, e);
    http_send_reply(http);
}
