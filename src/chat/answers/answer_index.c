/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/answers/answer_index.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/keyed_hash.h"

#include <stdlib.h>
#include <string.h>

static bool is_less(const ag_answer_key *a, const ag_answer_key *b) {
    return a->hash < b->hash || (a->hash == b->hash && a->index < b->index);
}

static int by_hash(const void *pa, const void *pb) {
    const ag_answer_key *a = pa, *b = pb;
    return is_less(a, b) ? -1 : is_less(b, a);
}

ag_status ag_answer_index_create(const ag_chat_answer *answers, size_t n, ag_answer_index *out,
                                 ag_error *err) {
    *out = (ag_answer_index){.answers = answers};
    if (!n) return AG_OK;
    out->keys = ag_calloc(n, sizeof *out->keys);
    if (!out->keys) return AG_FAIL(err, NOMEM, "index of %zu sampled answers", n);
    out->n = n;
    for (size_t i = 0; i < n; i++) {
        const ag_text *text = &answers[i].canonical;
        out->keys[i] = (ag_answer_key){ag_keyed_hash(text->data, text->len), i};
    }
    qsort(out->keys, n, sizeof *out->keys, by_hash);
    return AG_OK;
}

void ag_answer_index_free(ag_answer_index *x) {
    ag_free(x->keys);
    *x = (ag_answer_index){0};
}

/* Returns the index of the first key that is not less than `key`. */
static size_t lower_bound(const ag_answer_index *x, ag_answer_key key) {
    size_t low = 0, high = x->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (is_less(&x->keys[middle], &key)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool matches(const ag_chat_answer *t, const ag_text *canonical, const json_t *reasoning) {
    const ag_text *own = &t->canonical;
    if (own->len != canonical->len || memcmp(own->data, canonical->data, own->len) != 0)
        return false;
    return !reasoning || (t->reasoning && json_equal(reasoning, t->reasoning));
}

const ag_chat_answer *ag_answer_index_find(const ag_answer_index *x, const ag_text *canonical,
                                           const json_t *reasoning, size_t *from) {
    const uint64_t hash = ag_keyed_hash(canonical->data, canonical->len);
    const size_t middle = lower_bound(x, (ag_answer_key){hash, *from});
    const size_t begins[] = {middle, lower_bound(x, (ag_answer_key){hash, 0})};
    const size_t ends[] = {x->n, middle};
    for (size_t half = 0; half < 2; half++) {
        for (size_t i = begins[half]; i < ends[half] && x->keys[i].hash == hash; i++) {
            const size_t index = x->keys[i].index;
            if (!matches(&x->answers[index], canonical, reasoning)) continue;
            *from = index + 1;
            return &x->answers[index];
        }
    }
    return NULL;
}
