/* SPDX-License-Identifier: Apache-2.0 */
/* usage: test_kv_agreement [TOKENS]
 * Tokens of a tale told greedily by the bundled model, 128 or up to 256: how long a smaller cache
 * tells the same, and how often it would go on as the full one does when led along its text. */
#include "programs/antigravity/haystack.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 384, MOST_TOLD = 256 };

static ag_backend *backend;
static ag_model *model;
static needle tale;
static int n_told = 128;
static int32_t told[MOST_TOLD]; /* by the full cache in F32 */

static int load(void **state) {
    (void)state;
    ag_error err;
    ag_tokenizer *tokenizer = NULL;
    ag_backend_params bp = {.n_threads = 2};
    /* Products with Q4_0 weights round their inputs to eight bits, and so the least difference can
     * become a larger one: F16 weights show what the cache does alone. */
    ag_model_params mp = {.weights = AG_F16};
    const char *dir = AG_SOURCE_DIR "/models/demo";
    ag_status st = ag_backend_create(&bp, &backend, &err);
    if (st == AG_OK) st = ag_model_load(backend, dir, &mp, &model, &err);
    if (st == AG_OK) st = ag_tokenizer_load(dir, &tokenizer, &err);
    haystack h = {.tokenizer = tokenizer, .seed = 11, .n_tokens = N_PROMPT};
    if (st == AG_OK) st = needle_make(&h, 0, 0.5, &tale, &err);
    ag_tokenizer_destroy(tokenizer);
    return st != AG_OK;
}

static int unload(void **state) {
    (void)state;
    needle_free(&tale);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static int32_t likeliest(const float *logits) {
    size_t best = 0, n = ag_model_get_info(model)->n_vocab;
    for (size_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

static ag_session_params types(ag_dtype k, ag_dtype v) {
    ag_session_params p = ag_session_defaults();
    p.k_type = k;
    p.v_type = v;
    return p;
}

static ag_session_params managed(const char *policy, uint32_t budget) {
    ag_session_params p = types(AG_F32, AG_F32);
    p.prefill_chunk = 64;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = budget;
    p.eviction.recent = 16;
    p.eviction.slack = 16;
    return p;
}

/* Tokens chosen by a session fed with its own choices, or led along `told`. */
static void tell(const ag_session_params *p, bool led, int32_t *out) {
    ag_session *s;
    ag_error err;
    if (ag_session_create(model, p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    /* The document alone: the tale goes on. */
    assert_int_equal(ag_session_prefill(s, tale.ids.data, tale.n_document, NULL, NULL, &err),
                     AG_OK);
    for (int i = 0; i < n_told; i++) {
        out[i] = likeliest(ag_session_logits(s));
        int32_t next = led ? told[i] : out[i];
        if (i + 1 < n_told) assert_int_equal(ag_session_decode(s, next, &err), AG_OK);
    }
    ag_session_destroy(s);
}

typedef struct agreement {
    int led, until; /* tokens of n_told that agree with the full cache; those before the first other
                       one */
} agreement;

/* Led along `told`, which is what it says alone up to the first other token. */
static agreement compare(const char *name, const ag_session_params *p) {
    int32_t said[MOST_TOLD];
    agreement a = {0};
    tell(p, true, said);
    while (a.until < n_told && said[a.until] == told[a.until]) a.until++;
    for (int i = 0; i < n_told; i++) a.led += said[i] == told[i];
    print_message("%-16s %3d of %d as the full cache, the first other one after %d\n", name, a.led,
                  n_told, a.until);
    return a;
}

/* Alone it says the same, and then another token. */
static void says_the_same_alone(const ag_session_params *p, agreement a) {
    int32_t said[MOST_TOLD];
    tell(p, false, said);
    assert_memory_equal(said, told, (size_t)a.until * sizeof *said);
    assert_true(a.until == n_told || said[a.until] != told[a.until]);
}

static void smaller_types_tell_nearly_the_same(void **state) {
    (void)state;
    ag_session_params full = types(AG_F32, AG_F32), f16 = types(AG_F16, AG_F16);
    ag_session_params q8 = types(AG_Q8_0, AG_Q8_0), mixed = types(AG_Q8_0, AG_Q4_0);
    ag_session_params q4 = types(AG_Q4_0, AG_Q4_0);
    assert_int_equal(compare("f32", &full).until, n_told);
    assert_true(compare("f16", &f16).led >= n_told - 2);
    assert_true(compare("q8_0", &q8).led >= n_told * 95 / 100);
    assert_true(compare("q8_0,q4_0", &mixed).led >= n_told * 85 / 100);
    const agreement least = compare("q4_0", &q4);
    assert_true(least.led >= n_told * 75 / 100);
    says_the_same_alone(&q4, least);
}

static void larger_budgets_tell_more_of_the_same(void **state) {
    (void)state;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const char *name = ag_eviction_policy_at(i)->name;
        ag_session_params small = managed(name, 96), large = managed(name, 320);
        const agreement few = compare(name, &small), many = compare(name, &large);
        assert_true(few.led <= many.led);
        assert_true(2 * few.led >= n_told);
        if (!strcmp(name, "h2o")) says_the_same_alone(&small, few);
    }
}

/* Records the tokens of the full cache, which both tests compare with. */
static int load_and_tell(void **state) {
    if (load(state)) return -1;
    const ag_session_params full = types(AG_F32, AG_F32);
    tell(&full, false, told);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) n_told = atoi(argv[1]);
    if (n_told < 1 || n_told > MOST_TOLD) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smaller_types_tell_nearly_the_same),
        cmocka_unit_test(larger_budgets_tell_more_of_the_same),
    };
    return cmocka_run_group_tests(tests, load_and_tell, unload);
}
