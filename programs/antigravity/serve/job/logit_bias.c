/* SPDX-License-Identifier: Apache-2.0 */
#include "logit_bias.h"

#include "../threads/account.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BIAS = 4096, MAX_TEXT = 256, MAX_DIGITS = 9 };

static bool reject_bias(serve_error *e) {
    return reject_field(e, "logit_bias",
                        "must map tokens, ids or texts of at most %d bytes, to numbers or false",
                        MAX_TEXT);
}

static bool add_id(serve_sampling *s, json_int_t id, float bias, serve_error *e) {
    if (s->n_bias == MAX_BIAS)
        return reject_field(e, "logit_bias", "too many tokens: at most %d", MAX_BIAS);
    if (id < 0 || id > INT32_MAX) return reject_bias(e);
    s->bias[s->n_bias++] = (ag_logit_bias){(int32_t)id, bias};
    return true;
}

static bool add_text(serve_sampling *s, const char *text, size_t len, const ag_tokenizer *t,
                     float bias, serve_error *e) {
    ag_error err;
    ag_ids ids = {0};
    if (!t || !len || len > MAX_TEXT) return reject_bias(e);
    bool ok = ag_tokenizer_encode(t, text, len, AG_ENCODE_PARSE_SPECIAL, &ids, &err) == AG_OK ||
              reject_status(e, &err);
    for (size_t i = 0; ok && i < ids.n; i++) ok = add_id(s, ids.data[i], bias, e);
    ag_ids_free(&ids);
    return ok;
}

static bool read_value(const json_t *value, float *bias) {
    *bias = json_is_false(value) ? -INFINITY : (float)json_number_value(value);
    return json_is_false(value) || json_is_number(value);
}

/* Adds a key of an object, which is a text even for an id. */
static bool add_object_key(serve_sampling *s, const char *key, float bias, const ag_tokenizer *t,
                           serve_error *e) {
    const size_t n = strlen(key);
    if (n && n <= MAX_DIGITS && strspn(key, "0123456789") == n)
        return add_id(s, strtol(key, NULL, 10), bias, e);
    return add_text(s, key, n, t, bias, e);
}

static bool add_pair(serve_sampling *s, const json_t *pair, const ag_tokenizer *t, serve_error *e) {
    const json_t *token = json_array_get(pair, 0);
    float bias;
    if (json_array_size(pair) != 2 || !read_value(json_array_get(pair, 1), &bias))
        return reject_bias(e);
    if (bias == 0) return true; /* no effect */
    if (json_is_integer(token)) return add_id(s, json_integer_value(token), bias, e);
    if (!json_is_string(token)) return reject_bias(e);
    return add_text(s, json_string_value(token), json_string_length(token), t, bias, e);
}

bool logit_bias_read(serve_sampling *s, const ag_tokenizer *t, serve_error *e) {
    json_t *biases = s->logit_bias, *value;
    const char *key;
    float bias;
    if (!json_object_size(biases) && !json_array_size(biases)) return true;
    s->bias = account_malloc(MAX_BIAS * sizeof *s->bias);
    if (!s->bias) return reject_no_memory(e);
    for (size_t i = 0; i < json_array_size(biases); i++)
        if (!add_pair(s, json_array_get(biases, i), t, e)) return false;
    json_object_foreach(biases, key, value) {
        if (!read_value(value, &bias)) return reject_bias(e);
        if (bias != 0 && !add_object_key(s, key, bias, t, e)) return false;
    }
    return true;
}
