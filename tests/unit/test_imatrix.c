/* SPDX-License-Identifier: Apache-2.0 */
/* Importance matrices: the sums, the files, adding a file, and their effect on rounding. */
#include "formats/gguf_writer.h"
#include "support/tiny_model.h"

#include <antigravity/antigravity.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char model_dir[256], path[300], other[300];
static const int32_t ids[] = {1, 17, 42, 256, 9, 9, 120, 77, 3, 200};
enum { N_IDS = sizeof ids / sizeof ids[0] };

typedef struct engine {
    ag_backend *be;
    ag_model *model;
    ag_session *session;
} engine;

static void assert_ok(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static engine start_model(const char *dir) {
    engine e;
    ag_error err;
    const ag_model_params params = {.as_is = true};
    ag_session_params sp = ag_session_defaults();
    sp.max_seq_len = 64;
    assert_ok(ag_backend_create(&(ag_backend_params){.name = "cpu", .n_threads = 2}, &e.be, &err),
              &err);
    assert_ok(ag_model_load(e.be, dir, &params, &e.model, &err), &err);
    assert_ok(ag_session_create(e.model, &sp, &e.session, &err), &err);
    return e;
}

static engine start(void) { return start_model(model_dir); }

static void stop(engine *e) {
    ag_session_destroy(e->session);
    ag_model_destroy(e->model);
    ag_backend_destroy(e->be);
}

static void read_ids(engine *e) {
    ag_error err;
    ag_session_reset(e->session);
    assert_ok(ag_session_prefill(e->session, ids, N_IDS, NULL, NULL, &err), &err);
}

/* Reads n values of a tensor of the file. */
static void read_values(const char *file, const char *name, float *out, size_t n) {
    ag_weight_source *s;
    ag_error err;
    assert_ok(ag_source_open(file, &s, &err), &err);
    assert_ok(ag_source_open_tensors(s, &err), &err);
    const ag_source_tensor *t = ag_source_find(s, name);
    if (!t) fail_msg("%s has no %s", file, name);
    assert_int_equal(ag_shape_numel(&t->shape), n);
    assert_ok(ag_source_read(s, t, 0, out, n * sizeof *out, &err), &err);
    ag_source_destroy(s);
}

static void save(const ag_imatrix *im, const char *file) {
    ag_error err;
    assert_ok(ag_imatrix_save(im, file, "a text", 64, &err), &err);
}

/* Sums the squares of the normed embeddings, the input of the first layer's projections. */
static void normed_squares(engine *e, double sums[TINY_DIM]) {
    ag_error err;
    float row[TINY_DIM], norm[TINY_DIM];
    ag_weight_source *s;
    assert_ok(ag_source_open(model_dir, &s, &err), &err);
    assert_ok(ag_source_open_tensors(s, &err), &err);
    const ag_source_tensor *t = ag_source_find(s, "model.layers.0.input_layernorm.weight");
    assert_ok(ag_source_read(s, t, 0, norm, sizeof norm, &err), &err);
    ag_source_destroy(s);
    for (size_t i = 0; i < N_IDS; i++) {
        double square = 0;
        assert_ok(ag_model_embedding(e->model, ids[i], row, &err), &err);
        for (int k = 0; k < TINY_DIM; k++) square += (double)row[k] * (double)row[k];
        const double eps = (double)ag_model_get_info(e->model)->norm_eps;
        const double scale = 1 / sqrt(square / TINY_DIM + eps);
        for (int k = 0; k < TINY_DIM; k++) {
            const double x = (double)row[k] * scale * (double)norm[k];
            sums[k] += x * x;
        }
    }
}

static void sums_squares_of_inputs(void **state) {
    (void)state;
    engine e = start();
    ag_error err;
    ag_imatrix *im;
    double expected[TINY_DIM] = {0};
    float actual[TINY_DIM], value[TINY_DIM], count;
    assert_ok(ag_imatrix_create(e.model, &im, &err), &err);
    assert_int_equal(ag_imatrix_save(im, path, "", 0, &err), AG_INVALID);
    read_ids(&e);
    assert_int_equal(ag_imatrix_tokens(im), N_IDS);
    save(im, path);
    normed_squares(&e, expected);
    read_values(path, "blk.0.attn_q.weight.in_sum2", actual, TINY_DIM);
    read_values(path, "blk.0.attn_v.weight.in_sum2", value, TINY_DIM);
    read_values(path, "blk.1.ffn_down.weight.counts", &count, 1);
    for (int k = 0; k < TINY_DIM; k++) {
        assert_true(fabs((double)actual[k] - expected[k]) <= 1e-5 * expected[k]);
        assert_true(actual[k] == value[k]);
    }
    assert_true(count == N_IDS);
    ag_imatrix_destroy(im);
    /* The destroyed matrix no longer observes the backend. */
    read_ids(&e);
    assert_ok(ag_imatrix_create(e.model, &im, &err), &err);
    assert_int_equal(ag_imatrix_tokens(im), 0);
    ag_imatrix_destroy(im);
    stop(&e);
}

static void adds_files(void **state) {
    (void)state;
    engine e = start();
    ag_error err;
    ag_imatrix *im;
    float once[TINY_FFN], twice[TINY_FFN];
    assert_ok(ag_imatrix_create(e.model, &im, &err), &err);
    read_ids(&e);
    save(im, path);
    assert_ok(ag_imatrix_add_file(im, path, &err), &err);
    assert_int_equal(ag_imatrix_tokens(im), 2 * N_IDS);
    save(im, other);
    read_values(path, "blk.1.ffn_down.weight.in_sum2", once, TINY_FFN);
    read_values(other, "blk.1.ffn_down.weight.in_sum2", twice, TINY_FFN);
    for (int k = 0; k < TINY_FFN; k++)
        assert_true(fabsf(twice[k] - 2 * once[k]) <= 1e-6f * once[k]);
    ag_imatrix_destroy(im);
    stop(&e);
}

static void rejects_a_second_measurement(void **state) {
    (void)state;
    engine e = start();
    ag_error err;
    ag_imatrix *im, *second;
    assert_ok(ag_imatrix_create(e.model, &im, &err), &err);
    assert_int_equal(ag_imatrix_create(e.model, &second, &err), AG_INVALID);
    assert_null(second);
    ag_imatrix_destroy(im);
    ag_imatrix_destroy(NULL);
    stop(&e);
}

/* Writes a file with one entry. */
static void write_entry(const char *type, size_t n_cols, float value, float count) {
    ag_gguf_writer w = {0};
    const ag_shape sums = ag_shape_2d(1, n_cols), counts = ag_shape_2d(1, 1);
    ag_gguf_put_string(&w, "general.type", (ag_source_string){type, strlen(type)});
    ag_gguf_add_tensor(&w, "blk.0.attn_q.weight.in_sum2", AG_F32, &sums);
    ag_gguf_add_tensor(&w, "blk.0.attn_q.weight.counts", AG_F32, &counts);
    assert_int_equal(ag_gguf_writer_open(&w, path, NULL), AG_OK);
    for (size_t i = 0; i < n_cols; i++) ag_gguf_write(&w, &value, sizeof value, NULL);
    ag_gguf_end_tensor(&w, NULL);
    ag_gguf_write(&w, &count, sizeof count, NULL);
    ag_gguf_end_tensor(&w, NULL);
    assert_int_equal(ag_gguf_writer_commit(&w, NULL), AG_OK);
    ag_gguf_writer_close(&w);
}

static void rejects_other_files(void **state) {
    (void)state;
    engine e = start();
    ag_error err;
    ag_imatrix *im;
    assert_ok(ag_imatrix_create(e.model, &im, &err), &err);
    write_entry("model", TINY_DIM, 1, 1);
    assert_int_equal(ag_imatrix_add_file(im, path, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "general.type is not \"imatrix\""));
    write_entry("imatrix", TINY_DIM + 1, 1, 1);
    assert_int_equal(ag_imatrix_add_file(im, path, &err), AG_SHAPE);
    assert_non_null(strstr(err.msg, "the file belongs to another model"));
    write_entry("imatrix", TINY_DIM, NAN, 1);
    assert_int_equal(ag_imatrix_add_file(im, path, &err), AG_FORMAT);
    write_entry("imatrix", TINY_DIM, -1, 1);
    assert_int_equal(ag_imatrix_add_file(im, path, &err), AG_FORMAT);
    write_entry("imatrix", TINY_DIM, 3e38f, 0.5f);
    assert_int_equal(ag_imatrix_add_file(im, path, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "counts: value 0 is 0.5; must be 0 or at least 1"));
    assert_int_equal(ag_imatrix_add_file(im, "/nowhere", &err), AG_NOT_FOUND);
    assert_int_equal(ag_imatrix_tokens(im), 0);
    assert_int_equal(ag_imatrix_add_file(im, model_dir, &err), AG_FORMAT);
    ag_imatrix_destroy(im);
    stop(&e);
}

/* Rounds a tensor of a model to Q5_1 with or without that file, and returns its bytes. */
static void round_tensor(const char *model, const char *name, const char *imatrix,
                         unsigned char *out, size_t n) {
    ag_error err;
    const ag_quantize_params params = {.type = "q5_1", .imatrix = imatrix, .overwrite = true};
    assert_ok(ag_quantize(model, other, &params, NULL, &err), &err);
    ag_weight_source *s;
    assert_ok(ag_source_open(other, &s, &err), &err);
    assert_ok(ag_source_open_tensors(s, &err), &err);
    const ag_source_tensor *t = ag_source_find(s, name);
    assert_int_equal(t->n_bytes, n);
    assert_ok(ag_source_read(s, t, 0, out, n, &err), &err);
    ag_source_destroy(s);
}

static void importance_changes_the_rounding(void **state) {
    (void)state;
    enum { BYTES = TINY_DIM * TINY_DIM / 32 * 24 };
    static unsigned char plain[BYTES], with[BYTES], again[BYTES];
    engine e = start();
    ag_error err;
    ag_imatrix *im;
    assert_ok(ag_imatrix_create(e.model, &im, &err), &err);
    read_ids(&e);
    save(im, path);
    ag_imatrix_destroy(im);
    stop(&e);
    static const char name[] = "blk.0.attn_q.weight";
    round_tensor(model_dir, name, NULL, plain, BYTES);
    round_tensor(model_dir, name, path, with, BYTES);
    round_tensor(model_dir, name, path, again, BYTES);
    assert_memory_equal(with, again, BYTES);
    assert_memory_not_equal(with, plain, BYTES);
    write_entry("imatrix", TINY_DIM + 1, 1, 1);
    const ag_quantize_params params = {.type = "q4_0", .imatrix = path, .overwrite = true};
    assert_int_equal(ag_quantize(model_dir, other, &params, NULL, &err), AG_SHAPE);
}

/* ---- experts ---- */

enum { EXPERTS = 8, USED = 2, HIDDEN = 128, WIDTH = 64 };
#define MIXTURE AG_GOLDEN_MODELS "/mixtral"

/* Writes the sums of the router's input and of each expert's, and the counts. */
static void measure_experts(double router[HIDDEN], float sums[EXPERTS * HIDDEN],
                            float counts[EXPERTS]) {
    float input[HIDDEN];
    engine e = start_model(MIXTURE);
    ag_error err;
    ag_imatrix *im;
    assert_ok(ag_imatrix_create(e.model, &im, &err), &err);
    read_ids(&e);
    assert_int_equal(ag_imatrix_tokens(im), N_IDS);
    save(im, path);
    read_values(path, "blk.0.ffn_gate_inp.weight.in_sum2", input, HIDDEN);
    read_values(path, "blk.0.ffn_gate_exps.weight.in_sum2", sums, EXPERTS * HIDDEN);
    read_values(path, "blk.0.ffn_gate_exps.weight.counts", counts, EXPERTS);
    for (size_t i = 0; i < HIDDEN; i++) router[i] = (double)input[i];
    ag_imatrix_destroy(im);
    stop(&e);
}

/* Each row counts for the experts that it chose, and for no other. */
static void counts_rows_of_each_expert(void **state) {
    static double router[HIDDEN];
    static float sums[EXPERTS * HIDDEN], counts[EXPERTS], down[EXPERTS];
    float n = 0;
    (void)state;
    measure_experts(router, sums, counts);
    read_values(path, "blk.0.ffn_down_exps.weight.counts", down, EXPERTS);
    for (size_t e = 0; e < EXPERTS; e++) {
        n += counts[e];
        assert_true(counts[e] == down[e] && counts[e] <= N_IDS);
        assert_int_equal(counts[e] > 0, sums[e * HIDDEN] > 0);
    }
    assert_true(n == USED * N_IDS);
    for (size_t i = 0; i < HIDDEN; i++) {
        double sum = 0;
        for (size_t e = 0; e < EXPERTS; e++) sum += (double)sums[e * HIDDEN + i];
        assert_true(fabs(sum - USED * router[i]) <= 1e-5 * sum);
    }
}

/* Writes a file in which the first column of one expert is important. */
static void write_expert(size_t expert) {
    ag_gguf_writer w = {0};
    const ag_shape sums = ag_shape_2d(EXPERTS, HIDDEN), counts = ag_shape_2d(EXPERTS, 1);
    ag_gguf_put_string(&w, "general.type", (ag_source_string){"imatrix", 7});
    ag_gguf_add_tensor(&w, "blk.0.ffn_gate_exps.weight.in_sum2", AG_F32, &sums);
    ag_gguf_add_tensor(&w, "blk.0.ffn_gate_exps.weight.counts", AG_F32, &counts);
    assert_int_equal(ag_gguf_writer_open(&w, path, NULL), AG_OK);
    for (size_t i = 0; i < EXPERTS * HIDDEN; i++) {
        const float value = i == expert * HIDDEN ? 1000 : i / HIDDEN % 2 ? 1 : 0;
        ag_gguf_write(&w, &value, sizeof value, NULL);
    }
    ag_gguf_end_tensor(&w, NULL);
    for (size_t i = 0; i < EXPERTS; i++) {
        const float count = i % 2; /* experts of even numbers were not measured */
        ag_gguf_write(&w, &count, sizeof count, NULL);
    }
    ag_gguf_end_tensor(&w, NULL);
    assert_int_equal(ag_gguf_writer_commit(&w, NULL), AG_OK);
    ag_gguf_writer_close(&w);
}

static void importance_is_that_of_the_expert(void **state) {
    enum { EACH = WIDTH * HIDDEN / 32 * 24 };
    static unsigned char one[EXPERTS * EACH], three[EXPERTS * EACH];
    static const char name[] = "blk.0.ffn_gate_exps.weight";
    (void)state;
    write_expert(1);
    round_tensor(MIXTURE, name, path, one, sizeof one);
    write_expert(3);
    round_tensor(MIXTURE, name, path, three, sizeof three);
    for (size_t e = 0; e < EXPERTS; e++) {
        const bool is_equal = !memcmp(one + e * EACH, three + e * EACH, EACH);
        assert_int_equal(is_equal, e != 1 && e != 3);
    }
}

int main(void) {
    if (!tiny_model_write(&(tiny_model){.dtype = "F32"}, model_dir, sizeof model_dir)) return 1;
    snprintf(path, sizeof path, "%s.imatrix", model_dir);
    snprintf(other, sizeof other, "%s.other", model_dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_squares_of_inputs),
        cmocka_unit_test(adds_files),
        cmocka_unit_test(rejects_a_second_measurement),
        cmocka_unit_test(rejects_other_files),
        cmocka_unit_test(importance_changes_the_rounding),
        cmocka_unit_test(counts_rows_of_each_expert),
        cmocka_unit_test(importance_is_that_of_the_expert),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    remove(other);
    tiny_model_remove(model_dir);
    return failed;
}
