/* SPDX-License-Identifier: Apache-2.0 */
/* From the JSON object "model.vocab" and the array "added_tokens" to a vocabulary. */
#include "core/fail.h"
#include "text/json_get.h"
#include "text/vocab.h"

#include <string.h>

/* Ids may have gaps, but a file of a few bytes must not make the table large. */
enum { SPARE_IDS = 1 << 20 };

static ag_status check_id(const json_t *v, const char *what, const char *name, json_int_t limit,
                          json_int_t *max, ag_error *err) {
    if (!json_is_integer(v)) {
        return AG_FAIL(err, FORMAT, "%s: the id of \"%.60s\" is not an integer", what, name);
    }
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= limit) {
        return AG_FAIL(err, FORMAT, "%s: id %lld of \"%.60s\" is not in 0..%lld", what,
                       (long long)id, name, (long long)limit - 1);
    }
    if (id > *max) *max = id;
    return AG_OK;
}

/* Checks the ids of both lists and returns their count, the length of the spellings and the
 * largest id. */
static ag_status measure_vocab(json_t *vocab, const json_t *added, size_t *n_tokens,
                               size_t *n_bytes, json_int_t *max, ag_error *err) {
    size_t n_added = json_array_size(added), i;
    *n_tokens = json_object_size(vocab) + n_added;
    if (*n_tokens > AG_VOCAB_MAX_IDS / 4) {
        return AG_FAIL(err, FORMAT, "model.vocab has %zu tokens, more than %d", *n_tokens,
                       AG_VOCAB_MAX_IDS / 4);
    }
    json_int_t limit = (json_int_t)(2 * *n_tokens) + SPARE_IDS;
    const char *key;
    json_t *v;
    json_object_foreach(vocab, key, v) {
        AG_TRY(check_id(v, "model.vocab", key, limit, max, err));
        *n_bytes += strlen(key);
    }
    json_array_foreach(added, i, v) {
        char place[AG_JSON_PLACE];
        snprintf(place, sizeof place, "added_tokens[%zu]", i);
        json_t *id, *content;
        AG_TRY(ag_json_expect_object(v, place, err));
        AG_TRY(ag_json_required(v, place, "content", JSON_STRING, &content, err));
        AG_TRY(ag_json_required(v, place, "id", JSON_INTEGER, &id, err));
        AG_TRY(check_id(id, place, json_string_value(content), limit, max, err));
        *n_bytes += json_string_length(content);
    }
    return AG_OK;
}

static ag_status add_model_vocab(ag_vocab *v, json_t *vocab, ag_error *err) {
    const char *key;
    json_t *id;
    json_object_foreach(vocab, key, id) {
        ag_status st =
            ag_vocab_add(v, key, strlen(key), (int32_t)json_integer_value(id), AG_VOCAB_MODEL, err);
        if (st != AG_OK) return ag_error_prefix(err, st, "model.vocab");
    }
    return AG_OK;
}

ag_status ag_vocab_read_json(ag_vocab *v, json_t *vocab, const json_t *added, ag_error *err) {
    size_t n_tokens = 0, n_bytes = 0;
    json_int_t max = -1;
    AG_TRY(measure_vocab(vocab, added, &n_tokens, &n_bytes, &max, err));
    AG_TRY(ag_vocab_init(v, (size_t)(max + 1), n_tokens, n_bytes, err));
    return add_model_vocab(v, vocab, err);
}
