/* SPDX-License-Identifier: Apache-2.0 */
/* usage: test_time_ops [BACKEND]
 * Times of operations: each operation that runs has one, their sum is below the time of the calls,
 * and logits are those of passes that are not timed. */
#include "models/model_impl.h"
#include "platform/clock.h"
#include "support/named_backend.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODELS AG_GOLDEN_MODELS "/"
enum { N_PROMPT = 24, MOST_OPS = 512 };

static ag_backend *backend;
static ag_model *model;
static double seconds[MOST_OPS], before_last[MOST_OPS]; /* the latter without the last token */

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_session *make_session(void) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = 64;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

/* Reads a prompt and decodes two tokens. Returns the seconds that this took. */
static double run(ag_session *s, float *logits) {
    const size_t n_vocab = ag_model_get_info(model)->n_vocab;
    int32_t ids[N_PROMPT];
    ag_error err;
    for (int i = 0; i < N_PROMPT; i++) ids[i] = i * 7 % (int32_t)n_vocab;
    must(ag_sync(backend), NULL);
    const double begin = ag_now_s();
    must(ag_session_prefill(s, ids, N_PROMPT, NULL, NULL, &err), &err);
    must(ag_session_decode(s, 3, &err), &err);
    memcpy(before_last, seconds, sizeof seconds);
    must(ag_session_decode(s, 5, &err), &err);
    memcpy(logits, ag_session_logits(s), n_vocab * sizeof *logits);
    return ag_now_s() - begin;
}

/* Every operation has taken time, and the last token as well. A NORM that is part of an ADD and a
 * GATE that is part of PRODUCTS have no time of their own, and a SCALE may be by 1. */
static void check_each(void) {
    const ag_program *p = model->program;
    uint32_t part_of_add = 0;
    double last = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const uint32_t norm = ag_program_norm_of_sum(p, i);
        if (norm) part_of_add = norm;
        const bool is_gate = i && ag_program_gates_products(p, i - 1);
        const bool may_be_none =
            (i && i == part_of_add) || is_gate || p->ops[i].code == AG_OP_SCALE;
        if (is_gate) assert_true(seconds[i] == 0);
        assert_true(seconds[i] >= before_last[i]);
        if (!(seconds[i] > 0) && !may_be_none) fail_msg("operation %u took no time", i);
        last += seconds[i] - before_last[i];
    }
    assert_true(last > 0);
}

static void check_model(const char *name, ag_dtype type) {
    const ag_model_params params = {.weights = type};
    char path[512];
    double sum = 0;
    ag_error err;
    snprintf(path, sizeof path, MODELS "%s", name);
    must(ag_model_load(backend, path, &params, &model, &err), &err);
    const size_t n_vocab = ag_model_get_info(model)->n_vocab;
    float *plain = calloc(2 * n_vocab, sizeof *plain), *timed = plain + n_vocab;
    assert_non_null(plain);
    assert_true(model->program->n_ops <= MOST_OPS);
    memset(seconds, 0, sizeof seconds);
    ag_session *s = make_session();
    run(s, plain);
    for (size_t i = 0; i < MOST_OPS; i++) assert_true(seconds[i] == 0);
    ag_session_reset(s);
    ag_model_time_ops(model, seconds);
    const double wall = run(s, timed);
    for (size_t i = 0; i < MOST_OPS; i++) sum += seconds[i];
    check_each();
    if (!(sum > 0 && sum < wall)) fail_msg("%s: %g s of %g s", name, sum, wall);
    if (!strcmp(ag_backend_name(backend), "cpu"))
        assert_memory_equal(plain, timed, n_vocab * sizeof *plain);
    ag_model_time_ops(model, NULL);
    const double before = seconds[0];
    ag_session_reset(s);
    run(s, timed);
    assert_true(seconds[0] == before);
    assert_memory_equal(plain, timed, n_vocab * sizeof *plain);
    ag_session_destroy(s);
    ag_model_destroy(model);
    free(plain);
}

static void measures_every_operation(void **state) {
    (void)state;
    check_model("qwen3", AG_Q4_0);
    if (strcmp(ag_backend_name(backend), "cpu") != 0) return; /* a driver compiles for long */
    check_model("gemma2", AG_F32);
    check_model("gemma4", AG_Q4_0);
    check_model("qwen3.5", AG_F32);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(measures_every_operation)};
    backend = open_backend(argc > 1 ? argv[1] : NULL, 2);
    if (!backend) return EXIT_SKIPPED;
    const int code = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(backend);
    return code;
}
