/* SPDX-License-Identifier: Apache-2.0 */
/* No operation reads a value after its last reader or before its first writer. The test fills
 * the space of a dead value with NaN; passes of all golden models must give the same bits. */
#include "core/checksum.h"
#include "core/fail.h"
#include "models/model_impl.h"
#include "support/stride.h"

#include <antigravity/antigravity.h>

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#define MODELS AG_GOLDEN_MODELS
enum { MAX_SEQ = 128, CHUNK = 32 };

static ag_backend *backend;
static ag_model *model;
static ag_checksum sum;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

/* ---- poison ---- */

typedef struct poison {
    const ag_program *program;
    int64_t *last;     /* [n_values] the last operation that names the value; -1: none */
    uint16_t too_soon; /* a value that is filled before that operation; AG_NONE: none */
    size_t n_fills, n_passes, n_passes_past_cut;
} poison;

static bool is_listed(const uint16_t *values, uint16_t value) {
    for (int i = 0; i < AG_OP_VALUES; i++) {
        if (values[i] == value) return true;
    }
    return false;
}

static poison find_last_readers(const ag_program *p) {
    poison all = {
        .program = p, .last = malloc(p->n_values * sizeof *all.last), .too_soon = AG_NONE};
    assert_non_null(all.last);
    for (uint16_t v = 0; v < p->n_values; v++) {
        all.last[v] = -1;
        for (uint32_t i = 0; i < p->n_ops; i++) {
            if (is_listed(p->ops[i].in, v) || is_listed(p->ops[i].out, v)) all.last[v] = i;
        }
    }
    return all;
}

/* Fills all rows that the workspace has for the value, also rows of larger passes. */
static void fill(poison *p, uint16_t value) {
    const ag_value *v = &p->program->values[value];
    const size_t n_rows = model->workspace.shape.n_rows, n = n_rows * v->cols;
    ag_tensor space;
    ag_error err;
    must(ag_tensor_make(&space, AG_F32, ag_shape_1d(n), model->workspace.storage,
                        n_rows * v->offset * sizeof(float), &err),
         &err);
    for (size_t i = 0; i < n; i++) ag_tensor_f32(&space)[i] = NAN;
    p->n_fills++;
}

static bool is_input(const ag_program *p, uint16_t value) {
    for (uint32_t l = 0; p->layer_inputs && l < p->n_layers; l++) {
        if (p->layer_inputs[l] == value) return true;
    }
    return value == p->stream;
}

static bool shares_place_of_input(const ag_program *p, uint16_t value) {
    const ag_value *v = &p->values[value];
    for (uint16_t i = 0; i < p->n_values; i++) {
        const ag_value *u = &p->values[i];
        const bool overlap = v->offset < u->offset + u->cols && u->offset < v->offset + v->cols;
        if (is_input(p, i) && overlap) return true;
    }
    return false;
}

static ag_status after(void *user, uint32_t first, uint32_t next, ag_error *err) {
    poison *p = user;
    const ag_program *program = p->program;
    (void)err;
    if (first >= program->head) return AG_OK; /* logits are stored elsewhere */
    p->n_passes += next == 0;
    p->n_passes_past_cut += first == program->cut && next > first;
    for (uint16_t v = 0; v < program->n_values; v++) {
        if (v == program->hidden || v == program->logits) continue;
        if (next == 0 && !shares_place_of_input(program, v)) fill(p, v);
        if (first <= p->last[v] && p->last[v] < next) fill(p, v);
        if (v == p->too_soon && next > first && next == p->last[v]) fill(p, v);
    }
    return AG_OK;
}

/* ---- passes ---- */

static bool add_logits(void *user, size_t i, const float *values) {
    (void)user, (void)i;
    ag_checksum_add(&sum, values, ag_model_get_info(model)->n_vocab * sizeof *values);
    return true;
}

static bool add_hidden(void *user, size_t i, const float *values) {
    (void)user, (void)i;
    ag_checksum_add(&sum, values, ag_model_get_info(model)->hidden_size * sizeof *values);
    return true;
}

