/* SPDX-License-Identifier: Apache-2.0 */
#include "../openai/openai_fields.h"
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "llama_completion.h"

#include <antigravity/serving.h>

/* Returns whether a list is one prompt: ids, possibly mixed with texts. Other lists are several
 * prompts. */
static bool is_one_prompt(const json_t *list) {
    bool has_id = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (json_is_array(item) || json_is_object(item)) return false;
        has_id = has_id || json_is_integer(item);
    }
    return has_id;
}

static bool append_tokens(const ag_tokenizer *t, const json_t *text, bool first, json_t *ids,
                          serve_error *e) {
    ag_ids encoded = {0};
    ag_error err;
    const unsigned flags = AG_ENCODE_PARSE_SPECIAL | (first ? AG_ENCODE_BOS : 0u);
    bool ok = ag_tokenizer_encode(t, json_string_value(text), json_string_length(text), flags,
                                  &encoded, &err) == AG_OK;
    if (!ok) reject_status(e, &err);
    for (size_t i = 0; ok && i < encoded.n; i++)
        ok = list_add(ids, json_integer(encoded.data[i]), e);
    ag_ids_free(&encoded);
    return ok;
}

/* Encodes a list of ids and texts to a new list of ids, *out. */
static bool join_sequence(const serve_request *r, const json_t *list, json_t **out,
                          serve_error *e) {
    const ag_served_model *model = http_model(r->http, r->model, e);
    const ag_tokenizer *t = model ? ag_served_model_tokenizer(model) : NULL;
    if (!model) return false;
    if (!t) return reject_field(e, "prompt", "the model has no tokenizer");
    json_t *ids = json_array();
    bool ok = ids != NULL || reject_no_memory(e);
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        if (json_is_string(item)) ok = append_tokens(t, item, i == 0, ids, e);
        else if (json_is_integer(item)) ok = list_add(ids, json_incref(item), e);
        else ok = reject_field(e, "prompt", "item %zu must be an id or a string", i);
    }
    *out = ok ? ids : NULL;
    if (!ok) json_decref(ids);
    return ok;
}

/* *out is a new reference. */
static bool read_prompt(const serve_request *r, json_t *prompt, json_t **out, serve_error *e) {
    if (json_object_get(prompt, "multimodal_data"))
        return reject_field(e, "prompt", "images are not supported: the model reads text only");
    if (json_is_array(prompt) && is_one_prompt(prompt)) return join_sequence(r, prompt, out, e);
    json_t *text = json_is_string(prompt) ? prompt : json_object_get(prompt, "prompt_string");
    if (!json_is_string(text))
        return reject_field(e, "prompt", "must be a string, a list of ids, or a list of these");
    *out = json_incref(text);
    return true;
}

static bool read_prompts(const json_t *body, serve_request *r, serve_error *e) {
    json_t *prompt = field_get(body, "prompt"), *one = NULL;
    bool single = !json_is_array(prompt) || is_one_prompt(prompt);
    size_t n = single ? 1 : json_array_size(prompt);
    if (!prompt || !n) return reject_field(e, "prompt", "missing");
    r->prompts = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *item = single ? prompt : json_array_get(prompt, i);
        if (!read_prompt(r, item, &one, e)) return false;
        if (!list_add(r->prompts, one, e)) return false;
    }
    return json_object_set_new(r->writer_fields, "single", json_boolean(single)) == 0 ||
           reject_no_memory(e);
}

static bool save_field(const json_t *body, const char *name, serve_request *r, serve_error *e) {
    json_t *value = field_get(body, name);
    return !value || json_object_set(r->writer_fields, name, value) == 0 || reject_no_memory(e);
}

/* The number of names is limited, because every answer searches for each of them. */
static bool save_response_fields(const json_t *body, serve_request *r, serve_error *e) {
    enum { MAX_FIELDS = 64 };
    json_t *names = NULL;
    if (!field_strings(body, "response_fields", MAX_FIELDS, &names, e)) return false;
    return !names || json_object_set_new(r->writer_fields, "response_fields", names) == 0 ||
           reject_no_memory(e);
}

/* The ids of tokens are reported with their probabilities, so return_tokens and streams also need
 * these. */
static bool read_tokens(const json_t *body, serve_request *r, serve_error *e) {
    bool ids = false, after_sampling = false;
    int64_t n_probs = 0;
    if (!field_bool(body, "return_tokens", &ids, e) ||
        !field_bool(body, "post_sampling_probs", &after_sampling, e) ||
        !field_integer(body, "n_probs", 0, 20, &n_probs, e))
        return false;
    if (after_sampling && n_probs)
        return reject_field(e, "post_sampling_probs",
                            "not supported: probabilities are those before sampling");
    r->n_top = (uint32_t)n_probs;
    r->logprobs = ids || n_probs || r->stream;
    return true;
}

bool llama_parse_completion(const json_t *body, serve_request *r, serve_error *e) {
    r->kind = SERVE_TEXT;
    r->parse_special = true;
    r->writer_fields = json_object();
    if (!r->writer_fields) return reject_no_memory(e);
    if (!openai_read_common(body, r, e) || !openai_read_format(body, r, e) ||
        !field_integer(body, "n_predict", -1, INT32_MAX, &r->max_tokens, e) ||
        !read_tokens(body, r, e) || !read_prompts(body, r, e))
        return false;
    return save_field(body, "return_tokens", r, e) && save_response_fields(body, r, e);
}

/* ---- /infill ---- */

static bool read_files(const json_t *body, serve_request *r, serve_error *e) {
    json_t *files = NULL;
    if (!field_array(body, "input_extra", &files, e)) return false;
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i), *name = json_object_get(file, "filename");
        if (!json_is_string(json_object_get(file, "text")) || (name && !json_is_string(name)))
            return reject_field(e, "input_extra",
                                "item %zu must have a string text, and may have a string filename",
                                i);
    }
    r->files = json_incref(files);
    return true;
}

bool llama_parse_infill(const json_t *body, serve_request *r, serve_error *e) {
    const char *prefix = "", *prompt = "";
    r->kind = SERVE_TEXT;
    r->writer_fields = json_pack("{sb}", "single", 1);
    if (!r->writer_fields) return reject_no_memory(e);
    if (!openai_read_common(body, r, e) || !openai_read_format(body, r, e) ||
        !field_integer(body, "n_predict", -1, INT32_MAX, &r->max_tokens, e) ||
        !read_tokens(body, r, e) || !read_files(body, r, e) ||
        !field_string(body, "input_prefix", &prefix, e) ||
        !field_string(body, "prompt", &prompt, e) ||
        !field_copy(body, "input_suffix", &r->suffix, e))
        return false;
    if (!r->suffix) return reject_field(e, "input_suffix", "missing; give the text after the gap");
    r->prompts = json_pack("[o]", json_sprintf("%s%s", prefix, prompt));
    if (!r->prompts) return reject_no_memory(e);
    return save_field(body, "return_tokens", r, e) && save_response_fields(body, r, e);
}
