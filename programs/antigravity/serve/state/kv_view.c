/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/kv/ID: the tokens that each head of a session retains. If ID is the id of a request,
 * which only its client knows, the reply also has the texts of the tokens. */
#include "../../support/json_out.h"
#include "../job/kv_owners.h"
#include "../request/routes.h"
#include "../threads/account.h"
#include "../threads/account_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXTS = 32768, /* texts of tokens in one reply */
    OVERLAP = 8,       /* maximum tokens of a split character; their texts are sent again */
};

/* ---- texts of tokens ---- */

/* Returns the texts of the tokens from `shown` on, decoded from `first` on. A text is "" if its
 * character continues in the next token. */
static json_t *token_texts(const ag_cache_view *v, size_t first, size_t shown) {
    const ag_tokenizer *tokenizer = ag_served_model_tokenizer(v->model);
    const size_t end = v->n_ids - shown > MAX_TEXTS ? shown + MAX_TEXTS : v->n_ids;
    json_t *list = json_array();
    ag_decoder *decoder = NULL;
    ag_text text = {0};
    if (!tokenizer || ag_decoder_create(tokenizer, true, first > 0, &decoder, NULL) != AG_OK)
        return list;
    for (size_t i = first; list && i < end; i++) {
        text.len = 0;
        if (ag_decoder_push(decoder, v->ids[i], &text, NULL) != AG_OK) {
            json_decref(list);
            list = NULL;
        } else if (i >= shown) {
            json_append(&list, json_text(text.data, text.len));
        }
    }
    ag_decoder_destroy(decoder);
    ag_text_free(&text);
    return list;
}

static json_t *text_object(const ag_cache_view *v, size_t from) {
    const size_t limit = from < v->n_ids ? from : v->n_ids;
    const size_t shown = limit > OVERLAP ? limit - OVERLAP : 0;
    const size_t first = shown > OVERLAP ? shown - OVERLAP : 0;
    return JSON_OBJECT({"from", json_integer(shown)}, {"tokens", token_texts(v, first, shown)});
}

/* ---- layers ---- */

/* Gives heads with the same list of runs the same number. numbers [n_heads]. */
static void number_runs(const ag_cache_view *v, size_t *numbers) {
    size_t n = 0;
    for (uint32_t h = 0; h < v->n_heads; h++) {
        const bool same = h && v->heads[h].first_run == v->heads[h - 1].first_run &&
                          v->heads[h].n_runs == v->heads[h - 1].n_runs;
        numbers[h] = same ? numbers[h - 1] : n++;
    }
}

static json_t *layer_list(const ag_cache_view *v, const size_t *numbers) {
    json_t *layers = json_array();
    for (uint32_t l = 0; layers && l < v->n_layers; l++) {
        json_t *heads = json_array();
        for (uint32_t h = 0; heads && h < v->layers[l].n_heads; h++)
            json_append(&heads, json_integer(numbers[v->layers[l].first_head + h]));
        json_append(&layers,
                    JSON_OBJECT({"window", json_integer(v->layers[l].window)}, {"heads", heads}));
    }
    return layers;
}

/* ---- the reply ---- */

/* Writes [[position, n, position, n, ...], ...], one list for each number. */
static bool add_runs(ag_text *t, const ag_cache_view *v, const size_t *numbers) {
    bool ok = true;
    for (uint32_t h = 0; ok && h < v->n_heads; h++) {
        const ag_cache_head_view *head = &v->heads[h];
        if (h && numbers[h] == numbers[h - 1]) continue;
        ok = account_text_printf(t, "%s[", h ? "," : "");
        for (size_t i = 0; ok && i < head->n_runs; i++) {
            const ag_cache_run *r = &v->runs[head->first_run + i];
            ok = account_text_printf(t, "%s%" PRIu32 ",%" PRIu32, i ? "," : "", r->position, r->n);
        }
        ok = ok && account_text_append(t, "]", 1);
    }
    return ok;
}

