/* SPDX-License-Identifier: Apache-2.0 */
#include "openai_answer.h"

#include "../../support/json_out.h"

#include <stdio.h>
#include <string.h>

json_t *openai_count(serve_job_view *view) {
    return JSON_OBJECT({"object", json_string("response.input_tokens")},
                       {"input_tokens", json_integer(view->n_prompt)});
}

json_t *openai_token_bytes(const serve_token *t) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < t->len; i++)
        json_append(&list, json_integer((unsigned char)t->text[i]));
    return list;
}

static json_t *token_object(const serve_token *t, bool with_top) {
    json_t *object =
        JSON_OBJECT({"token", json_text(t->text, t->len)}, {"logprob", json_float(t->logprob)},
                    {"bytes", openai_token_bytes(t)});
    if (!with_top) return object;
    json_t *top = json_array();
    for (size_t i = 0; top && i < t->n_top; i++) json_append(&top, token_object(&t->top[i], false));
    return JSON_ADD(object, {"top_logprobs", top});
}

json_t *openai_token_list(const serve_token *tokens, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) json_append(&list, token_object(&tokens[i], true));
    return list;
}

/* Returns {"prompt_tokens", "completion_tokens", "total_tokens", ...details}. */
static json_t *usage_object(const serve_job_view *view) {
    return JSON_OBJECT(
        {"prompt_tokens", json_integer(view->n_prompt)},
        {"completion_tokens", json_integer(view->n_generated)},
        {"total_tokens", json_integer(view->n_prompt + view->n_generated)},
        {"prompt_tokens_details", JSON_OBJECT({"cached_tokens", json_integer(view->n_cached)})},
        {"completion_tokens_details",
         JSON_OBJECT({"reasoning_tokens", json_integer(view->n_reasoning)})});
}

static json_t *object_id(const serve_job_view *view, const openai_object_names *names) {
    char id[64];
    snprintf(id, sizeof id, "%s%s", names->id, view->id);
    return json_string(id);
}

/* Returns the object without its usage. The choices are transferred. */
static json_t *make_object(const serve_job_view *view, const openai_object_names *names,
                           const char *object, json_t *choices) {
    return JSON_OBJECT({"id", object_id(view, names)}, {"object", json_string(object)},
                       {"created", json_integer(view->created)},
                       {"model", json_text(view->model, strlen(view->model))},
                       {"system_fingerprint", json_string("antigravity")}, {"choices", choices});
}

json_t *openai_reply(const serve_job_view *view, const openai_object_names *names,
                     json_t *choices) {
    return JSON_ADD(make_object(view, names, names->object, choices),
                    {"usage", usage_object(view)});
}

void openai_write_choice(serve_job_view *view, const openai_object_names *names, json_t *choice) {
    json_t *chunk = make_object(view, names, names->chunk_object, json_list_of(choice));
    if (view->request->include_usage) chunk = JSON_ADD(chunk, {"usage", json_null()});
    serve_write_sse(view, NULL, chunk);
}

void openai_write_end(serve_job_view *view, const openai_object_names *names,
                      const serve_event *e) {
    static const char done[] = "data: [DONE]\n\n";
    if (e->kind == SERVE_END) {
        if (view->request->include_usage)
            serve_write_sse(view, NULL,
                            JSON_ADD(make_object(view, names, names->chunk_object, json_array()),
                                     {"usage", usage_object(view)}));
        serve_write(view, done, sizeof done - 1);
    } else if (e->kind == SERVE_FAILED) {
        serve_write_sse(view, NULL, openai_error(e->error));
    } else if (e->kind == SERVE_IDLE) {
        serve_write(view, ": still reading\n\n", 17);
    }
}
