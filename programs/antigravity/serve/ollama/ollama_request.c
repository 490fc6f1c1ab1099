/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of ollama's requests. */
#include "../../options/numbers.h"
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "../threads/account.h"
#include "ollama.h"

#include <antigravity/serving.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = 64, MAX_INPUTS = 2048 };

bool ollama_read_name(const json_t *body, const char **name, serve_error *e) {
    /* Clients send both, and one of them is empty. */
    if (!field_string(body, "model", name, e)) return false;
    if (*name && **name) return true;
    *name = NULL;
    if (!field_string(body, "name", name, e)) return false;
    if (*name && !**name) *name = NULL;
    return true;
}

static bool read_model(const json_t *body, serve_request *r, serve_error *e) {
    const char *name = NULL;
    if (!ollama_read_name(body, &name, e)) return false;
    if (!name) return true;
    r->model = account_strdup(name);
    return r->model || reject_no_memory(e);
}

/* Reads seconds, or a duration. A negative value means no limit. */
static bool read_keep_alive(const json_t *body, serve_request *r, serve_error *e) {
    const json_t *given = field_get(body, "keep_alive");
    double seconds = json_number_value(given);
    if (!given || json_is_null(given)) return true;
    const bool is_duration =
        json_is_string(given) && parse_duration(json_string_value(given), &seconds);
    if (!json_is_number(given) && !is_duration)
        return reject_field(e, "keep_alive", "must be seconds, or a duration such as \"5m\"");
    r->keep_alive_s = seconds < 0 ? INFINITY : seconds;
    return true;
}

bool ollama_read_options(const json_t *o, serve_request *r, serve_error *e) {
    serve_sampling *s = &r->sampling;
    const json_t *seed = NULL;
    int64_t max = INT32_MAX;
    /* Negative values mean no limit, or the entire context. */
    if (!field_integer(o, "num_predict", -2, max, &r->max_tokens, e) ||
        !field_integer(o, "num_ctx", 0, max, &r->max_context, e) ||
        !field_integer(o, "repeat_last_n", -1, max, &s->repetition_window, e) ||
        !field_integer(o, "top_k", -1, max, &s->top_k, e))
        return false;
    if (r->max_tokens < 0) r->max_tokens = -1;
    seed = field_get(o, "seed");
    if (seed && !json_is_null(seed)) {
        if (!field_integer(o, "seed", INT64_MIN, INT64_MAX, &s->seed, e)) return false;
        s->has_seed = s->seed >= 0;
    }
    return field_number(o, "temperature", 0, 100, &s->temperature, e) &&
           field_number(o, "top_p", 0, 1, &s->top_p, e) &&
           field_number(o, "min_p", 0, 1, &s->min_p, e) &&
           field_number(o, "typical_p", 0, 1, &s->typical_p, e) && field_no_mirostat(o, e) &&
           field_number(o, "repeat_penalty", 0, 100, &s->repetition_penalty, e) &&
           field_number(o, "presence_penalty", -100, 100, &s->presence_penalty, e) &&
           field_number(o, "frequency_penalty", -100, 100, &s->frequency_penalty, e) &&
           field_strings(o, "stop", MAX_STOPS, &r->stop, e);
}

static bool read_options(const json_t *body, serve_request *r, serve_error *e) {
    json_t *o = NULL;
    return field_object(body, "options", &o, e) && (!o || ollama_read_options(o, r, e));
}

static bool read_format(const json_t *body, serve_request *r, serve_error *e) {
    const json_t *format = field_get(body, "format");
    const char *word = json_string_value(format);
    if (!format || json_is_null(format) || (word && !*word)) return true;
    r->constrained = true;
    r->constraint = AG_CONSTRAINT_JSON_OBJECT;
    if (word && strcmp(word, "json") == 0) return true;
    if (!json_is_object(format))
        return reject_field(e, "format", "must be \"json\" or a JSON schema");
    r->constraint = AG_CONSTRAINT_JSON_SCHEMA;
    return field_schema(body, "format", &r->constraint_text, e);
}

/* Reads true, false, or an effort: "low", "medium", "high". */
static bool read_think(const json_t *body, serve_request *r, serve_error *e) {
    json_t *think = field_get(body, "think");
    if (!think || json_is_null(think)) return true;
    if (json_is_string(think)) {
        if (!set_variable(r, "reasoning_effort", json_incref(think), e)) return false;
        return set_variable(r, "enable_thinking", json_true(), e);
    }
    if (!json_is_boolean(think)) return reject_field(e, "think", "must be a boolean or a string");
    return set_variable(r, "enable_thinking", json_incref(think), e);
}

