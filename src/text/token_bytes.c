/* SPDX-License-Identifier: Apache-2.0 */
#include "text/token_bytes.h"

#include "core/fail.h"
#include "core/hex.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <string.h>

static bool has_stage(const ag_decode_chain *c, ag_decode_kind kind) {
    for (size_t i = 0; i < c->n; i++) {
        if (c->stages[i].kind == kind) return true;
    }
    return false;
}

ag_status ag_token_bytes_open(ag_token_bytes *b, const ag_tokenizer *t, ag_error *err) {
    *b = (ag_token_bytes){
        .tokenizer = t,
        .byte_level = has_stage(&t->decode_chain, AG_DECODE_BYTE_LEVEL),
        .byte_fallback = has_stage(&t->decode_chain, AG_DECODE_BYTE_FALLBACK),
    };
    return ag_decode_run_init(&b->run, &t->decode_chain, t->vocab.max_len, true, err);
}

void ag_token_bytes_close(ag_token_bytes *b) {
    if (b->tokenizer) ag_decode_run_free(&b->run);
    *b = (ag_token_bytes){0};
}

/* Appends the bytes of a byte-level spelling. Returns false if it has other characters, so
 * represents itself. */
static bool map_byte_level(const char *s, size_t n, ag_text *out, ag_status *st, ag_error *err) {
    const size_t before = out->len;
    *st = AG_OK;
    for (size_t i = 0; i < n && *st == AG_OK;) {
        uint32_t cp;
        i += ag_utf8_get(s + i, &cp);
        const int byte = ag_byte_level_byte(cp);
        if (byte < 0) {
            out->len = before;
            return false;
        }
        const char c = (char)byte;
        *st = ag_text_append(out, &c, 1, err);
    }
    return true;
}

/* Returns the byte of "<0x41>", -1 if it is none. */
static int byte_token(const char *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>') return -1;
    const int high = ag_hex_digit(s[3]), low = ag_hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

ag_status ag_token_bytes_read(ag_token_bytes *b, int32_t id, ag_text *out, ag_error *err) {
    const ag_vocab *v = &b->tokenizer->vocab;
    if (!ag_vocab_has(v, id)) return AG_OK;
    size_t n;
    const char *s = ag_vocab_spelling(v, id, &n);
    const int byte = b->byte_fallback ? byte_token(s, n) : -1;
    if (byte >= 0) {
        const char c = (char)byte;
        return ag_text_append(out, &c, 1, err);
    }
    ag_status st;
    if (b->byte_level && map_byte_level(s, n, out, &st, err)) return st;
    if (b->byte_level) return ag_text_append(out, s, n, err);
    AG_TRY(ag_decode_run_push(&b->run, s, n, out, err));
    return ag_decode_run_end(&b->run, out, err);
}
