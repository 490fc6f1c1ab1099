/* SPDX-License-Identifier: Apache-2.0 */
/* From the JSON object "model" to the tables of ag_bpe. */
#include "text/bpe.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/json_get.h"
#include "text/utf8.h"

#include <string.h>

enum { JUNCTION_BITS = 1 << 20, MAX_MERGES = 1 << 26 };

static size_t merge_hash(int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(h ^ h >> 32);
}

static ag_merge *merge_slot(const ag_bpe *bpe, int32_t left, int32_t right) {
    size_t mask = bpe->n_merge_slots - 1, i = merge_hash(left, right) & mask;
    for (;; i = (i + 1) & mask) {
        ag_merge *m = &bpe->merges[i];
        if (m->left < 0 || (m->left == left && m->right == right)) return m;
    }
}

const ag_merge *ag_bpe_find_merge(const ag_bpe *bpe, int32_t left, int32_t right) {
    const ag_merge *m = merge_slot(bpe, left, right);
    return m->left < 0 ? NULL : m;
}

/* The bit of the characters that meet where `left` ends and `right` begins; -1 if one is empty. */
static long junction_bit(const ag_bpe *bpe, int32_t left, int32_t right) {
    size_t n_left, n_right;
    const char *l = ag_vocab_spelling(bpe->vocab, left, &n_left);
    const char *r = ag_vocab_spelling(bpe->vocab, right, &n_right);
    if (!n_left || !n_right) return -1;
    uint32_t a, b;
    ag_utf8_get(l + ag_utf8_last(l, n_left), &a);
    ag_utf8_get(r, &b);
    return (long)((a * 0x9E3779B1u + b * 0x85EBCA77u) >> 12 & (JUNCTION_BITS - 1));
}

bool ag_bpe_may_join(const ag_bpe *bpe, int32_t left, int32_t right) {
    long bit = junction_bit(bpe, left, right);
    return bit < 0 || (bpe->junctions[bit / 64] >> (bit % 64) & 1);
}

static ag_status find_half(const ag_bpe *bpe, const char *s, size_t n, size_t rank, int32_t *id,
                           ag_error *err) {
    *id = ag_vocab_find_model(bpe->vocab, s, n);
    if (*id >= 0) return AG_OK;
    return AG_FAIL(err, FORMAT, "model.merges[%zu]: token \"%.*s\" is not in the vocabulary", rank,
                   n > 60 ? 60 : (int)n, s);
}

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

static ag_status add_merge(ag_bpe *bpe, const json_t *v, size_t place, uint32_t rank,
                           ag_text *joined, ag_error *err) {
    const char *half[2];
    size_t len[2];
    int32_t left, right, id;
    AG_TRY(merge_halves(v, place, half, len, err));
    AG_TRY(find_half(bpe, half[0], len[0], place, &left, err));
    AG_TRY(find_half(bpe, half[1], len[1], place, &right, err));
    joined->len = 0;
    AG_TRY(ag_text_append(joined, half[0], len[0], err));
    AG_TRY(ag_text_append(joined, half[1], len[1], err));
    AG_TRY(find_half(bpe, joined->data, joined->len, place, &id, err));
    /* The last of two equal merges counts, as in the tokenizers library. */
    *merge_slot(bpe, left, right) = (ag_merge){left, right, rank, id};
    long bit = junction_bit(bpe, left, right);
    if (bit >= 0) bpe->junctions[bit / 64] |= UINT64_C(1) << (bit % 64);
    return AG_OK;
}

/* A merges.txt begins with such a line, and it has been kept in some files. */
static bool is_version_line(const json_t *v) {
    return json_is_string(v) && strncmp(json_string_value(v), "#version", 8) == 0;
}

static ag_status read_merges(ag_bpe *bpe, const json_t *model, ag_error *err) {
    json_t *list, *v;
    AG_TRY(ag_json_required(model, "model", "merges", JSON_ARRAY, &list, err));
    size_t n = json_array_size(list), i;
    if (n > MAX_MERGES) {
        return AG_FAIL(err, FORMAT, "model.merges has %zu entries, more than %d", n, MAX_MERGES);
    }
    for (bpe->n_merge_slots = 16; bpe->n_merge_slots / 3 * 2 < n;) bpe->n_merge_slots *= 2;
    bpe->merges = ag_malloc(bpe->n_merge_slots * sizeof *bpe->merges);
    bpe->junctions = ag_calloc(JUNCTION_BITS / 64, sizeof *bpe->junctions);
    if (!bpe->merges || !bpe->junctions) return AG_FAIL(err, NOMEM, "a table of %zu merges", n);
    for (i = 0; i < bpe->n_merge_slots; i++) bpe->merges[i].left = -1;
    ag_text joined = {0};
    ag_status st = AG_OK;
    uint32_t rank = 0;
    json_array_foreach(list, i, v) {
        if (is_version_line(v)) continue;
        st = add_merge(bpe, v, i, rank++, &joined, err);
        if (st != AG_OK) break;
    }
    ag_text_free(&joined);
    return st;
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
    bpe->unk_id = -1;
    if (v) {
        bpe->unk_id = ag_vocab_find_model(bpe->vocab, json_string_value(v), json_string_length(v));
        if (bpe->unk_id < 0) bpe->unk_id = -2;
    }
    return AG_OK;
}

static void fill_small_tables(ag_bpe *bpe) {
    for (uint32_t cp = 0; cp < AG_BPE_SMALL_CHARS; cp++) {
        char utf8[4];
        bpe->char_ids[cp] = ag_vocab_find_model(bpe->vocab, utf8, ag_utf8_put(utf8, cp));
    }
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        bpe->byte_ids[b] = ag_vocab_find_model(bpe->vocab, name, 6);
    }
}

ag_status ag_bpe_init(ag_bpe *bpe, const json_t *model, const ag_vocab *vocab, ag_error *err) {
    memset(bpe, 0, sizeof *bpe);
    bpe->vocab = vocab;
    AG_TRY(read_options(bpe, model, err));
    fill_small_tables(bpe);
    return read_merges(bpe, model, err);
}

void ag_bpe_free(ag_bpe *bpe) {
    ag_free(bpe->merges);
    ag_free(bpe->junctions);
    memset(bpe, 0, sizeof *bpe);
}
