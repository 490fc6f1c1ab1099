/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that hold for every tokenizer that loads. */
#ifndef AG_FUZZ_TOKENIZER_CHECK_H
#define AG_FUZZ_TOKENIZER_CHECK_H

#include "fuzz.h"

#include <antigravity/tokenizer.h>

#include <stdlib.h>
#include <string.h>

static const char sample[] =
    "The  <s>old\r\nking's 1234 caf\xC3\xA9 e\xCC\x81\xCC\x96 \xED\x95\x9C"
    "\xE1\x86\xA7\xE1\x86\xA8 \xF0\x9F\x98\x80\xEF\xAC\x81 \xE2\x96\x81x</s> A\0B";

static inline void check_decode(const ag_tokenizer *t, const int32_t *ids, size_t n, bool keep) {
    ag_text whole = {0}, pieces = {0};
    ag_decoder *d;
    ag_status st = ag_tokenizer_decode(t, ids, n, keep, &whole, NULL);
    if (ag_decoder_create(t, keep, false, &d, NULL) != AG_OK) abort();
    ag_status st2 = AG_OK;
    for (size_t i = 0; i < n && st2 == AG_OK; i++) st2 = ag_decoder_push(d, ids[i], &pieces, NULL);
    if (st2 == AG_OK) st2 = ag_decoder_flush(d, &pieces, NULL);
    if (st != st2) abort();
    if (st == AG_OK && (whole.len != pieces.len ||
                        (whole.len && memcmp(whole.data, pieces.data, whole.len) != 0))) {
        abort();
    }
    ag_decoder_destroy(d);
    ag_text_free(&whole);
    ag_text_free(&pieces);
}

static inline void check_tokenizer(const ag_tokenizer *t) {
    int32_t size = ag_tokenizer_vocab_size(t);
    for (unsigned flags = 0; flags < 4; flags++) {
        ag_ids ids = {0};
        if (ag_tokenizer_encode(t, sample, sizeof sample - 1, flags, &ids, NULL) == AG_OK) {
            for (size_t i = 0; i < ids.n; i++) {
                if (!ag_tokenizer_token(t, ids.data[i], NULL)) abort();
            }
            check_decode(t, ids.data, ids.n, flags & 1);
        }
        ag_ids_free(&ids);
    }
    int32_t known[200];
    size_t n = 0, len;
    for (int32_t id = 0; id < size && n < 200; id++) {
        const char *s = ag_tokenizer_token(t, id, &len);
        if (!s) continue;
        if (len && ag_tokenizer_id(t, s, len) != id) abort(); /* several tokens may be empty */
        known[n++] = id;
    }
    check_decode(t, known, n, true);
}

#endif