static ag_session *make_session(const char *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = CHUNK;
    p.eviction.policy = policy ? ag_eviction_policy_find(policy) : NULL;
    p.eviction.budget_tokens = policy ? 24 : 0;
    p.eviction.recent = 8;
    p.eviction.slack = 4;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static int32_t some_ids[CHUNK];

static ag_step_item item_of(ag_session *s, size_t n, ag_logits_rows logits) {
    return (ag_step_item){.session = s,
                          .ids = some_ids,
                          .n = n,
                          .phase = n > 1 ? AG_PHASE_PROMPT : AG_PHASE_DECODE,
                          .logits = logits,
                          .row = add_logits};
}

/* Passes with all, some or no output rows, with restored states, and with sums, which need all
 * rows. */
static ag_status run_steps(ag_session *a, ag_session *b, ag_session *c, ag_error *err) {
    const ag_step_item some[] = {item_of(a, 24, AG_LOGITS_NONE), item_of(b, 9, AG_LOGITS_LAST)};
    AG_TRY(ag_session_step(some, 2, err));
    ag_step_item several[] = {item_of(a, 1, AG_LOGITS_LAST), item_of(b, 5, AG_LOGITS_ALL),
                              item_of(c, 30, AG_LOGITS_LAST)};
    several[1].phase = AG_PHASE_VERIFY;
    several[0].hidden = add_hidden;
    AG_TRY(ag_session_step(several, 3, err));
    AG_TRY(ag_session_truncate(b, ag_session_position(b) - 3, err));
    const ag_step_item none = item_of(a, 16, AG_LOGITS_NONE);
    AG_TRY(ag_session_step(&none, 1, err));
    const ag_step_item last[] = {item_of(a, 7, AG_LOGITS_LAST), item_of(b, 1, AG_LOGITS_LAST),
                                 item_of(c, 1, AG_LOGITS_LAST)};
    AG_TRY(ag_session_step(last, 3, err));
    for (size_t i = 0; i < 3; i++) AG_TRY(ag_session_decode(a, some_ids[i], err));
    add_logits(NULL, 0, ag_session_logits(a));
    return AG_OK;
}

/* Errors of failing steps count as well: NaN keys cannot be stored. */
static uint64_t bits_of_steps(bool may_fail) {
    ag_session *a = make_session(NULL), *b = make_session(NULL), *c = make_session("h2o");
    ag_error err;
    ag_checksum_begin(&sum);
    const ag_status st = run_steps(a, b, c, &err);
    if (st != AG_OK && !may_fail) fail_msg("%s: %s", ag_status_name(st), err.msg);
    ag_checksum_add(&sum, &st, sizeof st);
    ag_session_destroy(a);
    ag_session_destroy(b);
    ag_session_destroy(c);
    return ag_checksum_value(&sum);
}

static uint64_t bits_with(poison *p, bool may_fail) {
    const ag_op_hook hook = {after, p};
    model->hook = &hook;
    const uint64_t bits = bits_of_steps(may_fail);
    model->hook = NULL;
    return bits;
}

static void load(const char *name, ag_dtype type) {
    const ag_model_params params = {.weights = type};
    char dir[512];
    ag_error err;
    snprintf(dir, sizeof dir, "%s/%s", MODELS, name);
    must(ag_model_load(backend, dir, &params, &model, &err), &err);
    for (int32_t i = 0; i < CHUNK; i++)
        some_ids[i] = i * 37 % (int32_t)ag_model_get_info(model)->n_vocab;
}

/* ---- tests ---- */

static void check_model(const char *name, ag_dtype type) {
    load(name, type);
    poison p = find_last_readers(model->program);
    const uint64_t want = bits_of_steps(false);
    if (bits_with(&p, false) != want) fail_msg("%s as %s: other bits", name, ag_dtype_name(type));
    assert_int_equal(p.n_passes, 7);
    assert_int_equal(p.n_passes_past_cut, 6);
    /* Each value but two dies in each pass, and after `cut` in all but one. */
    assert_true(p.n_fills >= 6 * (model->program->n_values - 2u));
    free(p.last);
    ag_model_destroy(model);
}

static void never_reads_values_after_their_last_reader(void **state) {
    (void)state;
    static const ag_dtype types[] = {AG_F32, AG_Q4_0};
    size_t n = 0;
    DIR *d = opendir(MODELS);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        for (size_t t = 0; t < 2; t++, n++) {
            if (n % test_stride() == 0) check_model(e->d_name, types[t]);
        }
    }
    closedir(d);
    assert_true(n >= 40);
}

/* Each value affects the bits until its last reader: filled one operation too soon, it changes
 * them. The last reader of the stream is part of an ADD, so the stream is filled after it at the
 * earliest. A GATE is part of the PRODUCTS that write what it reads. */
static void reads_each_value_until_its_last_reader(void **state) {
    (void)state;
    load("gemma4", AG_F32);
    const ag_program *program = model->program;
    poison p = find_last_readers(program);
    const uint64_t want = bits_of_steps(false);
    size_t n = 0;
    for (uint16_t v = 0; v < program->n_values; v++) {
        if (v == program->stream || v == program->hidden || v == program->logits) continue;
        if (!is_listed(program->ops[p.last[v]].in, v)) continue;
        if (p.last[v] > 0 && ag_program_gates_products(program, (uint32_t)p.last[v] - 1)) continue;
        if (n++ % (3 * test_stride())) continue; /* some layer has each kind of value */
        p.too_soon = v;
        if (bits_with(&p, true) == want) fail_msg("value %u, %s", v, program->values[v].name);
    }
    assert_true(n > 50);
    free(p.last);
    ag_model_destroy(model);
}

static int open_backend(void **state) {
    (void)state;
    const ag_backend_params params = {.n_threads = 2};
    return ag_backend_create(&params, &backend, NULL) != AG_OK;
}

static int close_backend(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_reads_values_after_their_last_reader),
        cmocka_unit_test(reads_each_value_until_its_last_reader),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
