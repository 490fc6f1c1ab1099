/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/embeddings: a vector for each text. */
#include "../../support/json_out.h"
#include "../protocol/fields.h"
#include "../threads/account.h"
#include "openai.h"
#include "openai_fields.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static bool parse_embeddings(const json_t *body, serve_request *r, serve_error *e) {
    const char *format = "float";
    int64_t dimensions = 0;
    r->kind = SERVE_EMBED;
    if (!field_copy(body, "model", &r->model, e) || !openai_read_prompts(body, "input", r, e) ||
        !field_string(body, "encoding_format", &format, e))
        return false;
    const bool as_text = !strcmp(format, "base64");
    if (!as_text && strcmp(format, "float") != 0)
        return reject_field(e, "encoding_format", "must be float or base64");
    if (!field_integer(body, "dimensions", 1, INT32_MAX, &dimensions, e)) return false;
    r->writer_fields =
        json_pack("{sb sI}", "base64", as_text, "dimensions", (json_int_t)dimensions);
    return r->writer_fields || reject_no_memory(e);
}

static json_t *base64_text(const float *v, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t n_bytes = 4 * n;
    unsigned char *bytes = account_malloc(n_bytes + 2);
    char *text = account_malloc((n_bytes + 2) / 3 * 4 + 1), *to = text;
    for (size_t i = 0; bytes && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        for (size_t b = 0; b < 4; b++) bytes[4 * i + b] = (unsigned char)(bits >> 8 * b);
    }
    if (bytes) bytes[n_bytes] = bytes[n_bytes + 1] = 0;
    for (size_t i = 0; bytes && text && i < n_bytes; i += 3) {
        const unsigned group =
            (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];
        *to++ = digits[group >> 18];
        *to++ = digits[group >> 12 & 63];
        *to++ = i + 1 < n_bytes ? digits[group >> 6 & 63] : '=';
        *to++ = i + 2 < n_bytes ? digits[group & 63] : '=';
    }
    json_t *value = bytes && text ? json_stringn(text, (size_t)(to - text)) : NULL;
    account_free(bytes);
    account_free(text);
    return value;
}

static json_t *float_list(const float *v, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) json_append(&list, json_real((double)v[i]));
    return list;
}

/* Normalizes the first n values to length 1. */
static void normalize(float *v, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)v[i] * v[i];
    for (size_t i = 0; sum > 0 && i < n; i++) v[i] = (float)(v[i] / sqrt(sum));
}

static json_t *embeddings_reply(serve_job_view *view) {
    const bool as_text = json_is_true(json_object_get(view->request->writer_fields, "base64"));
    const json_int_t dimensions =
        json_integer_value(json_object_get(view->request->writer_fields, "dimensions"));
    const size_t n = dimensions > 0 && (uint64_t)dimensions < view->n_embedding ? (size_t)dimensions
                                                                                : view->n_embedding;
    json_t *data = json_array();
    for (size_t i = 0; data && i < json_array_size(view->request->prompts); i++) {
        float *v = view->embeddings[i];
        if (n < view->n_embedding) normalize(v, n);
        json_append(&data,
                    JSON_OBJECT({"object", json_string("embedding")}, {"index", json_integer(i)},
                                {"embedding", as_text ? base64_text(v, n) : float_list(v, n)}));
    }
    return JSON_OBJECT({"object", json_string("list")}, {"data", data},
                       {"model", json_text(view->model, strlen(view->model))},
                       {"usage", JSON_OBJECT({"prompt_tokens", json_integer(view->n_prompt)},
                                             {"total_tokens", json_integer(view->n_prompt)})});
}

const serve_protocol openai_embeddings = {
    .name = "openai-embeddings",
    .parse = parse_embeddings,
    .error = openai_error,
    .reply = embeddings_reply,
};
