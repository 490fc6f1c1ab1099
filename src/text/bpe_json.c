/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a BPE model from the JSON object "model". */
#include "core/fail.h"
#include "text/bpe.h"
#include "text/json_get.h"

#include <string.h>

/* Splits a merge, written as "a b" or ["a", "b"]. The halves are borrowed from v. */
static ag_status merge_halves(const json_t *v, size_t rank, ag_bpe_pair *out, ag_error *err) {
    const json_t *left = json_array_get(v, 0), *right = json_array_get(v, 1);
    if (json_array_size(v) == 2 && json_is_string(left) && json_is_string(right)) {
        *out = (ag_bpe_pair){json_string_value(left), json_string_value(right),
                             json_string_length(left), json_string_length(right)};
        return AG_OK;
    }
    if (!json_is_string(v)) {
        return AG_FAIL(err, FORMAT, "model.merges[%zu] must be \"a b\" or [\"a\", \"b\"]", rank);
    }
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    const char *space = memchr(s, ' ', n);
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - s))) {
        return AG_FAIL(err, FORMAT, "model.merges[%zu]: \"%.60s\" must contain one space", rank, s);
    }
    *out = (ag_bpe_pair){s, space + 1, (size_t)(space - s), n - (size_t)(space - s) - 1};
    return AG_OK;
}

/* Returns whether v is the first line of a merges.txt, which some files contain. */
static bool is_version_line(const json_t *v) {
    return json_is_string(v) && strncmp(json_string_value(v), "#version", 8) == 0;
}

static ag_status read_merges(ag_bpe *bpe, const json_t *model, ag_error *err) {
    json_t *list;
    AG_TRY(ag_json_required(model, "model", "merges", JSON_ARRAY, &list, err));
    size_t n = json_array_size(list);
    ag_status st = ag_bpe_reserve_merges(bpe, n, err);
    if (st != AG_OK) return ag_error_prefix(err, st, "model.merges");
    for (size_t i = 0, rank = 0, bad; i < n;) {
        ag_bpe_pair pairs[AG_BPE_BLOCK];
        size_t places[AG_BPE_BLOCK], n_pairs = 0;
        for (; i < n && n_pairs < AG_BPE_BLOCK; i++) {
            const json_t *v = json_array_get(list, i);
            if (is_version_line(v)) continue;
            places[n_pairs] = i;
            AG_TRY(merge_halves(v, i, &pairs[n_pairs++], err));
        }
        st = ag_bpe_add_merges(bpe, (uint32_t)rank, pairs, n_pairs, &bad, err);
        if (st != AG_OK) return ag_error_prefix(err, st, "model.merges[%zu]", places[bad]);
        rank += n_pairs;
    }
    return AG_OK;
}

static ag_status read_options(ag_bpe *bpe, const json_t *model, ag_error *err) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    json_t *v;
    for (size_t i = 0; i < 2; i++) {
        AG_TRY(ag_json_optional(model, "model", affixes[i], JSON_STRING, &v, err));
        if (v && json_string_length(v)) {
            return AG_FAIL(err, UNSUPPORTED, "model.%s: \"%.60s\" is not supported", affixes[i],
                           json_string_value(v));
        }
    }
    v = json_object_get(model, "dropout");
    if (v && !json_is_null(v) && !(json_is_number(v) && json_number_value(v) == 0)) {
        return AG_FAIL(err, UNSUPPORTED, "model.dropout other than 0 is not supported");
    }
    AG_TRY(ag_json_bool(model, "model", "byte_fallback", false, &bpe->byte_fallback, err));
    AG_TRY(ag_json_bool(model, "model", "fuse_unk", false, &bpe->fuse_unk, err));
    AG_TRY(ag_json_bool(model, "model", "ignore_merges", false, &bpe->ignore_merges, err));
    AG_TRY(ag_json_optional(model, "model", "unk_token", JSON_STRING, &v, err));
    if (v) {
        bpe->unk_id = ag_vocab_find_model(bpe->vocab, json_string_value(v), json_string_length(v));
        if (bpe->unk_id < 0) bpe->unk_id = -2;
    }
    return AG_OK;
}

ag_status ag_bpe_read_json(ag_bpe *bpe, const json_t *model, const ag_vocab *vocab, ag_error *err) {
    AG_TRY(ag_bpe_init(bpe, vocab, err));
    AG_TRY(read_options(bpe, model, err));
    return read_merges(bpe, model, err);
}
