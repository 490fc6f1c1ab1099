/* SPDX-License-Identifier: Apache-2.0 */
/* usage: test_streaming NAME [BACKEND]
 * Tests the policy "streaming" on the recorded model NAME. With a large budget the logits equal the
 * record. With smaller ones they equal those of a model in double precision that sees only the
 * slots of the rule, also when the session is saved and restored in between. */
#include "golden/float64_model.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

enum { MAX_IDS = FLOAT64_MAX_POSITIONS, PREFIX = 4, CHUNK = 7, MAX_LAYERS = 8 };

static char model_dir[4096];
static json_t *record;
static int32_t ids[MAX_IDS];
static uint32_t n_ids;
static float64_model *oracle;
static ag_backend *backend;
static ag_model *model;
static size_t n_vocab;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

/* ---- the rule ---- */

/* Positions that layers hold: the first PREFIX and the newest, `budget` in all. A layer whose
 * window is not larger than the budget keeps its window; another forgets also of the first ones
 * what leaves its window. */
typedef struct rule {
    uint32_t budget;
    uint32_t begin; /* position of the step's first token */
    struct {
        uint32_t positions[MAX_IDS], n;
    } held[MAX_LAYERS];
} rule;

static uint32_t window_of(uint32_t layer) {
    return ag_spec_layer(float64_model_spec(oracle), layer)->window;
}

static bool is_budgeted(const rule *r, uint32_t layer) {
    return !window_of(layer) || window_of(layer) > r->budget;
}

static bool sees(void *user, uint32_t layer, uint32_t query, uint32_t position) {
    const rule *r = user;
    const uint32_t window = window_of(layer);
    if (window && query - position >= window) return false;
    if (!is_budgeted(r, layer) || position >= r->begin) return true;
    for (uint32_t i = 0; i < r->held[layer].n; i++) {
        if (r->held[layer].positions[i] == position) return true;
    }
    return false;
}

static void cut(rule *r, uint32_t layer, uint32_t next) {
    const uint32_t n = r->held[layer].n, window = window_of(layer);
    uint32_t *at = r->held[layer].positions, first = 0, prefix = 0;
    while (window && first < n && at[first] + window <= next) first++;
    while (!first && prefix < n && at[prefix] < PREFIX) prefix++;
    const uint32_t kept = n - first < r->budget ? n - first : r->budget;
    memmove(at + prefix, at + n - (kept - prefix), (kept - prefix) * sizeof *at);
    r->held[layer].n = kept;
}

/* After a step of n tokens. */
static void end_step(rule *r, uint32_t n) {
    const uint32_t n_layers = float64_model_spec(oracle)->n_layers;
    const uint32_t next = r->begin + n;
    bool due = false;
    for (uint32_t l = 0; l < n_layers; l++) {
        for (uint32_t i = 0; i < n; i++) r->held[l].positions[r->held[l].n++] = r->begin + i;
        if (is_budgeted(r, l) && r->held[l].n > r->budget) due = true;
    }
    for (uint32_t l = 0; due && l < n_layers; l++) {
        if (is_budgeted(r, l) && r->held[l].n > r->budget) cut(r, l, next);
    }
    r->begin = next;
}

/* ---- sessions ---- */

static ag_session *make(uint32_t budget) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.k_type = p.v_type = AG_F32;
    p.max_seq_len = 480;
    p.prefill_chunk = CHUNK;
    p.eviction.policy = ag_eviction_policy_find("streaming");
    p.eviction.budget_tokens = budget;
    p.eviction.protected_prefix = PREFIX;
    p.eviction.recent = 4;
    p.eviction.slack = 0;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

/* The same conversation in a new session, by way of a file. */
static ag_session *through_a_file(ag_session *s, uint32_t budget) {
    char path[] = "/tmp/antigravity-streaming-XXXXXX";
    ag_error err;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ag_session *out = make(budget);
    must(ag_session_save(s, path, NULL, NULL, 0, &err), &err);
    must(ag_session_restore(out, path, NULL, NULL, &err), &err);
    unlink(path);
    ag_session_destroy(s);
    return out;
}

/* ---- comparing ---- */

/* Logits of the rows of one step. */
typedef struct step_rows {
    float *values; /* [CHUNK, n_vocab] */
    size_t n;
} step_rows;

static bool keep_row(void *user, size_t i, const float *logits) {
    step_rows *rows = user;
    memcpy(rows->values + i * n_vocab, logits, n_vocab * sizeof *logits);
    rows->n++;
    return true;
}

static void close_to(double have, double want, const char *what, size_t where, uint32_t position) {
    if (fabs(have - want) > 1e-4 || isnan(have)) {
        fail_msg("position %u, %s %zu: %.7f, not %.7f", position, what, where, have, want);
    }
}

static void compare_with_record(const float *logits, uint32_t position) {
    char key[16];
    snprintf(key, sizeof key, "%u", position);
    const json_t *row = json_object_get(json_object_get(record, "logits_rows"), key);
    for (size_t i = 0; i < json_array_size(row); i++) {
        close_to((double)logits[i], json_number_value(json_array_get(row, i)), "recorded logit", i,
                 position);
    }
}

/* Past the trained length the sinks stay as far from the step's newest token as they may be. */
static void move_sinks(uint32_t newest) {
    const uint32_t trained = float64_model_spec(oracle)->max_positions;
    if (newest >= trained) float64_model_move_sinks(oracle, PREFIX, newest - (trained - 1));
}