/* from: SIZE_MAX without texts. */
static json_t *session_object(const ag_cache_view *v, const size_t *numbers, size_t from) {
    const char *model = ag_served_model_name(v->model);
    const json_field fields[] = {
        {"id", json_integer(v->id)},
        {"object", json_string("kv.session")},
        {"model", json_text(model, strlen(model))},
        {"state", json_string(v->is_running ? "running" : "parked")},
        {"tokens", json_integer(v->n_tokens)},
        {"k_type", json_string(ag_dtype_name(v->k_type))},
        {"v_type", json_string(ag_dtype_name(v->v_type))},
        {"policy", json_string(v->policy)},
        {"budget", json_integer(v->budget)},
        {"protected", json_integer(v->n_protected)},
        {"evictions", json_integer(v->n_evictions)},
        {"evicted", json_integer(v->n_evicted)},
        {"bytes", json_integer(v->kv_bytes)},
        {"shared_bytes", json_integer(v->shared_bytes)},
        {"layers", layer_list(v, numbers)},
    };
    json_t *object = JSON_FIELDS(fields);
    return from < SIZE_MAX ? JSON_ADD(object, {"text", text_object(v, from)}) : object;
}

/* Writes the runs as text: a million JSON values would take much more memory. */
static void reply_view(serve_http_request *http, const ag_cache_view *v, size_t from) {
    size_t *numbers = account_calloc(v->n_heads + 1, sizeof *numbers);
    ag_text t = {0};
    if (numbers) number_runs(v, numbers);
    json_t *session = numbers ? session_object(v, numbers, from) : NULL;
    char *head = session ? json_dumps(session, JSON_COMPACT) : NULL;
    json_decref(session);
    /* The runs are inserted before the last brace. */
    const bool ok = head && account_text_append(&t, head, strlen(head) - 1) &&
                    account_text_printf(&t, ",\"runs\":[") && add_runs(&t, v, numbers) &&
                    account_text_printf(&t, "]}");
    if (ok) http_reply_text(http, 200, "application/json", t.data, t.len);
    else http_reply_json(http, 503, NULL);
    account_free(head);
    account_free(t.data);
    account_free(numbers);
}

/* Accepts decimal digits only. */
static bool read_number(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno;
}

/* Finds the session and returns its view, which the caller must destroy. */
static bool find_view(const serve_http_request *http, size_t *from, ag_cache_view **v,
                      serve_error *e) {
    const char *query = http_query(http), *name = http_path_tail(http);
    uint64_t id = 0, first = 0;
    ag_error err;
    const bool is_by_request = kv_owner_find(name, &id);
    if (!is_by_request && !read_number(name, &id))
        return reject_request(e, 404, NULL, "session '%.40s' not found", name);
    if (query[0] && (strncmp(query, "from=", 5) != 0 || !read_number(query + 5, &first)))
        return reject_field(e, "from", "must be the position of a token");
    *from = !is_by_request ? SIZE_MAX : first < UINT32_MAX ? (size_t)first : UINT32_MAX;
    if (ag_serving_view_session(http_serving(http), id, http_scope(http), v, &err) == AG_OK)
        return true;
    return reject_status(e, &err);
}

/* One view at a time: it waits for the engine, and other requests need the workers. */
static atomic_flag is_viewing = ATOMIC_FLAG_INIT;

static void reply_session(serve_http_request *http) {
    ag_cache_view *v = NULL;
    size_t from = 0;
    serve_error e;
    if (atomic_flag_test_and_set(&is_viewing)) {
        reject_request(&e, 503, NULL, "another view of a session is in progress; retry later");
        http_reply_error(http, &e);
        return;
    }
    if (find_view(http, &from, &v, &e)) reply_view(http, v, from);
    else http_reply_error(http, &e);
    ag_cache_view_destroy(v);
    atomic_flag_clear(&is_viewing);
}

const serve_route kv_routes[] = {
    {"GET", "/v1/kv/*", .handle = reply_session, .waits = true},
    {0},
};
