/* SPDX-License-Identifier: Apache-2.0 */
/* Quality of managed caches, on the bundled model and a novel that it was not trained on
 * (held_novel.txt of the shared data; skipped without it). */
#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { TRAINED = 2048, STREAM = 4608, WINDOW = 2040, N_WINDOWS = 8 };

static ag_backend *backend;
static ag_model *model;
static ag_ids text;
static size_t n_vocab;

static char *read_text(size_t *n) {
    FILE *f = fopen(AG_SHARED_DIR "/data/held_novel.txt", "rb");
    if (!f) return NULL;
    enum { MOST = 64 * 1024 };
    char *bytes = malloc(MOST);
    *n = fread(bytes, 1, MOST, f);
    fclose(f);
    return bytes;
}

static int load(void **state) {
    (void)state;
    ag_error err;
    size_t n = 0;
    char *bytes = read_text(&n);
    ag_backend_params bp = {.n_threads = 2};
    ag_model_params mp = {.weights = AG_F16};
    ag_tokenizer *tokenizer = NULL;
    const char *dir = AG_SOURCE_DIR "/models/demo";
    ag_status st = ag_backend_create(&bp, &backend, &err);
    if (st == AG_OK) st = ag_model_load(backend, dir, &mp, &model, &err);
    if (st == AG_OK) st = ag_tokenizer_load(dir, &tokenizer, &err);
    if (st == AG_OK) st = ag_tokenizer_encode(tokenizer, bytes, n, AG_ENCODE_BOS, &text, &err);
    if (st == AG_OK) n_vocab = ag_model_get_info(model)->n_vocab;
    ag_tokenizer_destroy(tokenizer);
    free(bytes);
    return st != AG_OK || text.n <= N_WINDOWS * WINDOW;
}

static int unload(void **state) {
    (void)state;
    ag_ids_free(&text);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static ag_session_params params_of(const char *policy, uint32_t budget) {
    ag_session_params p = ag_session_defaults();
    p.prefill_chunk = 64;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = budget;
    p.eviction.prefill = AG_KV_PREFILL_BOUNDED;
    return p;
}

typedef struct score {
    float *logits; /* [WINDOW][n_vocab] of a full cache, or NULL */
    double nll[STREAM];
    double divergence; /* summed divergence from those */
    const int32_t *ids;
    bool recording;
} score;

static void log_softmax(const float *logits, double *out) {
    float highest = logits[0]; /* in float: gcc 12 for ARM cannot compile the same in double */
    double sum = 0;
    for (size_t i = 1; i < n_vocab; i++) highest = logits[i] > highest ? logits[i] : highest;
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - highest);
    for (size_t i = 0; i < n_vocab; i++) out[i] = (double)logits[i] - highest - log(sum);
}

static bool take(void *user, size_t i, const float *logits) {
    static double p[1 << 16], q[1 << 16];
    score *s = user;
    log_softmax(logits, p);
    s->nll[i] = -p[s->ids[i + 1]];
    if (!s->logits) return true;
    float *full = s->logits + i * n_vocab;
    if (s->recording) {
        memcpy(full, logits, n_vocab * sizeof *full);
    } else {
        log_softmax(full, q);
        for (size_t k = 0; k < n_vocab; k++) s->divergence += exp(q[k]) * (q[k] - p[k]);
    }
    return true;
}

static void stream(const ag_session_params *p, size_t n, score *s) {
    ag_session *session;
    ag_error err;
    s->divergence = 0;
    if (!s->ids) s->ids = text.data;
    if (ag_session_create(model, p, &session, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_session_score(session, s->ids, n, take, s, &err) != AG_OK) fail_msg("%s", err.msg);
    ag_session_destroy(session);
}

static double mean(const double *x, size_t begin, size_t end) {
    double sum = 0;
    for (size_t i = begin; i < end; i++) sum += x[i];
    return sum / (double)(end - begin);
}

/* Measured: 3.90 to 3.92 before, 3.60 to 3.61 after. Without rerotation past the trained length
 * it rises: to 5.3 with plain sinks, to 8.2 with keydiff. */
static void perplexity_holds_beyond_the_trained_length(void **state) {
    (void)state;
    score s = {.logits = NULL};
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i)->name, 512);
        stream(&p, STREAM, &s);
        double before = mean(s.nll, 0, TRAINED), after = mean(s.nll, TRAINED, STREAM);
        print_message("%-10s %.3f before position %d, %.3f after\n", ag_eviction_policy_at(i)->name,
                      before, TRAINED, after);
        assert_true(after < before);
    }
}

