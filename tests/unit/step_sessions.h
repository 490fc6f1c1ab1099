/* SPDX-License-Identifier: Apache-2.0 */
/* Models and sessions for the tests of ag_session_step(). */
#ifndef AG_TESTS_STEP_SESSIONS_H
#define AG_TESTS_STEP_SESSIONS_H

#include "support/named_backend.h"
#include "support/without_matrix_units.h"

#include <antigravity/expert.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#define MODELS AG_GOLDEN_MODELS "/"
/* No windows; windows of 24 tokens in most layers; a state in most layers; shared keys and values
 * in half of the layers. Experts, the second time with sinks and windows: these two on the
 * processor only, since rounding may change a choice. */
static const char *const model_dirs[] = {MODELS "gqa-llama3rope-sharded",
                                         MODELS "gemma3",
                                         MODELS "lfm2",
                                         MODELS "qwen3.5",
                                         MODELS "gemma4",
                                         MODELS "qwen2-moe",
                                         MODELS "gpt-oss"};
enum { MAX_MODELS = 7, WITHOUT_EXPERTS = 5, CHUNK = 16, MAX_SEQ = 480 };

static const char *backend_name; /* NULL: the default, whose results are equal to the bit */
static ag_backend *backend;
static size_t n_models = MAX_MODELS;
static ag_model *models[MAX_MODELS], *model; /* model: of the current test */
static size_t n_vocab;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static void use(size_t i) {
    model = models[i];
    n_vocab = ag_model_get_info(model)->n_vocab;
}

/* policy NULL: none. On a device the number of rows selects kernels and so their rounding; f16
 * caches would amplify it. */
static inline ag_session *make(const ag_eviction_policy *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = CHUNK;
    if (backend_name) p.k_type = p.v_type = AG_F32;
    p.eviction.policy = policy;
    p.eviction.budget_tokens = policy ? 40 : 0;
    p.eviction.recent = 8;
    p.eviction.slack = 8;
    p.eviction.snapkv_window = 8;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static void random_ids(int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) ids[i] = 3 + rand() % 300;
}

static void same_row(const float *have, const float *want) {
    assert_non_null(have);
    assert_non_null(want);
    if (!backend_name) assert_memory_equal(have, want, n_vocab * sizeof *want);
    for (size_t i = 0; i < n_vocab; i++) {
        if (!(fabsf(have[i] - want[i]) < 1e-3f))
            fail_msg("logit %zu is %g, alone %g", i, (double)have[i], (double)want[i]);
    }
}

static void same_logits(const ag_session *a, const ag_session *b) {
    same_row(ag_session_logits(a), ag_session_logits(b));
}

static const int32_t some_ids[CHUNK + 1] = {9, 8, 7, 6, 5, 4, 3};

static inline ag_sampler *sampler_of(size_t text) {
    ag_sampler_params p = ag_sampler_defaults();
    ag_sampler *out;
    ag_error err;
    if (text == 0) p.temperature = 0;
    p.seed = 11 + text;
    must(ag_sampler_create(&p, (int32_t)n_vocab, &out, &err), &err);
    return out;
}

/* Opens the backend of that name (NULL: the default) and all models. Returns 0, or main()'s exit
 * code. */
static inline int open_models(const char *name) {
    ag_error err;
    backend_name = name && strcmp(name, "cpu") != 0 ? name : NULL;
    without_matrix_units();
    backend = open_backend(backend_name, 2);
    if (!backend) return EXIT_SKIPPED;
    /* On a GPU few and many rows use other kernels: the rounding of quantised weights is not
     * compared here. */
    ag_model_params mp = ag_model_defaults();
    if (backend_name) mp.weights = AG_F32;
    if (backend_name) n_models = WITHOUT_EXPERTS;
    for (size_t i = 0; i < n_models; i++) {
        if (ag_model_load(backend, model_dirs[i], &mp, &models[i], &err) == AG_OK) continue;
        fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    use(0);
    return 0;
}

static inline void close_models(void) {
    for (size_t i = 0; i < n_models; i++) ag_model_destroy(models[i]);
    ag_backend_destroy(backend);
}

#endif
