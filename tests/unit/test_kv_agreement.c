/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_kv_agreement [TOKENS].
 *
 * The bundled model generates a story greedily, 128 tokens or up to 256. Measures how long
 * smaller caches generate the same, and how often they choose the same token when fed the
 * reference text. */
#include "programs/antigravity/eval/haystack.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 384, MOST_TOLD = 256, MOST_LISTENERS = 64 };

static ag_backend *backend;
static ag_model *model;
static needle tale;
static int n_told = 128;
static int32_t told[MOST_TOLD]; /* by the full cache in F32 */

static int load(void **state) {
    (void)state;
    ag_error err;
    ag_tokenizer *tokenizer = NULL;
    ag_backend_params bp = {.n_threads = 1};
    /* Products with Q4_0 weights round their inputs to eight bits, which can magnify the
     * smallest difference. F16 weights show the effect of the cache alone. */
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

/* The document alone: the story continues. */
static ag_session *begin(const ag_session_params *p) {
    ag_session *s;
    ag_error err;
    if (ag_session_create(model, p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_int_equal(ag_session_prefill(s, tale.ids.data, tale.n_document, NULL, NULL, &err),
                     AG_OK);
    return s;
}

/* Generates tokens by a session that is fed its own choices. */
static void tell(const ag_session_params *p, int32_t *out) {
    ag_session *s = begin(p);
    ag_error err;
    for (int i = 0; i < n_told; i++) {
        out[i] = likeliest(ag_session_logits(s));
        if (i + 1 < n_told) assert_int_equal(ag_session_decode(s, out[i], &err), AG_OK);
    }
    ag_session_destroy(s);
}

/* Session that reads the tokens of `told`, and the tokens that it chooses. */
typedef struct listener {
    const char *name;
    ag_session_params params;
    ag_session *session;
    int32_t said[MOST_TOLD];
    int led, until; /* agreeing tokens of n_told; tokens before the first difference */
} listener;

/* Steps of all listeners in one batch, with the results of single steps, read the weights once. */
static void lead(listener *listeners, size_t n) {
    ag_step_item items[MOST_LISTENERS];
    ag_error err;
    assert_true(n <= MOST_LISTENERS);
    for (size_t i = 0; i < n; i++) listeners[i].session = begin(&listeners[i].params);
    for (int t = 0; t < n_told; t++) {
        for (size_t i = 0; i < n; i++) {
            listener *l = &listeners[i];
            l->said[t] = likeliest(ag_session_logits(l->session));
            items[i] = (ag_step_item){.session = l->session,
                                      .ids = &told[t],
                                      .n = 1,
                                      .phase = AG_PHASE_DECODE,
                                      .logits = AG_LOGITS_LAST};
        }
        if (t + 1 < n_told) assert_int_equal(ag_session_step(items, n, &err), AG_OK);
    }
    for (size_t i = 0; i < n; i++) ag_session_destroy(listeners[i].session);
}

/* Asserts that a listener alone also generates `told` up to its first difference. */
static void compare(listener *listeners, size_t n) {
    lead(listeners, n);
    for (size_t i = 0; i < n; i++) {
        listener *l = &listeners[i];
        while (l->until < n_told && l->said[l->until] == told[l->until]) l->until++;
        for (int t = 0; t < n_told; t++) l->led += l->said[t] == told[t];
        print_message("%-16s %3d of %d as the full cache, the first other one after %d\n", l->name,
                      l->led, n_told, l->until);
    }
}

/* Alone it generates the same tokens, then a different one. */
static void says_the_same_alone(const listener *l) {
    int32_t said[MOST_TOLD];
    tell(&l->params, said);
    assert_memory_equal(said, told, (size_t)l->until * sizeof *said);
    assert_true(l->until == n_told || said[l->until] != told[l->until]);
}

static void smaller_types_generate_similar_text(void **state) {
    (void)state;
    listener l[] = {{.name = "f32", .params = types(AG_F32, AG_F32)},
                    {.name = "f16", .params = types(AG_F16, AG_F16)},
                    {.name = "q8_0", .params = types(AG_Q8_0, AG_Q8_0)},
                    {.name = "q8_0,q4_0", .params = types(AG_Q8_0, AG_Q4_0)},
                    {.name = "q4_0", .params = types(AG_Q4_0, AG_Q4_0)}};
    compare(l, sizeof l / sizeof l[0]);
    assert_int_equal(l[0].until, n_told);
    assert_true(l[1].led >= n_told - 2);
    assert_true(l[2].led >= n_told * 95 / 100);
    assert_true(l[3].led >= n_told * 85 / 100);
    assert_true(l[4].led >= n_told * 75 / 100);
    says_the_same_alone(&l[4]);
}

static void larger_budgets_agree_longer(void **state) {
    (void)state;
    static listener l[MOST_LISTENERS];
    size_t n = 0;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const char *name = ag_eviction_policy_at(i)->name;
        assert_true(n + 2 <= MOST_LISTENERS);
        l[n++] = (listener){.name = name, .params = managed(name, 96)};
        l[n++] = (listener){.name = name, .params = managed(name, 320)};
    }
    compare(l, n);
    for (size_t i = 0; i < n; i += 2) {
        const listener *few = &l[i], *many = &l[i + 1];
        assert_true(few->led <= many->led);
        assert_true(2 * few->led >= n_told);
        if (!strcmp(few->name, "h2o")) says_the_same_alone(few);
    }
}

/* Records the tokens of the full cache for both tests. */
static int load_and_tell(void **state) {
    if (load(state)) return -1;
    const ag_session_params full = types(AG_F32, AG_F32);
    tell(&full, told);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) n_told = atoi(argv[1]);
    if (n_told < 1 || n_told > MOST_TOLD) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smaller_types_generate_similar_text),
        cmocka_unit_test(larger_budgets_agree_longer),
    };
    return cmocka_run_group_tests(tests, load_and_tell, unload);
}
