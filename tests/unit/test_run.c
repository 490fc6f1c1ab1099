/* SPDX-License-Identifier: Apache-2.0 */
/* usage: test_run [BACKEND [STEPS]]
 * A pass that executes the model's program gives the bits of one that goes layer by layer: logits,
 * hidden rows, caches, states and sums, for every golden model. */
#include "cache/cache_manager_impl.h"
#include "session/session_impl.h"
#include "support/byte_stream.h"
#include "support/named_backend.h"
#include "support/stride.h"

#include <antigravity/expert.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#define MODELS AG_SOURCE_DIR "/tests/data/golden/models"
enum { MAX_SEQ = 200, CHUNK = 64, N_PAIRS = 3, MOST_BYTES = 8 << 20, MOST_THREADS = 4 };
enum { LAYERS, PROGRAM, BOTH };

static const char *backend_name; /* NULL: the CPU */
static size_t n_steps = 8;
static ag_model *model;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

/* ---- two sessions of the same text ---- */

typedef struct rows {
    float *values; /* owned; hidden rows and logits as they come */
    size_t n;
} rows;

typedef struct pair {
    ag_session *of[BOTH];
    rows got[BOTH];
} pair;

static ag_session *make_session(const char *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = CHUNK;
    if (backend_name) p.k_type = p.v_type = AG_F32;
    p.eviction.policy = policy ? ag_eviction_policy_find(policy) : NULL;
    p.eviction.budget_tokens = policy ? 40 : 0;
    p.eviction.recent = 8;
    p.eviction.slack = 8;
    p.eviction.snapkv_window = 8;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static pair make_pair(const char *policy) {
    const ag_model_info *info = ag_model_get_info(model);
    const size_t cols = info->n_vocab + info->hidden_size;
    pair p = {.of = {make_session(policy), make_session(policy)}};
    for (int i = 0; i < BOTH; i++) {
        p.got[i].values = malloc(CHUNK * cols * sizeof(float));
        assert_non_null(p.got[i].values);
    }
    return p;
}

static void drop_pair(pair *p) {
    for (int i = 0; i < BOTH; i++) {
        ag_session_destroy(p->of[i]);
        free(p->got[i].values);
    }
}

static bool keep_logits(void *user, size_t i, const float *values) {
    rows *r = user;
    const size_t n = ag_model_get_info(model)->n_vocab;
    (void)i;
    memcpy(r->values + r->n, values, n * sizeof *values);
    r->n += n;
    return true;
}

static bool keep_hidden(void *user, size_t i, const float *values) {
    rows *r = user;
    const size_t n = ag_model_get_info(model)->hidden_size;
    (void)i;
    memcpy(r->values + r->n, values, n * sizeof *values);
    r->n += n;
    return true;
}

/* ---- the same bits ---- */

static unsigned char bytes[BOTH][MOST_BYTES];

/* What the next tokens depend on. */
static size_t save(ag_session *s, unsigned char *to) {
    byte_stream out = {.bytes = to};
    assert_int_equal(ag_kv_cache_save(s->cache, stream_put, &out, NULL), AG_OK);
    assert_int_equal(
        ag_score_sums_save(ag_cache_manager_sums(s->manager), s->cache, stream_put, &out, NULL),
        AG_OK);
    assert_int_equal(ag_layer_state_save(s->state, stream_put, &out, NULL), AG_OK);
    assert_true(out.n <= MOST_BYTES);
    return out.n;
}

static void compare(const pair *p, const char *what) {
    const float *logits[BOTH];
    size_t n[BOTH];
    for (int i = 0; i < BOTH; i++) n[i] = save(p->of[i], bytes[i]);
    if (n[0] != n[1] || memcmp(bytes[0], bytes[1], n[0]) != 0) fail_msg("%s: caches differ", what);
    if (p->got[0].n != p->got[1].n ||
        memcmp(p->got[0].values, p->got[1].values, p->got[0].n * sizeof(float)) != 0)
        fail_msg("%s: rows differ", what);
    for (int i = 0; i < BOTH; i++) logits[i] = ag_session_logits(p->of[i]);
    assert_int_equal(logits[0] == NULL, logits[1] == NULL);
    if (logits[0] &&
        memcmp(logits[0], logits[1], ag_model_get_info(model)->n_vocab * sizeof(float)) != 0)
        fail_msg("%s: logits differ", what);
}

/* ---- steps ---- */

typedef struct plan {
    size_t n; /* rows; 0: it is not in the step */
    ag_phase phase;
    ag_logits_rows logits;
    bool hidden;
} plan;

static plan draw(const pair *p) {
    static const size_t sizes[] = {0, 1, 1, 1, 5, 7, 16, 33, CHUNK};
    const size_t left = MAX_SEQ - ag_session_position(p->of[0]);
    plan d = {.n = sizes[rand() % (int)(sizeof sizes / sizeof *sizes)]};
    if (d.n > left) d.n = left;
    d.phase = d.n > 1 ? AG_PHASE_PROMPT : AG_PHASE_DECODE;
    if (d.n > 1 && d.n < 8 && rand() % 2) d.phase = AG_PHASE_VERIFY;
    d.logits = (ag_logits_rows)(rand() % 3);
    d.hidden = rand() % 4 == 0;
    return d;
}

static void step(pair *pairs, const plan *plans, const int32_t *ids, int which) {
    ag_step_item items[N_PAIRS];
    size_t n = 0;
    ag_error err;
    for (size_t i = 0; i < N_PAIRS; i++) {
        rows *got = &pairs[i].got[which];
        got->n = 0;
        if (!plans[i].n) continue;
        items[n++] = (ag_step_item){.session = pairs[i].of[which],
                                    .ids = ids + i * CHUNK,
                                    .n = plans[i].n,
                                    .phase = plans[i].phase,
                                    .logits = plans[i].logits,
                                    .row = keep_logits,
                                    .row_user = got,
                                    .hidden = plans[i].hidden ? keep_hidden : NULL,
                                    .hidden_user = got};
    }
    model->runs_program = which == PROGRAM;
    if (n) must(ag_session_step(items, n, &err), &err);
}

/* Some tokens are taken back, where the session can. */
static void go_back(pair *p) {
    const uint32_t position = ag_session_position(p->of[0]);
    const uint32_t to = position > 3 ? position - 3 : 0;
    if (rand() % 3 || to < ag_session_oldest_reachable(p->of[0])) return;
    for (int i = 0; i < BOTH; i++) (void)ag_session_truncate(p->of[i], to, NULL);
    assert_int_equal(ag_session_position(p->of[0]), ag_session_position(p->of[1]));
}

/* A fork takes the session's place. */
static void fork_both(pair *p) {
    for (int i = 0; i < BOTH; i++) {
        ag_session *fork;
        ag_error err;
        must(ag_session_fork(p->of[i], &fork, &err), &err);
        ag_session_destroy(p->of[i]);
        p->of[i] = fork;
    }
}

static void run_text(const char *what) {
    pair pairs[N_PAIRS] = {make_pair(NULL), make_pair("h2o"), make_pair("snapkv")};
    int32_t ids[N_PAIRS * CHUNK];
    const int n_vocab = (int)ag_model_get_info(model)->n_vocab;
    for (size_t k = 0; k < n_steps; k++) {
        plan plans[N_PAIRS];
        for (size_t i = 0; i < N_PAIRS * CHUNK; i++) ids[i] = rand() % n_vocab;
        for (size_t i = 0; i < N_PAIRS; i++) plans[i] = draw(&pairs[i]);
        for (int which = 0; which < BOTH; which++) step(pairs, plans, ids, which);
        for (size_t i = 0; i < N_PAIRS; i++) {
            compare(&pairs[i], what);
            go_back(&pairs[i]);
        }
        if (k == n_steps / 2) fork_both(&pairs[0]);
    }
    for (size_t i = 0; i < N_PAIRS; i++) drop_pair(&pairs[i]);
}

/* ---- models ---- */

static void run_model(const char *name, ag_dtype type, uint32_t n_threads) {
    const ag_model_params params = {.weights = type};
    ag_backend *backend = open_backend(backend_name, n_threads);
    char dir[512], what[600];
    ag_error err;
    assert_non_null(backend);
    snprintf(dir, sizeof dir, "%s/%s", MODELS, name);
    snprintf(what, sizeof what, "%s as %s, %u threads", name, ag_dtype_name(type), n_threads);
    must(ag_model_load(backend, dir, &params, &model, &err), &err);
    run_text(what);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
}

static void programs_give_the_bits_of_layers(void **state) {
    (void)state;
    static const ag_dtype types[] = {AG_F32, AG_Q4_0};
    size_t n = 0;
    DIR *d = opendir(MODELS);
    assert_non_null(d);
    srand(5);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        for (size_t t = 0; t < 2; t++) {
            if (n++ % test_stride()) continue;
            run_model(e->d_name, types[t], 1 + (uint32_t)n % MOST_THREADS);
        }
    }
    closedir(d);
    assert_true(n >= 40);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_give_the_bits_of_layers)};
    if (argc > 1 && strcmp(argv[1], "cpu") != 0) backend_name = argv[1];
    if (argc > 2) n_steps = (size_t)atoi(argv[2]);
    ag_backend *backend = open_backend(backend_name, 1);
    if (!backend) return EXIT_SKIPPED;
    ag_backend_destroy(backend);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
