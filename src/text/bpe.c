/* SPDX-License-Identifier: Apache-2.0 */
#include "text/bpe.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/utf8.h"

#include <string.h>

static int32_t char_id(const ag_bpe *bpe, uint32_t cp, const char *s, size_t n) {
    if (cp < AG_BPE_SMALL_CHARS) return bpe->char_ids[cp];
    return ag_vocab_find_model(bpe->vocab, s, n);
}

/* Appends the byte tokens of an unknown character. Returns false if one of them is missing. */
static bool push_bytes(const ag_bpe *bpe, const char *s, size_t len, int32_t *symbols, size_t *n) {
    for (size_t i = 0; i < len; i++) {
        if (bpe->byte_ids[(unsigned char)s[i]] < 0) return false;
    }
    for (size_t i = 0; i < len; i++) symbols[(*n)++] = bpe->byte_ids[(unsigned char)s[i]];
    return true;
}

/* Writes the initial symbols of a word, at most one per byte. */
static ag_status split_chars(const ag_bpe *bpe, const char *word, size_t len, int32_t *symbols,
                             size_t *n, ag_error *err) {
    /* An unknown token is written only when a known character follows, after bytes written by byte
     * fallback. The tokenizers library does so, and ids depend on it. */
    bool unk_pending = false;
    *n = 0;
    for (size_t i = 0, n_chars = 0, step; i < len; i += step) {
        uint32_t cp;
        if (ag_interrupted_at(n_chars++))
            return AG_FAIL(err, CANCELLED, "splitting a word: interrupted");
        step = ag_utf8_get(word + i, &cp);
        int32_t id = char_id(bpe, cp, word + i, step);
        if (id >= 0) {
            if (unk_pending) symbols[(*n)++] = bpe->unk_id;
            unk_pending = false;
            symbols[(*n)++] = id;
            continue;
        }
        if (bpe->byte_fallback && push_bytes(bpe, word + i, step, symbols, n)) continue;
        if (bpe->unk_id == -1) continue;
        if (bpe->unk_id < 0) {
            return AG_FAIL(err, FORMAT, "U+%04X is not in the vocabulary, nor is model.unk_token",
                           (unsigned)cp);
        }
        if (unk_pending && !bpe->fuse_unk) symbols[(*n)++] = bpe->unk_id;
        unk_pending = true;
    }
    if (unk_pending) symbols[(*n)++] = bpe->unk_id;
    return AG_OK;
}

size_t ag_bpe_merge_short(const ag_bpe *bpe, int32_t *symbols, size_t n) {
    ag_joined joined[AG_BPE_SHORT]; /* symbols i and i + 1 */
    for (size_t i = 0; i + 1 < n; i++) joined[i] = ag_bpe_join(bpe, symbols[i], symbols[i + 1]);
    while (n > 1) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (joined[i].rank < rank) {
                rank = joined[i].rank;
                best = i;
            }
        }
        if (best == n) break;
        symbols[best] = joined[best].id;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            symbols[i] = symbols[i + 1];
            joined[i - 1] = joined[i];
        }
        if (best > 0) joined[best - 1] = ag_bpe_join(bpe, symbols[best - 1], symbols[best]);
        if (best + 1 < n) joined[best] = ag_bpe_join(bpe, symbols[best], symbols[best + 1]);
    }
    return n;
}

/* Merges a long word in parts, split where no merge can ever join two characters. */
static ag_status merge_parts(const ag_bpe *bpe, ag_bpe_scratch *s, size_t n, ag_ids *ids,
                             ag_error *err) {
    for (size_t start = 0, end, step = 0; start < n; start = end, step++) {
        if (ag_interrupted_at(step)) return AG_FAIL(err, CANCELLED, "merging a word: interrupted");
        for (end = start + 1; end < n; end++) {
            if (!ag_bpe_may_join(bpe, s->symbols[end - 1], s->symbols[end])) break;
        }
        int32_t *part = s->symbols + start;
        size_t n_parts = end - start;
        if (n_parts <= AG_BPE_SHORT) n_parts = ag_bpe_merge_short(bpe, part, n_parts);
        else AG_TRY(ag_bpe_merge_long(bpe, s, part, &n_parts, err));
        AG_TRY(ag_ids_reserve(ids, n_parts, err));
        memcpy(ids->data + ids->n, part, n_parts * sizeof *part);
        ids->n += n_parts;
    }
    return AG_OK;
}

ag_status ag_bpe_encode(const ag_bpe *bpe, const char *word, size_t len, ag_bpe_scratch *s,
                        ag_ids *ids, ag_error *err) {
    if (bpe->ignore_merges) {
        int32_t id = ag_vocab_find_model(bpe->vocab, word, len);
        if (id >= 0) return ag_ids_push(ids, id, err);
    }
    AG_TRY(AG_GROW(s->symbols, &s->symbols_cap, len, err));
    size_t n;
    AG_TRY(split_chars(bpe, word, len, s->symbols, &n, err));
    if (n > AG_BPE_SHORT) return merge_parts(bpe, s, n, ids, err);
    n = ag_bpe_merge_short(bpe, s->symbols, n);
    AG_TRY(ag_ids_reserve(ids, n, err));
    for (size_t i = 0; i < n; i++) ids->data[ids->n++] = s->symbols[i];
    return AG_OK;
}

void ag_bpe_scratch_free(ag_bpe_scratch *s) {
    ag_free(s->symbols);
    ag_free(s->links);
    ag_free(s->queue);
    *s = (ag_bpe_scratch){0};
}