/* The first n_prompt ids as a prompt, the others decoded. */
static void run(uint32_t budget, uint32_t n_prompt, uint32_t saved_at) {
    rule r = {.budget = budget};
    step_rows rows = {.values = calloc(CHUNK * n_vocab, sizeof(float))};
    double *want = calloc(n_vocab, sizeof *want);
    assert_true(rows.values && want);
    ag_session *s = make(budget);
    ag_error err;
    if (n_prompt) must(ag_session_begin_prompt(s, n_prompt, &err), &err);
    while (r.begin < n_ids) {
        const uint32_t begin = r.begin;
        const bool decoding = begin >= n_prompt;
        const uint32_t n = decoding ? 1 : (uint32_t)ag_session_prompt_rows(s);
        const ag_step_item item = {.session = s,
                                   .ids = ids + begin,
                                   .n = n,
                                   .phase = decoding ? AG_PHASE_DECODE : AG_PHASE_PROMPT,
                                   .logits = AG_LOGITS_ALL,
                                   .row = keep_row,
                                   .row_user = &rows};
        rows.n = 0;
        move_sinks(begin + n - 1);
        must(ag_session_step(&item, 1, &err), &err);
        assert_int_equal(rows.n, n);
        for (uint32_t i = 0; i < n; i++) {
            const float *have = rows.values + i * n_vocab;
            float64_model_token(oracle, begin + i, ids[begin + i], sees, &r, want);
            for (size_t k = 0; k < n_vocab; k++)
                close_to((double)have[k], want[k], "logit", k, begin + i);
            if (budget > n_ids) compare_with_record(have, begin + i);
        }
        end_step(&r, n);
        if (begin >= saved_at || r.begin < saved_at) continue;
        s = through_a_file(s, budget);
        if (r.begin >= n_prompt) continue;
        must(ag_session_begin_prompt(s, n_prompt - r.begin, &err), &err);
    }
    ag_session_destroy(s);
    free(rows.values);
    free(want);
}

static void large_budget_gives_the_recorded_logits(void **state) {
    (void)state;
    run(400, 40, 60);
}

static void small_budget_keeps_the_slots_of_the_rule(void **state) {
    (void)state;
    run(16, 0, 0);
    run(16, 50, 0);
    run(21, 10, 0);
    run(40, 30, 0);
}

static void restored_session_follows_the_same_rule(void **state) {
    (void)state;
    run(16, 50, 20);
    run(16, 12, 22);
    run(16, 0, 70);
    run(40, 30, 50);
}

/* ---- a model that was trained for less than the text ---- */

enum { TRAINED = 64 };

/* The model's directory once more, in `dir`, with another length in its configuration. */
static void write_shorter(const char *dir) {
    char from[4200], to[4200];
    snprintf(from, sizeof from, "%s/config.json", model_dir);
    snprintf(to, sizeof to, "%s/config.json", dir);
    json_t *config = json_load_file(from, 0, NULL);
    json_object_set_new(config, "max_position_embeddings", json_integer(TRAINED));
    assert_int_equal(json_dump_file(config, to, 0), 0);
    json_decref(config);
    snprintf(from, sizeof from, "%s/model.safetensors", model_dir);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    assert_int_equal(symlink(from, to), 0);
}

static void remove_shorter(const char *dir) {
    const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static bool load_from(const char *dir);

static void rotates_sinks_again_past_the_trained_length(void **state) {
    (void)state;
    float64_model *const whole_oracle = oracle;
    ag_model *const whole = model;
    char dir[] = "/tmp/antigravity-shorter-XXXXXX";
    assert_non_null(mkdtemp(dir));
    write_shorter(dir);
    assert_true(load_from(dir));
    remove_shorter(dir);
    assert_int_equal(ag_model_get_info(model)->max_positions, TRAINED);
    run(16, 0, 0);
    run(21, 80, 0);
    run(16, 30, 75);
    ag_model_destroy(model);
    float64_model_destroy(oracle);
    model = whole;
    oracle = whole_oracle;
}

/* ---- where things are ---- */

static bool read_record(const char *name) {
    char path[4096];
    json_error_t je;
    snprintf(path, sizeof path, AG_SOURCE_DIR "/tests/data/golden/%s.json", name);
    record = json_load_file(path, 0, &je);
    const json_t *list = json_object_get(record, "ids");
    n_ids = (uint32_t)json_array_size(list);
    if (!n_ids || n_ids > MAX_IDS) {
        fprintf(stderr, "%s: %s\n", path, je.text);
        return false;
    }
    for (size_t i = 0; i < n_ids; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return true;
}

static bool load_from(const char *dir) {
    ag_error err;
    ag_model_params mp = ag_model_defaults();
    mp.weights = AG_F32;
    oracle = float64_model_load(dir);
    if (!oracle) return false;
    float64_model_set_long(oracle, true); /* with a policy positions have no end */
    n_vocab = float64_model_spec(oracle)->vocab_size;
    if (ag_model_load(backend, dir, &mp, &model, &err) == AG_OK) return true;
    fprintf(stderr, "%s\n", err.msg);
    return false;
}

static bool load(const char *name) {
    snprintf(model_dir, sizeof model_dir, AG_GOLDEN_MODELS "/%s", name);
    return load_from(model_dir);
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: test_streaming NAME [BACKEND]\n");
        return 2;
    }
    ag_error err;
    const ag_backend_params params = {.name = argv[2], .n_threads = 2};
    if (ag_backend_create(&params, &backend, &err) != AG_OK) {
        printf("skipped: %s\n", err.msg);
        return 77;
    }
    if (!read_record(argv[1]) || !load(argv[1])) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_budget_gives_the_recorded_logits),
        cmocka_unit_test(small_budget_keeps_the_slots_of_the_rule),
        cmocka_unit_test(restored_session_follows_the_same_rule),
        cmocka_unit_test(rotates_sinks_again_past_the_trained_length),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    float64_model_destroy(oracle);
    json_decref(record);
    return failed;
}