static void divergence_falls_as_the_budget_grows(void **state) {
    (void)state;
    score s = {.logits = malloc(WINDOW * n_vocab * sizeof(float)), .recording = true};
    ag_session_params full = params_of("none", 0);
    stream(&full, WINDOW, &s);
    double ppl = exp(mean(s.nll, 0, WINDOW));
    s.recording = false;
    stream(&full, WINDOW, &s);
    assert_true(s.divergence == 0);
    for (size_t i = 2; ag_eviction_policy_at(i);
         i++) { /* sliding selects the same slots as streaming */
        double last = INFINITY;
        for (uint32_t budget = 128; budget <= 512; budget *= 4) {
            ag_session_params p = params_of(ag_eviction_policy_at(i)->name, budget);
            stream(&p, WINDOW, &s);
            double rise = exp(mean(s.nll, 0, WINDOW)) / ppl - 1;
            print_message("%-10s %4u: divergence %.5f, perplexity %+.2f %%\n",
                          ag_eviction_policy_at(i)->name, budget, s.divergence / WINDOW,
                          100 * rise);
            assert_true(s.divergence > 0 && s.divergence < last);
            last = s.divergence;
            if (budget == 512 && i == 2) assert_true(rise < 0.05); /* sinks and window, 25 % */
        }
    }
    free(s.logits);
}

/* Runs over all windows of the text, each on its own. */
static double mean_nll(const ag_session_params *p) {
    static score s;
    double sum = 0;
    for (size_t w = 0; w < N_WINDOWS; w++) {
        s.ids = text.data + w * WINDOW;
        stream(p, WINDOW, &s);
        sum += mean(s.nll, 0, WINDOW);
    }
    return sum / N_WINDOWS;
}

/* One window is too noisy: its standard error is 0.6 % for Q4_0, that of all eight 0.2 %. */
static void quantised_caches_stay_within_error_bounds(void **state) {
    (void)state;
    const struct {
        ag_dtype k, v;
        ag_k_rotation rotation;
        double least, most; /* bounds of the rise of perplexity, in percent */
    } cases[] = {{AG_F32, AG_F32, AG_K_ROTATION_AUTO, -0.01, 0.01},
                 {AG_F16, AG_F16, AG_K_ROTATION_ON, -0.02, 0.02},
                 {AG_Q8_0, AG_Q8_0, AG_K_ROTATION_AUTO, -0.05, 0.05},
                 {AG_Q8_0, AG_Q4_0, AG_K_ROTATION_AUTO, 0, 1},
                 {AG_Q4_0, AG_Q4_0, AG_K_ROTATION_AUTO, 0, 2},
                 {AG_Q4_0, AG_Q4_0, AG_K_ROTATION_OFF, 3, 9}};
    ag_session_params p = params_of("none", 0);
    double f16 = mean_nll(&p);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p.k_type = cases[i].k;
        p.v_type = cases[i].v;
        p.k_rotation = cases[i].rotation;
        double rise = 100 * (exp(mean_nll(&p) - f16) - 1);
        print_message("K %s V %s%s: perplexity %+.3f %%\n", ag_dtype_name(p.k_type),
                      ag_dtype_name(p.v_type),
                      p.k_rotation == AG_K_ROTATION_OFF  ? ", never rotated"
                      : p.k_rotation == AG_K_ROTATION_ON ? ", rotated"
                                                         : "",
                      rise);
        assert_true(rise >= cases[i].least && rise <= cases[i].most);
    }
}

int main(void) {
    FILE *f = fopen(AG_SHARED_DIR "/data/held_novel.txt", "rb");
    if (!f) {
        puts("skipped: no held_novel.txt in " AG_SHARED_DIR "/data");
        return 77;
    }
    fclose(f);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perplexity_holds_beyond_the_trained_length),
        cmocka_unit_test(divergence_falls_as_the_budget_grows),
        cmocka_unit_test(quantised_caches_stay_within_error_bounds),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
