/* SPDX-License-Identifier: Apache-2.0 */
#include "openai_fields.h"

#include "../../options/sampling_options.h"
#include "../protocol/fields.h"
#include "../threads/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_STOP_STRINGS = 64 };

/* ---- sampling ---- */

/* Only stores the field. It is parsed when the model is known, since tokens may be given as
 * texts. */
static bool save_logit_bias(const json_t *body, serve_sampling *s, serve_error *e) {
    json_t *given = field_get(body, "logit_bias");
    if (given && !json_is_object(given) && !json_is_array(given) && !json_is_null(given))
        return reject_field(e, "logit_bias", "must be an object or a list");
    s->logit_bias = json_incref(given);
    return true;
}

/* Reads the fields of llama.cpp's further samplers. */
static bool read_samplers(const json_t *body, serve_sampling *s, serve_error *e) {
    return field_number(body, "dynatemp_range", 0, 1000, &s->dynamic_range, e) &&
           field_number(body, "dynatemp_exponent", 0, 1000, &s->dynamic_exponent, e) &&
           field_number(body, "top_n_sigma", -1, 1000, &s->top_n_sigma, e) &&
           field_number(body, "typical_p", 0, 1, &s->typical_p, e) &&
           field_number(body, "xtc_probability", 0, 1, &s->xtc_probability, e) &&
           field_number(body, "xtc_threshold", 0, 1, &s->xtc_threshold, e) &&
           field_number(body, "dry_multiplier", 0, 1000, &s->dry_multiplier, e) &&
           field_number(body, "dry_base", 1, 1000, &s->dry_base, e) &&
           field_integer(body, "dry_allowed_length", 1, INT32_MAX, &s->dry_allowed_length, e) &&
           field_integer(body, "dry_penalty_last_n", -1, INT32_MAX, &s->dry_window, e) &&
           field_strings(body, "dry_sequence_breakers", MAX_DRY_BREAKERS, &s->dry_breakers, e) &&
           field_no_mirostat(body, e);
}

static bool read_sampling(const json_t *body, serve_sampling *s, serve_error *e) {
    if (!field_number(body, "temperature", 0, 1000, &s->temperature, e) ||
        !field_number(body, "top_p", 0, 1, &s->top_p, e) ||
        !field_number(body, "min_p", 0, 1, &s->min_p, e) ||
        !field_number(body, "presence_penalty", -1000, 1000, &s->presence_penalty, e) ||
        !field_number(body, "frequency_penalty", -1000, 1000, &s->frequency_penalty, e) ||
        !field_number(body, "repetition_penalty", 1e-6, 1000, &s->repetition_penalty, e) ||
        !field_number(body, "repeat_penalty", 1e-6, 1000, &s->repetition_penalty, e) ||
        !field_integer(body, "repeat_last_n", -1, INT32_MAX, &s->repetition_window, e) ||
        !field_integer(body, "top_k", -1, INT32_MAX, &s->top_k, e) ||
        !field_integer(body, "seed", INT64_MIN, INT64_MAX, &s->seed, e))
        return false;
    if (!read_samplers(body, s, e)) return false;
    s->has_seed = json_is_integer(field_get(body, "seed")) && s->seed >= 0;
    return save_logit_bias(body, s, e);
}

/* ---- stream and cache ---- */

static bool read_stream(const json_t *body, serve_request *r, serve_error *e) {
    json_t *options = NULL;
    if (!field_bool(body, "stream", &r->stream, e) ||
        !field_object(body, "stream_options", &options, e))
        return false;
    return !options || field_bool(options, "include_usage", &r->include_usage, e);
}

/* Reads "512", "25%", or a number of tokens. */
static bool read_budget(const json_t *body, serve_request *r, serve_error *e) {
    char digits[32];
    const json_t *budget = field_get(body, "kv_budget");
    if (!json_is_integer(budget)) return field_copy(body, "kv_budget", &r->kv_budget, e);
    snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(budget));
    r->kv_budget = account_strdup(digits);
    return r->kv_budget || reject_no_memory(e);
}

static bool read_cache(const json_t *body, serve_request *r, serve_error *e) {
    bool use_prefix = true;
    if (!field_copy(body, "kv_type", &r->kv_type, e) ||
        !field_copy(body, "kv_policy", &r->kv_policy, e) || !read_budget(body, r, e) ||
        !field_copy(body, "head_budget", &r->head_budget, e) ||
        !field_bool(body, "cache_prompt", &use_prefix, e) ||
        !field_number(body, "timeout", 0, 1e6, &r->timeout_s, e))
        return false;
    r->no_prefix = !use_prefix;
    return true;
}

bool openai_read_common(const json_t *body, serve_request *r, serve_error *e) {
    int64_t n = 1;
    if (!field_copy(body, "model", &r->model, e) || !read_sampling(body, &r->sampling, e) ||
        !field_strings(body, "stop", MAX_STOP_STRINGS, &r->stop, e) ||
        !field_integer(body, "n", 1, 64, &n, e) ||
        !field_bool(body, "ignore_eos", &r->ignore_eos, e) || !read_stream(body, r, e) ||
        !read_cache(body, r, e))
        return false;
    r->n = (uint32_t)n;
    return true;
}

/* ---- constraints ---- */

