/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes text to ids: finds added tokens, normalises, pre-tokenizes and encodes the text between
 * them. */
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

typedef struct encoding {
    const ag_tokenizer *t;
    bool parse_special;
    bool at_start; /* the current part starts at the start of the input */
    ag_text normalized, scratch;
    ag_pieces pieces;
    ag_bpe_scratch bpe;
    ag_unigram_scratch unigram;
    ag_ids *ids;
    ag_error *err;
} encoding;

/* Encodes a part of the text. Parts are split at added tokens twice: before and after
 * normalising. */
typedef ag_status part_fn(encoding *e, const char *text, size_t len);

static ag_status fail_if(bool interrupted, ag_error *err) {
    return interrupted ? AG_FAIL(err, CANCELLED, "tokenizing the text: interrupted") : AG_OK;
}

static ag_status each_part(encoding *e, const ag_added_set *set, const char *text, size_t len,
                           part_fn *part) {
    ag_added_scan scan = {set, text, len, e->parse_special, 0, 0};
    bool at_start = e->at_start;
    for (size_t n = 0;; n++) {
        AG_TRY(fail_if(ag_interrupted_at(n), e->err));
        size_t done = scan.done, start;
        int32_t id;
        AG_TRY(ag_added_next(&scan, &start, &id, e->err));
        if (id < 0) start = len;
        if (done < start) {
            e->at_start = at_start && done == 0;
            AG_TRY(part(e, text + done, start - done));
        }
        if (id < 0) return AG_OK;
        AG_TRY(ag_ids_push(e->ids, id, e->err));
    }
}

static ag_status encode_piece(encoding *e, const char *text, size_t len) {
    const ag_tokenizer *t = e->t;
    if (t->unigram.vocab) {
        return ag_unigram_encode(&t->unigram, text, len, &e->unigram, e->ids, e->err);
    }
    return ag_bpe_encode(&t->bpe, text, len, &e->bpe, e->ids, e->err);
}

static ag_status encode_plain(encoding *e, const char *text, size_t len) {
    AG_TRY(fail_if(ag_interrupted(), e->err));
    AG_TRY(ag_pretokenize(&e->t->pretokenizer, text, len, e->at_start, &e->pieces, e->err));
    for (size_t i = 0; i < e->pieces.list.n; i++) {
        ag_piece piece = e->pieces.list.data[i];
        AG_TRY(fail_if(ag_interrupted_at(i), e->err));
        AG_TRY(encode_piece(e, e->pieces.text + piece.start, piece.len));
    }
    return AG_OK;
}

static ag_status encode_raw(encoding *e, const char *text, size_t len) {
    if (e->t->normalizer.n) {
        bool lost_start = false;
        AG_TRY(ag_normalizer_apply(&e->t->normalizer, text, len, &e->normalized, &e->scratch,
                                   &lost_start, e->err));
        if (lost_start) e->at_start = false;
        text = e->normalized.data;
        len = e->normalized.len;
    }
    return each_part(e, &e->t->added.normalized, text, len, encode_plain);
}

static ag_status append_ids(ag_ids *ids, const ag_ids *more, ag_error *err) {
    AG_TRY(ag_ids_reserve(ids, more->n, err));
    for (size_t i = 0; i < more->n; i++) ids->data[ids->n++] = more->data[i];
    return AG_OK;
}

static ag_status encode_all(encoding *e, const char *text, size_t len, unsigned flags) {
    const ag_postprocessor *pp = &e->t->postprocessor;
    if (flags & AG_ENCODE_BOS) AG_TRY(append_ids(e->ids, &pp->prefix, e->err));
    AG_TRY(each_part(e, &e->t->added.raw, text, len, encode_raw));
    if (flags & AG_ENCODE_BOS) AG_TRY(append_ids(e->ids, &pp->suffix, e->err));
    return AG_OK;
}

static void free_encoding(encoding *e) {
    ag_text_free(&e->normalized);
    ag_text_free(&e->scratch);
    ag_pieces_free(&e->pieces);
    ag_bpe_scratch_free(&e->bpe);
    ag_unigram_scratch_free(&e->unigram);
}

static ag_status check_utf8(const char *text, size_t len, ag_error *err) {
    enum { BYTES_AT_ONCE = 1 << 20 }; /* between two interrupt checks */
    size_t valid = 0;
    while (valid < len) {
        const size_t left = len - valid, n = left < BYTES_AT_ONCE ? left : BYTES_AT_ONCE;
        /* A character that crosses the end of these bytes is the first of the next ones. */
        const size_t step = ag_utf8_valid_prefix(text + valid, n);
        AG_TRY(fail_if(ag_interrupted(), err));
        valid += step;
        if (step == 0)
            return AG_FAIL(err, FORMAT, "text is not UTF-8: byte 0x%02x at offset %zu of %zu",
                           (unsigned char)text[valid], valid, len);
    }
    return AG_OK;
}

static ag_status encode_between(encoding *e, const char *text, size_t len,
                                const ag_id_range *ranges, size_t n) {
    size_t done = 0;
    for (size_t i = 0; i <= n; i++) {
        const size_t end = i < n ? ranges[i].begin : len;
        e->at_start = done == 0;
        if (done < end) AG_TRY(each_part(e, &e->t->added.raw, text + done, end - done, encode_raw));
        if (i == n) break;
        AG_TRY(append_ids(e->ids, &(ag_ids){.data = ranges[i].ids, .n = ranges[i].n_ids}, e->err));
        done = ranges[i].end;
    }
    return AG_OK;
}

ag_status ag_tokenizer_encode_ranges(const ag_tokenizer *t, const char *text, size_t len,
                                     const ag_id_range *ranges, size_t n, ag_ids *ids,
                                     ag_error *err) {
    AG_TRY(check_utf8(text, len, err));
    encoding e = {.t = t, .ids = ids, .err = err};
    const size_t before = ids->n;
    const ag_status st = encode_between(&e, text, len, ranges, n);
    if (st != AG_OK) ids->n = before;
    free_encoding(&e);
    return st;
}

ag_status ag_tokenizer_encode(const ag_tokenizer *t, const char *text, size_t len, unsigned flags,
                              ag_ids *ids, ag_error *err) {
    AG_TRY(check_utf8(text, len, err));
    encoding e = {.t = t,
                  .parse_special = flags & AG_ENCODE_PARSE_SPECIAL,
                  .at_start = true,
                  .ids = ids,
                  .err = err};
    size_t before = ids->n;
    ag_status st = encode_all(&e, text, len, flags);
    if (st != AG_OK) ids->n = before;
    free_encoding(&e);
    return st;
}
