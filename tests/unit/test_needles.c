/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for facts at the end of a document that exceeds the cache, on the bundled model.
 * The question is in the prompt, or follows the eviction. */
#include "examples/random_policy.h"
#include "programs/antigravity/eval/haystack.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every document asks at another depth. "test_needles all" takes all of them. */
enum { MOST_DOCUMENTS = 12, CONTEXT = 512, N_ANSWER = 7 };
static size_t n_documents = 8;

static ag_backend *backend;
static ag_model *model;
static ag_tokenizer *tokenizer;
static needle documents[MOST_DOCUMENTS];

static double depth_of(size_t i) { return ((double)i + 0.5) / (double)n_documents; }

static int load(void **state) {
    (void)state;
    ag_error err;
    ag_backend_params bp = {.n_threads = 1};
    const char *dir = AG_SOURCE_DIR "/models/demo";
    ag_status st = ag_backend_create(&bp, &backend, &err);
    if (st == AG_OK) st = ag_model_load(backend, dir, NULL, &model, &err);
    if (st == AG_OK) st = ag_tokenizer_load(dir, &tokenizer, &err);
    haystack h = {.tokenizer = tokenizer, .seed = 3, .n_tokens = CONTEXT};
    for (size_t i = 0; i < n_documents && st == AG_OK; i++) {
        st = needle_make(&h, i, depth_of(i), &documents[i], &err);
    }
    return st != AG_OK;
}

