/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads compile and use constraints of one vocabulary at the same time, as a server does.
 * Their masks equal those of one thread. */
#include "constrain_texts.h"

#include <pthread.h>

enum { THREADS = 3, ROUNDS = 4, STEPS = 30, N_KINDS = 5 };

static const char *const kind_texts[N_KINDS] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},\"n\":{"
    "\"type\":\"integer\",\"minimum\":-5,\"maximum\":500}},\"required\":[\"name\",\"n\"],"
    "\"additionalProperties\":{\"type\":\"boolean\"}}",
    "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"b\",1,2]}}",
    NULL, /* any object */
    "[a-c]{2,9}(x|yz)*",
    "root ::= item (\",\" item)*\nitem ::= [0-9]+ | \"(\" root \")\"\n",
};
static const ag_constraint_kind kinds[N_KINDS] = {
    AG_CONSTRAINT_JSON_SCHEMA, AG_CONSTRAINT_JSON_SCHEMA, AG_CONSTRAINT_JSON_OBJECT,
    AG_CONSTRAINT_REGEX, AG_CONSTRAINT_GRAMMAR};

typedef struct walker {
    const ag_constraint_vocab *vocab;
    uint64_t hash; /* a hash of all masks */
    ag_status status;
} walker;

static void add_words(uint64_t *hash, const uint32_t *words, size_t n) {
    for (size_t i = 0; i < n; i++) *hash = (*hash ^ words[i]) * 0x100000001B3u;
}

/* Walks over tokens chosen from the masks by a seed. */
static ag_status walk_once(walker *w, ag_constraint *c, uint32_t seed) {
    const size_t words = 4096 / 32;
    ag_error err;
    for (int i = 0; i < STEPS && !ag_constraint_has_ended(c); i++) {
        const uint32_t *mask;
        ag_status st = ag_constraint_mask(c, &mask, &err);
        if (st != AG_OK) return st;
        add_words(&w->hash, mask, words);
        int32_t ids[4096], n = 0;
        for (int32_t id = 0; id < 4096; id++) {
            if (mask[id / 32] >> (id % 32) & 1) ids[n++] = id;
        }
        seed = seed * 1664525u + 1013904223u;
        st = ag_constraint_accept(c, ids[(seed >> 8) % (uint32_t)n], &err);
        if (st != AG_OK) return st;
    }
    return AG_OK;
}

static ag_status walk_kind(walker *w, int kind, int round) {
    ag_constraint_params p = texts_params(kinds[kind], kind_texts[kind]);
    p.spacing = (ag_json_spacing)(round % 3); /* the vocabulary makes each spacing on first use */
    ag_constraint *c, *copy = NULL;
    ag_error err;
    ag_status st = ag_constraint_create(w->vocab, &p, &c, &err);
    if (st != AG_OK) return st;
    st = walk_once(w, c, (uint32_t)round);
    if (st == AG_OK) st = ag_constraint_reset(c, &err);
    if (st == AG_OK) st = ag_constraint_clone(c, &copy, &err);
    if (st == AG_OK) st = walk_once(w, copy, (uint32_t)round + 100);
    ag_constraint_destroy(c);
    ag_constraint_destroy(copy);
    return st;
}

static void *run_walker(void *arg) {
    walker *w = arg;
    for (int round = 0; round < ROUNDS && w->status == AG_OK; round++) {
        for (int kind = 0; kind < N_KINDS && w->status == AG_OK; kind++) {
            w->status = walk_kind(w, kind, round);
        }
    }
    return NULL;
}

static void threads_share_one_vocabulary(void **state) {
    (void)state;
    const int32_t eos = DEMO_EOS;
    ag_constraint_vocab *fresh;
    ag_error err;
    assert_int_equal(ag_constraint_vocab_create(texts_tokenizer, 4096, &eos, 1, &fresh, &err),
                     AG_OK);
    walker alone = {.vocab = texts_vocab}, together[THREADS];
    pthread_t threads[THREADS];
    (void)texts_byte_id('a');
    for (int i = 0; i < THREADS; i++) {
        together[i] = (walker){.vocab = fresh};
        assert_int_equal(pthread_create(&threads[i], NULL, run_walker, &together[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    run_walker(&alone);
    assert_int_equal(alone.status, AG_OK);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(together[i].status, AG_OK);
        assert_true(together[i].hash == alone.hash);
    }
    ag_constraint_vocab_destroy(fresh);
}

/* A constraint is compiled on one thread and used on another, one after the other. */
static void *compile_one(void *out) {
    const ag_constraint_params p = texts_params(kinds[0], kind_texts[0]);
    ag_error err;
    ag_constraint **c = out;
    if (ag_constraint_create(texts_vocab, &p, c, &err) != AG_OK) *c = NULL;
    return NULL;
}

static void constraint_moves_between_threads(void **state) {
    (void)state;
    pthread_t thread;
    ag_constraint *c = NULL;
    assert_int_equal(pthread_create(&thread, NULL, compile_one, &c), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(c);
    texts_expect(c, "{\"name\": \"x\", \"n\": 7, \"other\": true}", true);
    texts_expect(c, "{\"name\": \"x\", \"n\": 501}", false);
    ag_constraint_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_one_vocabulary),
        cmocka_unit_test(constraint_moves_between_threads),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
