/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults of a request, its release, and system prompts that the client does not send. */
#include "../../support/json_out.h"
#include "../threads/account.h"
#include "protocol.h"

#include <math.h>
#include <string.h>

void serve_request_init(serve_request *r) {
    *r = (serve_request){
        .sampling =
            {
                .temperature = NAN,
                .top_p = NAN,
                .min_p = NAN,
                .dynamic_range = NAN,
                .dynamic_exponent = NAN,
                .top_n_sigma = NAN,
                .typical_p = NAN,
                .xtc_probability = NAN,
                .xtc_threshold = NAN,
                .dry_multiplier = NAN,
                .dry_base = NAN,
                .dry_allowed_length = -1,
                .dry_window = -1,
                .repetition_penalty = NAN,
                .presence_penalty = NAN,
                .frequency_penalty = NAN,
                .top_k = -1,
                .repetition_window = -1,
            },
        .n = 1,
        .max_tokens = -1,
        .keep_alive_s = NAN,
    };
}

void serve_request_free(serve_request *r) {
    account_free(r->model);
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->variables);
    account_free(r->tool_name);
    json_decref(r->prompts);
    account_free(r->suffix);
    json_decref(r->files);
    account_free(r->constraint_text);
    json_decref(r->choices);
    json_decref(r->sampling.logit_bias);
    json_decref(r->sampling.dry_breakers);
    account_free(r->sampling.bias);
    json_decref(r->stop);
    account_free(r->stored_text);
    json_decref(r->writer_fields);
    account_free(r->kv_type);
    account_free(r->kv_policy);
    account_free(r->kv_budget);
    account_free(r->head_budget);
    serve_request_init(r);
}

const char *serve_finish_reason(serve_finish f) {
    /* Cancelled answers are truncated, as by a limit. */
    if (f == SERVE_FINISH_LENGTH || f == SERVE_FINISH_CANCELLED) return "length";
    return f == SERVE_FINISH_CALLS ? "tool_calls" : "stop";
}

bool serve_request_add_system(serve_request *r, const char *system) {
    const json_t *first = json_array_get(r->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (!system || r->kind != SERVE_CHAT || !first) return true;
    if (role && (!strcmp(role, "system") || !strcmp(role, "developer"))) return true;
    json_t *messages = json_copy(r->messages);
    json_t *message = JSON_OBJECT({"role", json_string("system")},
                                  {"content", json_text(system, strlen(system))});
    if (!messages || json_array_insert_new(messages, 0, message) != 0) {
        if (!messages) json_decref(message);
        json_decref(messages);
        return false;
    }
    json_decref(r->messages);
    r->messages = messages;
    return true;
}