static int unload(void **state) {
    (void)state;
    for (size_t i = 0; i < n_documents; i++) needle_free(&documents[i]);
    ag_tokenizer_destroy(tokenizer);
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

static bool answers(ag_session *s, const needle *d) {
    int32_t ids[N_ANSWER];
    ag_text text = {0};
    for (int i = 0; i < N_ANSWER; i++) {
        ids[i] = likeliest(ag_session_logits(s));
        assert_int_equal(ag_session_decode(s, ids[i], NULL), AG_OK);
    }
    assert_int_equal(ag_tokenizer_decode(tokenizer, ids, N_ANSWER, true, &text, NULL), AG_OK);
    bool right = !strncmp(text.data + strspn(text.data, " "), d->answer, strlen(d->answer));
    ag_text_free(&text);
    return right;
}

/* Returns the number of documents with a right answer. */
static size_t ask(const ag_eviction_params *eviction, bool after) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    size_t right = 0;
    p.eviction = *eviction;
    p.prefill_chunk = 128;
    if (ag_session_create(model, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < n_documents; i++) {
        const needle *d = &documents[i];
        size_t first = after ? d->n_document : d->ids.n;
        ag_session_reset(s);
        assert_int_equal(ag_session_prefill(s, d->ids.data, first, NULL, NULL, NULL), AG_OK);
        if (after) {
            assert_int_equal(
                ag_session_prefill(s, d->ids.data + first, d->ids.n - first, NULL, NULL, NULL),
                AG_OK);
        }
        right += answers(s, d);
    }
    print_message("%-10s %3.0f %% of the tokens, question %s: %zu of %zu\n",
                  eviction->policy ? eviction->policy->name : "none",
                  100.0 * (double)ag_session_kv_budget(s) / CONTEXT, after ? "after" : "inside",
                  right, n_documents);
    ag_session_destroy(s);
    return right;
}

static ag_eviction_params policy_of(const char *name, uint32_t budget) {
    ag_eviction_params p = ag_eviction_defaults();
    p.policy = ag_eviction_policy_find(name);
    p.budget_tokens = budget;
    return p;
}

static void documents_contain_their_needles(void **state) {
    (void)state;
    for (size_t i = 0; i < n_documents; i++) {
        const needle *d = &documents[i];
        ag_text fact = {0}, whole = {0};
        ag_ids again = {0};
        assert_true(d->ids.n <= CONTEXT && d->ids.n > CONTEXT - 64);
        double at = (double)d->fact_begin / (double)d->n_document - depth_of(i);
        assert_true(at > -0.12 && at < 0.12);
        assert_int_equal(ag_tokenizer_decode(tokenizer, d->ids.data + d->fact_begin,
                                             d->fact_end - d->fact_begin, true, &fact, NULL),
                         AG_OK);
        assert_non_null(strstr(fact.data, "The secret of "));
        assert_non_null(strstr(fact.data, d->answer));
        /* The sentences together have the ids of the text. */
        assert_int_equal(ag_tokenizer_decode(tokenizer, d->ids.data, d->ids.n, false, &whole, NULL),
                         AG_OK);
        assert_int_equal(
            ag_tokenizer_encode(tokenizer, whole.data, whole.len, AG_ENCODE_BOS, &again, NULL),
            AG_OK);
        assert_int_equal(again.n, d->ids.n);
        assert_memory_equal(again.data, d->ids.data, again.n * sizeof *again.data);
        ag_text_free(&fact);
        ag_text_free(&whole);
        ag_ids_free(&again);
    }
}

/* SnapKV as tuned for this model. */
static void snapkv_finds_needles_with_the_question_inside(void **state) {
    (void)state;
    ag_eviction_params tuned = policy_of("snapkv", CONTEXT / 8);
    tuned.snapkv_window = 12;
    tuned.snapkv_kernel = 15;
    tuned.snapkv_pool = AG_POOL_MAX;
    ag_eviction_params none = policy_of("none", 0);
    size_t full = ask(&none, false), kept = ask(&tuned, false);
    assert_true(full * 10 >= n_documents * 9);
    assert_true(kept * 10 >= full * 9);
}

/* A sliding window answers facts that are entirely inside it, and no others. */
static void sliding_window_finds_its_share(void **state) {
    (void)state;
    for (uint32_t part = 2; part <= 8; part *= 2) {
        ag_eviction_params sliding = policy_of("sliding", CONTEXT / part);
        int within = 0;
        for (size_t i = 0; i < n_documents; i++) {
            within += documents[i].ids.n - documents[i].fact_begin < CONTEXT / part;
        }
        int right = (int)ask(&sliding, false);
        assert_true(abs(right - within) <= 1);
    }
}

static void keydiff_keeps_needles_before_the_question(void **state) {
    (void)state;
    ag_eviction_params keydiff = policy_of("keydiff", CONTEXT / 4), chance = keydiff;
    chance.policy = &random_policy;
    size_t kept = ask(&keydiff, true), by_chance = ask(&chance, true);
    assert_true(2 * kept >= n_documents);
    assert_true(2 * kept >= 3 * by_chance);
}

static void random_policy_keeps_its_budget(void **state) {
    (void)state;
    enum { N = 90, KEEP = 40 };
    uint32_t positions[N], keep[N], taken[N] = {0};
    ag_eviction_view v = {
        .n_slots = N, .n_protected = 4, .n_expired = 6, .n_recent = 10, .positions = positions};
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t s = 0; s < N; s++) positions[s] = s < 4 ? s : 7 * s + round;
        memset(keep, 0xff, sizeof keep);
        random_policy.select(NULL, NULL, &v, KEEP, keep);
        for (uint32_t i = 0; i < KEEP; i++) {
            if (i) assert_true(keep[i] > keep[i - 1]);
            if (i < 4) assert_int_equal(keep[i], i);
            if (i >= KEEP - 10) assert_int_equal(keep[i], N - KEEP + i);
            assert_true(keep[i] < N && (keep[i] < 4 || keep[i] >= 10));
            taken[keep[i]]++;
        }
        assert_int_equal(keep[KEEP], UINT32_MAX);
    }
    /* 26 of the 70 between, in each of 50 rounds: 18.6 times each. */
    for (uint32_t s = 10; s < N - 10; s++) assert_true(taken[s] >= 5 && taken[s] <= 35);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "all") == 0) n_documents = MOST_DOCUMENTS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_contain_their_needles),
        cmocka_unit_test(snapkv_finds_needles_with_the_question_inside),
        cmocka_unit_test(sliding_window_finds_its_share),
        cmocka_unit_test(random_policy_keeps_its_budget),
        cmocka_unit_test(keydiff_keeps_needles_before_the_question),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
