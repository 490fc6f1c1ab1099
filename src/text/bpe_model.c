/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of ag_bpe. */
#include "text/bpe.h"

#include "core/alloc.h"
#include "core/fail.h"
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

static ag_joined join_scored(const ag_bpe *bpe, int32_t left, int32_t right) {
    static const ag_joined none = {UINT32_MAX, -1};
    char joined[AG_BPE_MAX_SCORED];
    size_t n_left, n_right;
    const char *l = ag_vocab_spelling(bpe->vocab, left, &n_left);
    const char *r = ag_vocab_spelling(bpe->vocab, right, &n_right);
    if (n_left > sizeof joined || n_right > sizeof joined - n_left) return none;
    memcpy(joined, l, n_left);
    memcpy(joined + n_left, r, n_right);
    int32_t id = ag_vocab_find_model(bpe->vocab, joined, n_left + n_right);
    return id < 0 ? none : (ag_joined){bpe->ranks[id], id};
}

ag_joined ag_bpe_join(const ag_bpe *bpe, int32_t left, int32_t right) {
    if (bpe->ranks) return join_scored(bpe, left, right);
    const ag_merge *m = merge_slot(bpe, left, right);
    return m->left < 0 ? (ag_joined){UINT32_MAX, -1} : (ag_joined){m->rank, m->id};
}

/* Returns the bit of two adjacent characters. */
static size_t char_bit(uint32_t a, uint32_t b) {
    return (a * 0x9E3779B1u + b * 0x85EBCA77u) >> 12 & (JUNCTION_BITS - 1);
}

static void set_junction(ag_bpe *bpe, size_t bit) {
    bpe->junctions[bit / 64] |= UINT64_C(1) << (bit % 64);
}

/* Returns the bit of the last character of l and the first of r, -1 if one of them is empty. */
static long junction_bit(const char *l, size_t n_left, const char *r, size_t n_right) {
    if (!n_left || !n_right) return -1;
    uint32_t a, b;
    ag_utf8_get(l + ag_utf8_last(l, n_left), &a);
    ag_utf8_get(r, &b);
    return (long)char_bit(a, b);
}

bool ag_bpe_may_join(const ag_bpe *bpe, int32_t left, int32_t right) {
    size_t n_left, n_right;
    const char *l = ag_vocab_spelling(bpe->vocab, left, &n_left);
    const char *r = ag_vocab_spelling(bpe->vocab, right, &n_right);
    long bit = junction_bit(l, n_left, r, n_right);
    return bit < 0 || (bpe->junctions[bit / 64] >> (bit % 64) & 1);
}

/* Builds queries for both halves of each pair and for the joined spelling, which is stored in
 * `joined`. */
static ag_status build_queries(const ag_bpe_pair *pairs, size_t n, ag_text *joined,
                               ag_vocab_query *q, ag_error *err) {
    joined->len = 0;
    for (size_t i = 0; i < n; i++) {
        AG_TRY(ag_text_append(joined, pairs[i].left, pairs[i].n_left, err));
        AG_TRY(ag_text_append(joined, pairs[i].right, pairs[i].n_right, err));
    }
    const char *s = joined->data;
    for (size_t i = 0; i < n; i++) {
        const ag_bpe_pair *p = &pairs[i];
        q[3 * i] = (ag_vocab_query){.s = p->left, .n = p->n_left};
        q[3 * i + 1] = (ag_vocab_query){.s = p->right, .n = p->n_right};
        q[3 * i + 2] = (ag_vocab_query){.s = s, .n = p->n_left + p->n_right};
        s += p->n_left + p->n_right;
    }
    return AG_OK;
}

ag_status ag_bpe_add_merges(ag_bpe *bpe, uint32_t rank, const ag_bpe_pair *pairs, size_t n,
                            size_t *bad, ag_error *err) {
    ag_vocab_query q[3 * AG_BPE_BLOCK];
    *bad = 0;
    AG_TRY(build_queries(pairs, n, &bpe->joined, q, err));
    ag_vocab_find_models(bpe->vocab, q, 3 * n);
    for (size_t i = 0; i < 3 * n; i++) {
        if (q[i].id >= 0) continue;
        *bad = i / 3;
        return AG_FAIL(err, FORMAT, "token \"%.*s\" is not in the vocabulary",
                       q[i].n > 60 ? 60 : (int)q[i].n, q[i].s);
    }
    size_t mask = bpe->n_merge_slots - 1;
    for (size_t i = 0; i < n; i++) {
        __builtin_prefetch(&bpe->merges[merge_hash(q[3 * i].id, q[3 * i + 1].id) & mask], 1);
    }
    for (size_t i = 0; i < n; i++) {
        int32_t left = q[3 * i].id, right = q[3 * i + 1].id;
        *merge_slot(bpe, left, right) =
            (ag_merge){left, right, rank + (uint32_t)i, q[3 * i + 2].id};
        long bit = junction_bit(q[3 * i].s, q[3 * i].n, q[3 * i + 1].s, q[3 * i + 1].n);
        if (bit >= 0) set_junction(bpe, (size_t)bit);
    }
    return AG_OK;
}