static bool set_constraint(serve_request *r, ag_constraint_kind kind, char *text, serve_error *e) {
    r->constrained = true;
    r->constraint = kind;
    account_free(r->constraint_text);
    r->constraint_text = text;
    return text || reject_no_memory(e);
}

static bool set_schema(serve_request *r, const json_t *schema, serve_error *e) {
    return set_constraint(r, AG_CONSTRAINT_JSON_SCHEMA,
                          json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY), e);
}

static bool read_response_format(const json_t *format, serve_request *r, serve_error *e) {
    const char *type = field_type(format);
    if (!strcmp(type, "text")) return true;
    const bool any_object = !strcmp(type, "json_object");
    if (!any_object && strcmp(type, "json_schema") != 0)
        return reject_field(e, "response_format", "type must be text, json_object or json_schema");
    const json_t *outer = json_object_get(format, "json_schema");
    json_t *schema = json_object_get(outer, "schema");
    if (!schema) schema = json_object_get(format, "schema");
    if (json_is_object(schema) || json_is_boolean(schema)) return set_schema(r, schema, e);
    if (schema || !any_object)
        return reject_field(e, "response_format", "schema must be an object");
    r->constrained = true;
    r->constraint = AG_CONSTRAINT_JSON_OBJECT;
    return true;
}

bool openai_read_format(const json_t *body, serve_request *r, serve_error *e) {
    json_t *format = NULL, *choices = NULL, *schema = NULL;
    const char *grammar = NULL, *regex = NULL;
    if (!field_object(body, "response_format", &format, e) ||
        !field_object(body, "json_schema", &schema, e) ||
        !field_string(body, "grammar", &grammar, e) || !field_string(body, "regex", &regex, e) ||
        !field_array(body, "choice", &choices, e))
        return false;
    if (!!format + !!schema + !!grammar + !!regex + !!choices > 1)
        return reject_field(
            e, "response_format",
            "give only one of response_format, json_schema, grammar, regex and choice");
    if (format) return read_response_format(format, r, e);
    if (schema) return set_schema(r, schema, e);
    if (grammar) return set_constraint(r, AG_CONSTRAINT_GRAMMAR, account_strdup(grammar), e);
    if (regex) return set_constraint(r, AG_CONSTRAINT_REGEX, account_strdup(regex), e);
    if (!choices) return true;
    r->constrained = true;
    r->constraint = AG_CONSTRAINT_CHOICES;
    return field_strings(body, "choice", 1024, &r->choices, e);
}

/* ---- prompts and messages ---- */

bool openai_read_prompts(const json_t *body, const char *name, serve_request *r, serve_error *e) {
    json_t *prompt = field_get(body, name);
    const json_t *first = json_array_get(prompt, 0);
    if (json_is_string(prompt) || json_is_integer(first)) {
        r->prompts = json_pack("[O]", prompt);
        return r->prompts || reject_no_memory(e);
    }
    if (!json_is_array(prompt) || !first)
        return reject_field(e, name, "must be a string, or a list of strings or ids");
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        const json_t *one = json_array_get(prompt, i);
        if (!json_is_string(one) && !json_is_array(one))
            return reject_field(e, name, "item %zu must be a string or a list of ids", i);
    }
    r->prompts = json_incref(prompt);
    return true;
}

static bool check_part(const json_t *part, size_t message, serve_error *e) {
    const char *type = field_type(part);
    if (json_is_string(part) || !strcmp(type, "text") || !strcmp(type, "refusal")) return true;
    if (!strcmp(type, "image_url") || !strcmp(type, "image") || !strcmp(type, "input_image"))
        return reject_field(e, "messages",
                            "images are not supported: the model reads text only (message %zu)",
                            message);
    return reject_field(
        e, "messages",
        "message %zu: parts of type '%.40s' are not supported; the model reads text only", message,
        type);
}

bool openai_check_parts(const json_t *messages, serve_error *e) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (!json_is_array(content)) continue;
        for (size_t k = 0; k < json_array_size(content); k++)
            if (!check_part(json_array_get(content, k), i, e)) return false;
    }
    return true;
}

bool openai_read_tool_choice(const json_t *body, bool is_nested, serve_request *r, serve_error *e) {
    static const struct {
        const char *word;
        serve_tool_choice choice;
    } words[] = {
        {"auto", SERVE_TOOLS_AUTO},
        {"none", SERVE_TOOLS_NONE},
        {"required", SERVE_TOOLS_REQUIRED},
    };
    const json_t *choice = field_get(body, "tool_choice");
    const char *word = json_string_value(choice);
    if (!choice || json_is_null(choice)) return true;
    for (size_t i = 0; word && i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(word, words[i].word) != 0) continue;
        r->tool_choice = words[i].choice;
        return true;
    }
    if (strcmp(field_type(choice), "function") != 0)
        return reject_field(e, "tool_choice",
                            "must be auto, none, required or a function, not \"%.40s\"",
                            word ? word : field_type(choice));
    r->tool_choice = SERVE_TOOLS_NAMED;
    const json_t *function = is_nested ? json_object_get(choice, "function") : choice;
    if (!field_copy(function, "name", &r->tool_name, e)) return false;
    return r->tool_name || reject_field(e, "tool_choice", "name is missing");
}
