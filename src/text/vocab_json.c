/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a vocabulary from "model.vocab" (an object or an array) and the array "added_tokens". */
#include "core/fail.h"
#include "text/json_get.h"
#include "text/vocab.h"

#include <string.h>

/* Ids may have gaps, but a small file must not cause a large table. */
enum { MAX_UNUSED_IDS = 1 << 20 };

/* Sizes that the vocabulary of a file needs. */
typedef struct totals {
    size_t n_tokens, n_bytes;
    json_int_t max, limit; /* largest id; upper limit of ids, exclusive */
} totals;

static ag_status check_id(totals *e, const json_t *v, const char *path, const char *name,
                          ag_error *err) {
    if (!json_is_integer(v)) {
        return AG_FAIL(err, FORMAT, "%s: the id of \"%.60s\" must be an integer", path, name);
    }
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= e->limit) {
        return AG_FAIL(err, FORMAT, "%s: id %lld of \"%.60s\" must be in 0..%lld", path,
                       (long long)id, name, (long long)e->limit - 1);
    }
    if (id > e->max) e->max = id;
    return AG_OK;
}

static ag_status measure_added(totals *e, size_t n_model, const json_t *added, ag_error *err) {
    const json_t *v;
    size_t i;
    e->n_tokens = n_model + json_array_size(added);
    if (e->n_tokens > AG_VOCAB_MAX_IDS / 4) {
        return AG_FAIL(err, FORMAT, "model.vocab has %zu tokens, at most %d are supported",
                       e->n_tokens, AG_VOCAB_MAX_IDS / 4);
    }
    e->limit = (json_int_t)(2 * e->n_tokens) + MAX_UNUSED_IDS;
    json_array_foreach(added, i, v) {
        char path[AG_JSON_PATH_BYTES];
        snprintf(path, sizeof path, "added_tokens[%zu]", i);
        json_t *id, *content;
        AG_TRY(ag_json_expect_object(v, path, err));
        AG_TRY(ag_json_required(v, path, "content", JSON_STRING, &content, err));
        AG_TRY(ag_json_required(v, path, "id", JSON_INTEGER, &id, err));
        AG_TRY(check_id(e, id, path, json_string_value(content), err));
        e->n_bytes += json_string_length(content);
    }
    return AG_OK;
}

ag_status ag_vocab_read_json(ag_vocab *v, json_t *vocab, const json_t *added, ag_error *err) {
    totals e = {.max = -1};
    const char *key;
    json_t *id;
    AG_TRY(measure_added(&e, json_object_size(vocab), added, err));
    json_object_foreach(vocab, key, id) {
        AG_TRY(check_id(&e, id, "model.vocab", key, err));
        e.n_bytes += strlen(key);
    }
    AG_TRY(ag_vocab_init(v, (size_t)(e.max + 1), e.n_tokens, e.n_bytes, err));
    json_object_foreach(vocab, key, id) {
        ag_status st =
            ag_vocab_add(v, key, strlen(key), (int32_t)json_integer_value(id), AG_VOCAB_MODEL, err);
        if (st != AG_OK) return ag_error_prefix(err, st, "model.vocab");
    }
    return AG_OK;
}

ag_status ag_vocab_read_json_list(ag_vocab *v, const json_t *list, const json_t *added,
                                  ag_error *err) {
    size_t n = json_array_size(list), i;
    totals e = {.max = (json_int_t)n - 1};
    const json_t *item;
    AG_TRY(measure_added(&e, n, added, err));
    json_array_foreach(list, i, item) {
        const json_t *s = json_array_get(item, 0);
        if (!json_is_string(s)) {
            return AG_FAIL(err, FORMAT, "model.vocab[%zu] must be [\"token\", score]", i);
        }
        e.n_bytes += json_string_length(s);
    }
    AG_TRY(ag_vocab_init(v, (size_t)(e.max + 1), e.n_tokens, e.n_bytes, err));
    json_array_foreach(list, i, item) {
        const json_t *s = json_array_get(item, 0);
        ag_status st = ag_vocab_add(v, json_string_value(s), json_string_length(s), (int32_t)i,
                                    AG_VOCAB_MODEL, err);
        if (st != AG_OK) return ag_error_prefix(err, st, "model.vocab");
    }
    return AG_OK;
}
