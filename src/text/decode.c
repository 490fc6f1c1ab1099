/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes ids to text, all at once or one by one, with the same chain of stages. */
#include "core/alloc.h"
#include "core/fail.h"
#include "text/tokenizer.h"

struct ag_decoder {
    const ag_tokenizer *t;
    bool keep_special;
    ag_decode_run run;
};

static ag_status push_id(const ag_tokenizer *t, bool keep_special, ag_decode_run *run, int32_t id,
                         ag_text *out, ag_error *err) {
    if (!ag_vocab_has(&t->vocab, id)) {
        return AG_FAIL(err, INVALID, "id %d is not in the vocabulary of %d", (int)id,
                       (int)t->vocab.n_ids);
    }
    if (!keep_special && t->vocab.entries[id].flags & AG_VOCAB_SPECIAL) return AG_OK;
    size_t n;
    const char *s = ag_vocab_spelling(&t->vocab, id, &n);
    return ag_decode_run_push(run, s, n, out, err);
}

static void truncate_text(ag_text *out, size_t len) {
    out->len = len;
    if (out->data) out->data[len] = '\0';
}

ag_status ag_tokenizer_decode(const ag_tokenizer *t, const int32_t *ids, size_t n,
                              bool keep_special, ag_text *out, ag_error *err) {
    ag_decode_run run;
    size_t before = out->len;
    AG_TRY(ag_decode_run_init(&run, &t->decode_chain, t->vocab.max_len, false, err));
    ag_status st = ag_text_reserve(out, 0, err);
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        st = push_id(t, keep_special, &run, ids[i], out, err);
    }
    if (st == AG_OK) st = ag_decode_run_end(&run, out, err);
    if (st != AG_OK) truncate_text(out, before);
    ag_decode_run_free(&run);
    return st;
}

ag_status ag_decoder_create(const ag_tokenizer *t, bool keep_special, bool continues,
                            ag_decoder **out, ag_error *err) {
    *out = NULL;
    ag_decoder *d = ag_calloc(1, sizeof *d);
    if (!d) return AG_FAIL(err, NOMEM, "decoder");
    d->t = t;
    d->keep_special = keep_special;
    ag_status st = ag_decode_run_init(&d->run, &t->decode_chain, t->vocab.max_len, continues, err);
    if (st == AG_OK) *out = d;
    else ag_decoder_destroy(d);
    return st;
}

void ag_decoder_destroy(ag_decoder *d) {
    if (!d) return;
    ag_decode_run_free(&d->run);
    ag_free(d);
}

ag_status ag_decoder_push(ag_decoder *d, int32_t id, ag_text *out, ag_error *err) {
    return push_id(d->t, d->keep_special, &d->run, id, out, err);
}

ag_status ag_decoder_flush(ag_decoder *d, ag_text *out, ag_error *err) {
    return ag_decode_run_end(&d->run, out, err);
}
