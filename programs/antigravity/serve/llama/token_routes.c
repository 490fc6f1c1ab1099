/* SPDX-License-Identifier: Apache-2.0 */
/* POST /tokenize, /detokenize and /apply-template. */
#include "../../support/json_out.h"
#include "../job/presets.h"
#include "../openai/openai.h"
#include "../protocol/fields.h"
#include "../request/http_request.h"
#include "../request/routes.h"
#include "../threads/account.h"

/* Limit for with_pieces: each piece is a JSON object. */
enum { MAX_PIECES = 65536 };

static ag_served_model *find_served(serve_http_request *http, serve_error *e) {
    const char *name = NULL;
    if (!field_string(http_body(http), "model", &name, e)) return NULL;
    ag_served_model *m = http_model(http, name, e);
    if (!m || ag_served_model_tokenizer(m)) return m;
    reject_field(e, "model", "'%.100s' has no tokenizer", ag_served_model_name(m));
    return NULL;
}

/* ---- /tokenize ---- */

static json_t *piece_list(const ag_tokenizer *t, const ag_ids *ids) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < ids->n; i++) {
        ag_text text = {0};
        ag_error err;
        if (ag_tokenizer_decode(t, &ids->data[i], 1, true, &text, &err) != AG_OK) text.len = 0;
        json_append(&list, JSON_OBJECT({"id", json_integer(ids->data[i])},
                                       {"piece", json_text(text.data, text.len)}));
        ag_text_free(&text);
    }
    return list;
}

static bool tokenize(const serve_http_request *http, const ag_tokenizer *t, ag_ids *ids,
                     bool *pieces, serve_error *e) {
    ag_error err;
    bool add_special = false, parse_special = true;
    const json_t *body = http_body(http), *content = json_object_get(body, "content");
    if (!content) content = json_object_get(body, "text");
    if (!json_is_string(content)) return reject_field(e, "content", "must be a string");
    if (!field_bool(body, "add_special", &add_special, e) ||
        !field_bool(body, "parse_special", &parse_special, e) ||
        !field_bool(body, "with_pieces", pieces, e))
        return false;
    const unsigned flags =
        (add_special ? AG_ENCODE_BOS : 0u) | (parse_special ? AG_ENCODE_PARSE_SPECIAL : 0u);
    const ag_status st = ag_tokenizer_encode(t, json_string_value(content),
                                             json_string_length(content), flags, ids, &err);
    if (st != AG_OK) return reject_status(e, &err);
    return !*pieces || ids->n <= MAX_PIECES ||
           reject_field(e, "with_pieces", "too many tokens: %zu, at most %d", ids->n, MAX_PIECES);
}

static void reply_tokenized(serve_http_request *http) {
    serve_error e;
    ag_ids ids = {0};
    bool pieces = false;
    const ag_served_model *m = find_served(http, &e);
    const ag_tokenizer *t = m ? ag_served_model_tokenizer(m) : NULL;
    if (!m || !tokenize(http, t, &ids, &pieces, &e)) {
        http_reply_error(http, &e);
    } else {
        http_reply_json(
            http, 200,
            JSON_OBJECT({"tokens", pieces ? piece_list(t, &ids) : json_ids(ids.data, ids.n)},
                        {"count", json_integer(ids.n)}));
    }
    ag_ids_free(&ids);
}

/* ---- /detokenize ---- */

static bool detokenize(const serve_http_request *http, const ag_tokenizer *t, ag_text *text,
                       serve_error *e) {
    ag_error err;
    json_t *list = NULL;
    if (!field_array(http_body(http), "tokens", &list, e)) return false;
    if (!list) return reject_field(e, "tokens", "must be a list of ids");
    const size_t n = json_array_size(list);
    int32_t *ids = account_malloc((n ? n : 1) * sizeof *ids);
    if (!ids) return reject_no_memory(e);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_integer_value(id);
        ok = (json_is_integer(id) && v >= 0 && v < ag_tokenizer_vocab_size(t)) ||
             reject_field(e, "tokens", "item %zu is not an id of this model", i);
        ids[i] = (int32_t)v;
    }
    if (ok)
        ok = ag_tokenizer_decode(t, ids, n, true, text, &err) == AG_OK || reject_status(e, &err);
    account_free(ids);
    return ok;
}

static void reply_detokenized(serve_http_request *http) {
    serve_error e;
    ag_text text = {0};
    const ag_served_model *m = find_served(http, &e);
    if (!m || !detokenize(http, ag_served_model_tokenizer(m), &text, &e)) {
        http_reply_error(http, &e);
    } else {
        http_reply_json(http, 200, JSON_OBJECT({"content", json_text(text.data, text.len)}));
    }
    ag_text_free(&text);
}

/* ---- /apply-template ---- */

static void reply_template(serve_http_request *http) {
    serve_error e;
    serve_request r;
    ag_text text = {0};
    ag_ids ids = {0};
    serve_request_init(&r);
    r.http = http;
    ag_served_model *m = NULL;
    bool ok = openai_chat_parse(http_body(http), &r, &e);
    http_drop_body(http);
    ok = ok && serve_presets_apply(http->server->settings->presets, &r, &e) &&
         (m = http_model(http, r.model, &e)) != NULL && serve_render(m, &r, &ids, &text, &e);
    if (ok) {
        http_reply_json(http, 200,
                        JSON_OBJECT({"prompt", json_text(text.data, text.len)},
                                    {"tokens", json_ids(ids.data, ids.n)},
                                    {"count", json_integer(ids.n)}));
    } else {
        http_reply_error(http, &e);
    }
    ag_text_free(&text);
    ag_ids_free(&ids);
    serve_request_free(&r);
}

const serve_route token_routes[] = {
    {"POST", "/tokenize", .handle = reply_tokenized, .model_optional = true},
    {"POST", "/detokenize", .handle = reply_detokenized, .model_optional = true},
    {"POST", "/apply-template", .handle = reply_template, .model_optional = true},
    {0},
};
