/* SPDX-License-Identifier: Apache-2.0 */
/* Stored responses: requests that continue, retrieve and delete them. */
#include "../../support/json_out.h"
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "../threads/account.h"
#include "response_store.h"
#include "responses.h"

#include <string.h>

/* ---- conversations ---- */

/* Appends the items of the conversation of a stored response, then its output. */
static bool append_history(const stored_response *stored, json_t *items, serve_error *e) {
    json_t *before = json_loads(stored->items, 0, NULL);
    json_t *response = json_loads(stored->response, 0, NULL);
    json_t *output = json_object_get(response, "output");
    const bool ok = before && output && json_array_extend(items, before) == 0 &&
                    json_array_extend(items, output) == 0;
    json_decref(before);
    json_decref(response);
    return ok || reject_no_memory(e);
}

bool responses_read_history(const char *id, const serve_request *r, json_t *items, serve_error *e) {
    stored_response stored;
    if (!response_store_get(http_responses(r->http), id, http_client(r->http), &stored)) {
        reject_field(e, "previous_response_id", "response '%.100s' not found", id);
        e->code = "previous_response_not_found";
        return false;
    }
    const bool ok = stored.items ? append_history(&stored, items, e) : reject_no_memory(e);
    stored_response_free(&stored);
    return ok;
}

/* Appends the input of a request: a string becomes a message of the user. */
static bool append_input(json_t *input, json_t *items, serve_error *e) {
    if (json_is_array(input)) return json_array_extend(items, input) == 0 || reject_no_memory(e);
    if (!json_is_string(input)) return true;
    json_t *part = JSON_OBJECT({"type", json_string("input_text")}, {"text", json_incref(input)});
    return list_add(items,
                    JSON_OBJECT({"type", json_string("message")}, {"role", json_string("user")},
                                {"content", json_list_of(part)}),
                    e);
}

bool responses_keep_conversation(json_t *input, json_t *items, serve_request *r, serve_error *e) {
    if (!append_input(input, items, e)) return false;
    const size_t n = json_dumpb(items, NULL, 0, JSON_COMPACT);
    if (n > response_store_max_bytes(http_responses(r->http))) return true;
    r->stored_text = account_malloc(n + 1);
    if (!r->stored_text) return reject_no_memory(e);
    json_dumpb(items, r->stored_text, n, JSON_COMPACT);
    r->stored_text[n] = '\0';
    return true;
}

/* ---- the store ---- */

void responses_store(const serve_job_view *view, json_t *response) {
    const serve_request *r = view->request;
    const char *id = json_string_value(json_object_get(response, "id"));
    if (!r->stored_text || !id) return;
    char *text = json_dumps(response, JSON_COMPACT | JSON_REAL_PRECISION(9));
    const stored_response stored = {.items = r->stored_text, .response = text};
    const bool is_stored =
        text && response_store_add(http_responses(r->http), id, http_client(r->http), &stored);
    account_free(text);
    if (!is_stored) json_object_set_new(response, "store", json_false());
}

static void reply_not_found(serve_http_request *http) {
    serve_error e;
    reject_request(&e, 404, "response_id", "response '%.100s' not found", http_path_tail(http));
    http_reply_error(http, &e);
}

void responses_retrieve(serve_http_request *http) {
    serve_error e;
    stored_response stored;
    if (strstr(http_query(http), "stream=true")) {
        reject_field(&e, "stream", "not supported: the response has ended");
        http_reply_error(http, &e);
        return;
    }
    if (!response_store_get(http_responses(http), http_path_tail(http), http_client(http),
                            &stored)) {
        reply_not_found(http);
    } else if (!stored.response) {
        reject_no_memory(&e);
        http_reply_error(http, &e);
    } else {
        http_reply_text(http, 200, "application/json", stored.response, strlen(stored.response));
    }
    stored_response_free(&stored);
}

void responses_delete(serve_http_request *http) {
    const char *id = http_path_tail(http);
    if (!response_store_remove(http_responses(http), id, http_client(http))) {
        reply_not_found(http);
        return;
    }
    http_reply_json(http, 200,
                    JSON_OBJECT({"id", json_text(id, strlen(id))},
                                {"object", json_string("response")}, {"deleted", json_true()}));
}