static bool reject_images(const json_t *object, serve_error *e) {
    if (!json_array_size(json_object_get(object, "images"))) return true;
    return reject_field(e, "images", "images are not supported: the model reads text only");
}

static bool read_answer_fields(const json_t *body, serve_request *r, serve_error *e) {
    int64_t n_top = 0;
    r->stream = true;
    if (!field_bool(body, "logprobs", &r->logprobs, e) ||
        !field_integer(body, "top_logprobs", 0, 20, &n_top, e))
        return false;
    r->n_top = (uint32_t)n_top;
    return read_options(body, r, e) && read_keep_alive(body, r, e) && read_format(body, r, e) &&
           read_think(body, r, e) && field_bool(body, "stream", &r->stream, e);
}

bool ollama_parse_chat(const json_t *body, serve_request *r, serve_error *e) {
    json_t *messages = NULL, *tools = NULL;
    ollama_counts before = {0};
    r->kind = SERVE_CHAT;
    r->messages = json_array();
    if (!r->messages) return reject_no_memory(e);
    if (!read_model(body, r, e) || !field_array(body, "messages", &messages, e) ||
        !field_array(body, "tools", &tools, e))
        return false;
    r->load_only = !json_array_size(messages);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!reject_images(message, e) || !ollama_read_message(message, &before, r, e))
            return false;
    }
    if (json_array_size(tools)) r->tools = json_incref(field_get(body, "tools"));
    return read_answer_fields(body, r, e);
}

static bool reject_generate_only_fields(const json_t *body, serve_error *e) {
    const char *template = NULL;
    if (!field_string(body, "template", &template, e)) return false;
    if (template && *template)
        return reject_field(e, "template",
                            "not supported: the model's own is used, or none with raw");
    if (json_array_size(field_get(body, "context")))
        return reject_field(e, "context", "not supported; send the conversation to /api/chat");
    return reject_images(body, e);
}

bool ollama_parse_generate(const json_t *body, serve_request *r, serve_error *e) {
    const char *prompt = NULL, *system = NULL;
    bool raw = false;
    if (!read_model(body, r, e) || !reject_generate_only_fields(body, e) ||
        !field_string(body, "prompt", &prompt, e) || !field_string(body, "system", &system, e) ||
        !field_bool(body, "raw", &raw, e) || !field_suffix(body, "suffix", r, e) ||
        !read_answer_fields(body, r, e))
        return false;
    if (!prompt) prompt = "";
    r->load_only = !*prompt && !r->suffix;
    if (r->load_only) return true;
    if (raw || r->suffix) {
        r->kind = SERVE_TEXT;
        r->parse_special = raw;
        r->prompts = json_pack("[s]", prompt);
        return r->prompts || reject_no_memory(e);
    }
    r->kind = SERVE_CHAT;
    r->messages = json_array();
    if (!r->messages) return reject_no_memory(e);
    if (system && *system && !message_add(r, "system", json_string(system), e)) return false;
    return message_add(r, "user", json_string(prompt), e);
}

bool ollama_parse_embed(const json_t *body, serve_request *r, serve_error *e) {
    int64_t dimensions = 0;
    r->kind = SERVE_EMBED;
    if (!read_model(body, r, e) || !field_strings(body, "input", MAX_INPUTS, &r->prompts, e))
        return false;
    if (!json_array_size(r->prompts)) return reject_field(e, "input", "missing");
    if (!read_options(body, r, e) || !read_keep_alive(body, r, e)) return false;
    if (!field_integer(body, "dimensions", 1, INT32_MAX, &dimensions, e)) return false;
    if (!dimensions) return true;
    r->writer_fields = json_pack("{sI}", "dimensions", (json_int_t)dimensions);
    return r->writer_fields || reject_no_memory(e);
}

bool ollama_parse_embeddings(const json_t *body, serve_request *r, serve_error *e) {
    const char *prompt = NULL;
    r->kind = SERVE_EMBED;
    if (!read_model(body, r, e) || !field_string(body, "prompt", &prompt, e) ||
        !read_options(body, r, e) || !read_keep_alive(body, r, e))
        return false;
    if (!prompt) return reject_field(e, "prompt", "missing");
    r->prompts = json_pack("[s]", prompt);
    return r->prompts || reject_no_memory(e);
}
