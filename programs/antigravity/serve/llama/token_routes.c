/* SPDX-License-Identifier: Apache-2.0 */
/* POST /tokenize, /detokenize and /apply-template: what a text is to the model. */
#include "json_out.h"
#include "serve/openai/openai.h"
#include "serve/protocol/fields.h"
#include "serve/request/routes.h"
#include "serve/work/account.h"

/* Each is an object of its own. */
enum { MAX_PIECES = 65536 };

static ag_served_model *find_served(serve_call *call, serve_error *e) {
    const char *name = NULL;
    if (!field_string(call_body(call), "model", &name, e)) return NULL;
    ag_served_model *m = call_model(call, name, e);
    if (!m || ag_served_model_tokenizer(m)) return m;
    serve_refuse(e, 400, "model", "the model '%.100s' has no tokenizer", ag_served_model_name(m));
    return NULL;
}

/* ---- /tokenize ---- */

static json_t *pieces_of(const ag_tokenizer *t, const ag_ids *ids) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < ids->n; i++) {
        ag_text text = {0};
        ag_error err;
        if (ag_tokenizer_decode(t, &ids->data[i], 1, true, &text, &err) != AG_OK) text.len = 0;
        const json_field fields[] = {
            {"id", json_integer(ids->data[i])},
            {"piece", json_text(text.data, text.len)},
        };
        json_append(&list, JSON_OBJECT(fields));
        ag_text_free(&text);
    }
    return list;
}

static bool tokenize(const serve_call *call, const ag_tokenizer *t, ag_ids *ids, bool *pieces,
                     serve_error *e) {
    ag_error err;
    bool add_special = false, parse_special = true;
    const json_t *body = call_body(call), *content = json_object_get(body, "content");
    if (!content) content = json_object_get(body, "text");
    if (!json_is_string(content)) return serve_refuse(e, 400, "content", "content must be a text");
    if (!field_bool(body, "add_special", &add_special, e) ||
        !field_bool(body, "parse_special", &parse_special, e) ||
        !field_bool(body, "with_pieces", pieces, e))
        return false;
    const unsigned flags =
        (add_special ? AG_ENCODE_BOS : 0u) | (parse_special ? AG_ENCODE_PARSE_SPECIAL : 0u);
    const ag_status st = ag_tokenizer_encode(t, json_string_value(content),
                                             json_string_length(content), flags, ids, &err);
    if (st != AG_OK) return serve_refuse_status(e, &err);
    return !*pieces || ids->n <= MAX_PIECES ||
           serve_refuse(e, 400, "with_pieces", "the pieces of %zu tokens, of %d at most", ids->n,
                        MAX_PIECES);
}

static void reply_tokens(serve_call *call) {
    serve_error e;
    ag_ids ids = {0};
    bool pieces = false;
    const ag_served_model *m = find_served(call, &e);
    const ag_tokenizer *t = m ? ag_served_model_tokenizer(m) : NULL;
    if (!m || !tokenize(call, t, &ids, &pieces, &e)) {
        call_reply_error(call, &e);
    } else {
        const json_field fields[] = {
            {"tokens", pieces ? pieces_of(t, &ids) : json_ids(ids.data, ids.n)},
            {"count", json_integer((json_int_t)ids.n)},
        };
        call_reply_json(call, 200, JSON_OBJECT(fields));
    }
    ag_ids_free(&ids);
}

/* ---- /detokenize ---- */

static bool detokenize(const serve_call *call, const ag_tokenizer *t, ag_text *text,
                       serve_error *e) {
    ag_error err;
    json_t *list = NULL;
    if (!field_array(call_body(call), "tokens", &list, e)) return false;
    if (!list) return serve_refuse(e, 400, "tokens", "tokens must be a list of ids");
    const size_t n = json_array_size(list);
    int32_t *ids = account_malloc((n ? n : 1) * sizeof *ids);
    if (!ids) return serve_no_memory(e);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_integer_value(id);
        ok = (json_is_integer(id) && v >= 0 && v < ag_tokenizer_vocab_size(t)) ||
             serve_refuse(e, 400, "tokens", "tokens[%zu] is no id of this model", i);
        ids[i] = (int32_t)v;
    }
    if (ok)
        ok = ag_tokenizer_decode(t, ids, n, true, text, &err) == AG_OK ||
             serve_refuse_status(e, &err);
    account_free(ids);
    return ok;
}

static void reply_text_of_tokens(serve_call *call) {
    serve_error e;
    ag_text text = {0};
    const ag_served_model *m = find_served(call, &e);
    if (!m || !detokenize(call, ag_served_model_tokenizer(m), &text, &e)) {
        call_reply_error(call, &e);
    } else {
        const json_field fields[] = {{"content", json_text(text.data, text.len)}};
        call_reply_json(call, 200, JSON_OBJECT(fields));
    }
    ag_text_free(&text);
}

/* ---- /apply-template ---- */

static void reply_template(serve_call *call) {
    serve_error e;
    serve_request r;
    ag_text text = {0};
    ag_ids ids = {0};
    serve_request_init(&r);
    ag_served_model *m = NULL;
    bool ok = openai_chat_parse(call, call_body(call), &r, &e);
    call_drop_body(call);
    ok = ok && (m = call_model(call, r.model, &e)) != NULL &&
         serve_render(call, m, &r, &ids, &text, &e);
    if (ok) {
        const json_field fields[] = {
            {"prompt", json_text(text.data, text.len)},
            {"tokens", json_ids(ids.data, ids.n)},
            {"count", json_integer((json_int_t)ids.n)},
        };
        call_reply_json(call, 200, JSON_OBJECT(fields));
    } else {
        call_reply_error(call, &e);
    }
    ag_text_free(&text);
    ag_ids_free(&ids);
    serve_request_free(&r);
}

const serve_route token_routes[] = {
    {"POST", "/tokenize", .handle = reply_tokens, .model_optional = true},
    {"POST", "/detokenize", .handle = reply_text_of_tokens, .model_optional = true},
    {"POST", "/apply-template", .handle = reply_template, .model_optional = true},
    {0},
};