ag_status ag_bpe_reserve_merges(ag_bpe *bpe, size_t n, ag_error *err) {
    if (n > MAX_MERGES)
        return AG_FAIL(err, FORMAT, "the model has %zu merges, at most %d are supported", n,
                       MAX_MERGES);
    size_t n_slots = 16;
    while (n_slots / 3 * 2 < n) n_slots *= 2;
    ag_free(bpe->merges);
    bpe->merges = ag_malloc(n_slots * sizeof *bpe->merges);
    if (!bpe->merges) return AG_FAIL(err, NOMEM, "table of %zu merges", n);
    bpe->n_merge_slots = n_slots;
    for (size_t i = 0; i < n_slots; i++) bpe->merges[i].left = -1;
    return AG_OK;
}

/* Maps floats to unsigned ranks, the highest score to the lowest rank. */
static uint32_t rank_of(float score) {
    uint32_t bits;
    score += 0.0f; /* gives -0 the rank of 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static void mark_junctions(ag_bpe *bpe, const char *s, size_t n) {
    uint32_t before, cp;
    for (size_t i = n ? ag_utf8_get(s, &before) : 0; i < n; before = cp) {
        i += ag_utf8_get(s + i, &cp);
        set_junction(bpe, char_bit(before, cp));
    }
}

ag_status ag_bpe_set_scores(ag_bpe *bpe, const float *scores, ag_error *err) {
    int32_t n = bpe->vocab->n_ids;
    bpe->ranks = ag_malloc((size_t)n * sizeof *bpe->ranks);
    if (!bpe->ranks) return AG_FAIL(err, NOMEM, "scores of %d tokens", (int)n);
    for (int32_t id = 0; id < n; id++) {
        bpe->ranks[id] = UINT32_MAX;
        if (!(bpe->vocab->entries[id].flags & AG_VOCAB_MODEL)) continue;
        size_t len;
        const char *s = ag_vocab_spelling(bpe->vocab, id, &len);
        if (len > AG_BPE_MAX_SCORED) {
            return AG_FAIL(err, FORMAT, "token %d has %zu bytes, at most %d are supported", (int)id,
                           len, AG_BPE_MAX_SCORED);
        }
        if (scores[id] != scores[id]) {
            return AG_FAIL(err, FORMAT, "the score of token %d is not a number", (int)id);
        }
        bpe->ranks[id] = rank_of(scores[id]);
        mark_junctions(bpe, s, len);
    }
    return AG_OK;
}

static void fill_small_tables(ag_bpe *bpe) {
    for (uint32_t cp = 0; cp < AG_BPE_SMALL_CHARS; cp++) {
        char utf8[4];
        bpe->char_ids[cp] = ag_vocab_find_model(bpe->vocab, utf8, ag_utf8_put(utf8, cp));
    }
    ag_vocab_byte_ids(bpe->vocab, bpe->byte_ids);
}

ag_status ag_bpe_init(ag_bpe *bpe, const ag_vocab *vocab, ag_error *err) {
    memset(bpe, 0, sizeof *bpe);
    bpe->vocab = vocab;
    bpe->unk_id = -1;
    fill_small_tables(bpe);
    bpe->junctions = ag_calloc(JUNCTION_BITS / 64, sizeof *bpe->junctions);
    if (!bpe->junctions) return AG_FAIL(err, NOMEM, "table of %d bits", JUNCTION_BITS);
    return ag_bpe_reserve_merges(bpe, 0, err);
}

void ag_bpe_free(ag_bpe *bpe) {
    ag_free(bpe->merges);
    ag_free(bpe->ranks);
    ag_free(bpe->junctions);
    ag_text_free(&bpe->joined);
    memset(bpe, 0, sizeof *bpe);
}
