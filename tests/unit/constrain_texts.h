/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that match texts against constraints, with the bundled model's vocabulary. */
#ifndef AG_TESTS_CONSTRAIN_TEXTS_H
#define AG_TESTS_CONSTRAIN_TEXTS_H

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEMO_EOS = 4091 };

static ag_tokenizer *texts_tokenizer;
static ag_constraint_vocab *texts_vocab;

static inline int texts_setup(void **state) {
    (void)state;
    const int32_t eos = DEMO_EOS;
    ag_error err;
    if (ag_tokenizer_load(AG_SOURCE_DIR "/models/demo", &texts_tokenizer, &err) != AG_OK ||
        ag_constraint_vocab_create(texts_tokenizer, 4096, &eos, 1, &texts_vocab, &err) != AG_OK) {
        print_error("%s\n", err.msg);
        return -1;
    }
    return 0;
}

static inline int texts_teardown(void **state) {
    (void)state;
    ag_constraint_vocab_destroy(texts_vocab);
    ag_tokenizer_destroy(texts_tokenizer);
    return 0;
}

static inline ag_constraint *texts_create(const ag_constraint_params *params) {
    ag_constraint *c;
    ag_error err;
    if (ag_constraint_create(texts_vocab, params, &c, &err) != AG_OK) {
        fail_msg("%.*s: %s", (int)(params->len < 300 ? params->len : 300),
                 params->text ? params->text : "", err.msg);
    }
    return c;
}

static inline ag_constraint_params texts_params(ag_constraint_kind kind, const char *text) {
    ag_constraint_params p = ag_constraint_defaults(kind);
    p.text = text;
    p.len = text ? strlen(text) : 0;
    return p;
}

/* Returns the token that spells one byte. */
static inline int32_t texts_byte_id(unsigned char byte) {
    static int32_t ids[256];
    if (!ids['a']) {
        const char *printable = "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
                                "abcdefghijklmnopqrstuvwxyz{|}~";
        for (const char *p = printable; *p; p++) {
            ids[(unsigned char)*p] = ag_tokenizer_id(texts_tokenizer, p, 1);
        }
        unsigned next = 0x100;
        for (unsigned b = 0; b < 256; b++) {
            if (b > 0x20 && b < 0x7F) continue;
            const bool itself = b > 0xA0 && b != 0xAD;
            const unsigned cp = itself ? b : next++;
            const char s[2] = {(char)(0xC0 | cp >> 6), (char)(0x80 | (cp & 0x3F))};
            ids[b] = ag_tokenizer_id(texts_tokenizer, s, 2);
        }
    }
    return ids[byte];
}

static inline bool texts_allows(ag_constraint *c, int32_t id) {
    const uint32_t *mask;
    ag_error err;
    if (ag_constraint_mask(c, &mask, &err) != AG_OK) return false;
    return mask[id / 32] >> (id % 32) & 1;
}

/* Returns whether the constraint accepts the text, byte by byte. Checks each mask against
 * accept. */
static inline bool texts_accepts(ag_constraint *c, const char *text, size_t n) {
    ag_error err;
    assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
    for (size_t i = 0; i < n; i++) {
        const int32_t id = texts_byte_id((unsigned char)text[i]);
        assert_true(id >= 0);
        const bool allowed = texts_allows(c, id);
        assert_int_equal(ag_constraint_accept(c, id, &err) == AG_OK, allowed);
        if (!allowed) return false;
    }
    assert_int_equal(texts_allows(c, DEMO_EOS), ag_constraint_may_end(c));
    return ag_constraint_may_end(c);
}

static inline void texts_expect(ag_constraint *c, const char *text, bool obeys) {
    if (texts_accepts(c, text, strlen(text)) != obeys) {
        fail_msg("%s should %sobey", text, obeys ? "" : "not ");
    }
}

/* Checks every bit of the mask against a clone that accepts the token. */
static inline void texts_check_mask(ag_constraint *c) {
    ag_error err;
    const uint32_t *mask;
    if (ag_constraint_mask(c, &mask, &err) != AG_OK) fail_msg("%s", err.msg);
    for (int32_t id = 0; id < 4096; id++) {
        ag_constraint *copy;
        assert_int_equal(ag_constraint_clone(c, &copy, &err), AG_OK);
        const bool takes = ag_constraint_accept(copy, id, &err) == AG_OK;
        ag_constraint_destroy(copy);
        if (takes != (bool)(mask[id / 32] >> (id % 32) & 1)) {
            size_t n;
            const char *s = ag_tokenizer_token(texts_tokenizer, id, &n);
            fail_msg("token %d '%.*s' is %s, but the mask says otherwise", (int)id, (int)n, s,
                     takes ? "accepted" : "refused");
        }
    }
}

/* Walks over allowed tokens, chosen by a small generator. Checks the mask at each step and returns
 * the number of tokens up to the end of the text, at most `most`. Appends the text to *out. */
static inline size_t texts_walk(ag_constraint *c, uint64_t seed, size_t most, ag_text *out) {
    ag_error err;
    ag_decoder *decoder;
    assert_int_equal(ag_decoder_create(texts_tokenizer, false, true, &decoder, &err), AG_OK);
    size_t n = 0;
    for (; n < most && !ag_constraint_has_ended(c); n++) {
        const uint32_t *mask;
        if (ag_constraint_mask(c, &mask, &err) != AG_OK) fail_msg("%s", err.msg);
        int32_t allowed[4096], n_allowed = 0;
        for (int32_t id = 0; id < 4096; id++) {
            if (mask[id / 32] >> (id % 32) & 1) allowed[n_allowed++] = id;
        }
        assert_true(n_allowed > 0);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int32_t id = allowed[(seed >> 33) % (uint64_t)n_allowed];
        if (ag_constraint_may_end(c) && (seed >> 60) < 6) id = DEMO_EOS;
        if (ag_constraint_accept(c, id, &err) != AG_OK) fail_msg("%s", err.msg);
        if (id != DEMO_EOS) assert_int_equal(ag_decoder_push(decoder, id, out, &err), AG_OK);
    }
    assert_int_equal(ag_decoder_flush(decoder, out, &err), AG_OK);
    ag_decoder_destroy(decoder);
    return n;
}

#endif
