/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/answers/answer_index.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *s, size_t n) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
    return mix(h, n);
}

static uint64_t hash_real(double d) {
    uint64_t bits = 0;
    if (d != 0) memcpy(&bits, &d, sizeof bits); /* 0 equals -0, so both hash to 0 */
    return bits;
}

/* Returns a hash that equal values share. The order of an object's members does not matter. */
static uint64_t hash_value(const json_t *v) {
    uint64_t h = (uint64_t)json_typeof(v), members = 0;
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_string(v)) return mix(h, hash_bytes(json_string_value(v), json_string_length(v)));
    if (json_is_integer(v)) return mix(h, (uint64_t)json_integer_value(v));
    if (json_is_real(v)) return mix(h, hash_real(json_real_value(v)));
    json_array_foreach(v, i, member) h = mix(h, hash_value(member));
    json_object_foreach((json_t *)(uintptr_t)v, key, member) {
        members += mix(hash_bytes(key, strlen(key)), hash_value(member));
    }
    return mix(h, members);
}

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
    for (size_t i = 0; i < n; i++)
        out->keys[i] = (ag_answer_key){hash_value(answers[i].canonical), i};
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

static bool matches(const ag_chat_answer *t, const json_t *canonical, const json_t *reasoning) {
    if (!json_equal(canonical, t->canonical)) return false;
    return !reasoning || (t->reasoning && json_equal(reasoning, t->reasoning));
}

const ag_chat_answer *ag_answer_index_find(const ag_answer_index *x, const json_t *canonical,
                                           const json_t *reasoning, size_t *from) {
    const uint64_t hash = hash_value(canonical);
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
