/* SPDX-License-Identifier: Apache-2.0 */
#include "text/unigram.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/json_get.h"
#include "text/utf8.h"

#include <math.h>
#include <string.h>

/* Best segmentation of the text up to this byte. */
typedef struct ag_unigram_node {
    double score;
    uint32_t start; /* start of the last token, whose id is `id`; NONE: no segmentation */
    int32_t id;
    uint32_t next; /* end of the token that starts here, in the best segmentation of the word */
} node;

#define NONE UINT32_MAX

static const double unk_penalty = 10; /* SentencePiece's kUnkPenalty */

static ag_status read_scores(ag_unigram *u, const json_t *model, ag_error *err) {
    json_t *list, *v;
    size_t i;
    double min_score = INFINITY;
    AG_TRY(ag_json_required(model, "model", "vocab", JSON_ARRAY, &list, err));
    u->scores = ag_calloc(json_array_size(list) + 1, sizeof *u->scores);
    if (!u->scores) return AG_FAIL(err, NOMEM, "list of %zu scores", json_array_size(list));
    json_array_foreach(list, i, v) {
        const json_t *score = json_array_get(v, 1);
        if (!json_is_number(score)) {
            return AG_FAIL(err, FORMAT, "model.vocab[%zu] has no score", i);
        }
        u->scores[i] = json_number_value(score);
        if (u->scores[i] < min_score) min_score = u->scores[i];
        size_t n;
        const char *s = ag_vocab_spelling(u->vocab, (int32_t)i, &n);
        AG_TRY(ag_trie_add(&u->trie, s, n, (int32_t)i, err));
    }
    u->unk_score = min_score - unk_penalty;
    return AG_OK;
}

ag_status ag_unigram_read_json(ag_unigram *u, const json_t *model, const ag_vocab *vocab,
                               ag_error *err) {
    json_t *unk;
    *u = (ag_unigram){.vocab = vocab, .unk_id = -1};
    AG_TRY(ag_json_bool(model, "model", "byte_fallback", false, &u->byte_fallback, err));
    AG_TRY(ag_json_optional(model, "model", "unk_id", JSON_INTEGER, &unk, err));
    AG_TRY(read_scores(u, model, err));
    if (unk) {
        json_int_t id = json_integer_value(unk),
                   n = (json_int_t)json_array_size(json_object_get(model, "vocab"));
        if (id < 0 || id >= n) {
            return AG_FAIL(err, FORMAT, "model.unk_id is %lld: the vocabulary has %lld tokens",
                           (long long)id, (long long)n);
        }
        u->unk_id = (int32_t)id;
    }
    ag_vocab_byte_ids(vocab, u->byte_ids);
    return AG_OK;
}

void ag_unigram_free(ag_unigram *u) {
    ag_trie_free(&u->trie);
    ag_free(u->scores);
    *u = (ag_unigram){0};
}

void ag_unigram_scratch_free(ag_unigram_scratch *s) {
    ag_free(s->nodes);
    *s = (ag_unigram_scratch){0};
}

static void offer(node *to, double score, size_t start, int32_t id) {
    if (to->start == NONE || score > to->score) *to = (node){score, (uint32_t)start, id, 0};
}

/* Fills nodes[0..len] with the best segmentation up to each byte. */
static ag_status find_best(const ag_unigram *u, const char *word, size_t len, node *nodes,
                           ag_error *err) {
    for (size_t i = 0; i <= len; i++) nodes[i] = (node){.start = NONE};
    for (size_t i = 0, step, n = 0; i < len; i += step, n++) {
        double score = nodes[i].score;
        if (ag_interrupted_at(n)) return AG_FAIL(err, CANCELLED, "splitting a word: interrupted");
        bool is_token = false; /* the character alone is a token */
        step = ag_utf8_len(word[i]);
        uint32_t at = 0;
        for (size_t end = i; end < len;) {
            at = ag_trie_step(&u->trie, at, (unsigned char)word[end++]);
            if (!at) break;
            int32_t id = u->trie.ids[at];
            if (id < 0) continue;
            offer(&nodes[end], u->scores[id] + score, i, id);
            is_token |= end == i + step;
        }
        if (is_token) continue;
        if (u->unk_id < 0) {
            uint32_t cp;
            ag_utf8_get(word + i, &cp);
            return AG_FAIL(err, FORMAT, "U+%04X is not in the vocabulary, nor is model.unk_id",
                           (unsigned)cp);
        }
        offer(&nodes[i + step], u->unk_score + score, i, u->unk_id);
    }
    return AG_OK;
}

/* Appends the id of a run of unknown characters: a token of that spelling, byte tokens, or
 * unk_id. */
static ag_status push_unknown(const ag_unigram *u, const char *s, size_t n, ag_ids *ids,
                              ag_error *err) {
    int32_t id = ag_vocab_find_model(u->vocab, s, n);
    bool bytes = id < 0 && u->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++) bytes = u->byte_ids[(unsigned char)s[i]] >= 0;
    if (!bytes) return ag_ids_push(ids, id < 0 ? u->unk_id : id, err);
    for (size_t i = 0; i < n; i++) {
        AG_TRY(ag_ids_push(ids, u->byte_ids[(unsigned char)s[i]], err));
    }
    return AG_OK;
}

ag_status ag_unigram_encode(const ag_unigram *u, const char *word, size_t len,
                            ag_unigram_scratch *s, ag_ids *ids, ag_error *err) {
    if (len >= NONE)
        return AG_FAIL(err, LIMIT, "a word has %zu bytes, more than the model supports", len);
    AG_TRY(AG_GROW(s->nodes, &s->nodes_cap, len + 1, err));
    node *nodes = s->nodes;
    AG_TRY(find_best(u, word, len, nodes, err));
    for (size_t end = len; end > 0; end = nodes[end].start) {
        nodes[nodes[end].start].next = (uint32_t)end;
    }
    for (size_t start = 0, end; start < len; start = end) {
        end = nodes[start].next;
        if (nodes[end].id != u->unk_id) {
            AG_TRY(ag_ids_push(ids, nodes[end].id, err));
            continue;
        }
        while (end < len && nodes[nodes[end].next].id == u->unk_id) end = nodes[end].next;
        AG_TRY(push_unknown(u, word + start, end - start, ids, err));
    }
    return AG_OK;
}
