/* SPDX-License-Identifier: Apache-2.0 */
/* From the JSON object "model" to a BPE model. */
#include "core/fail.h"
#include "text/bpe.h"
#include "text/json_get.h"

#include <string.h>

/* The two halves of one merge, written as "a b" or as ["a", "b"]; borrowed from v. */
static ag_status merge_halves(const json_t *v, size_t rank, const char *half[2], size_t len[2],
                              ag_error *err) {
    if (json_is_array(v) && json_array_size(v) == 2 && json_is_string(json_array_get(v, 0)) &&
        json_is_string(json_array_get(v, 1))) {
        for (size_t i = 0; i < 2; i++) {
            half[i] = json_string_value(json_array_get(v, i));
            len[i] = json_string_length(json_array_get(v, i));
        }
        return AG_OK;
    }
    if (!json_is_string(v)) {
        return AG_FAIL(err, FORMAT, "model.merges[%zu] is neither \"a b\" nor [\"a\", \"b\"]",
                       rank);
    }
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    const char *space = memchr(s, ' ', n);
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - s))) {
        return AG_FAIL(err, FORMAT, "model.merges[%zu]: \"%.60s\" does not hold one space", rank,
                       s);
    }
    half[0] = s;
    len[0] = (size_t)(space - s);
    half[1] = space + 1;
    len[1] = n - len[0] - 1;
    return AG_OK;
}

/* A merges.txt begins with such a line, and it has been kept in some files. */
static bool is_version_line(const json_t *v) {
    return json_is_string(v) && strncmp(json_string_value(v), "#version", 8) == 0;
}

static ag_status read_merges(ag_bpe *bpe, const json_t *model, ag_error *err) {
    json_t *list, *v;
    size_t i, len[2];
    AG_TRY(ag_json_required(model, "model", "merges", JSON_ARRAY, &list, err));
    ag_status st = ag_bpe_reserve_merges(bpe, json_array_size(list), err);
    if (st != AG_OK) return ag_error_prefix(err, st, "model.merges");
    uint32_t rank = 0;
    json_array_foreach(list, i, v) {
        const char *half[2];
        if (is_version_line(v)) continue;
        AG_TRY(merge_halves(v, i, half, len, err));
        st = ag_bpe_add_merge(bpe, rank++, half[0], len[0], half[1], len[1], err);
        if (st != AG_OK) return ag_error_prefix(err, st, "model.merges[%zu]", i);
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
