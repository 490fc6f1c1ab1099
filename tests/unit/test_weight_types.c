/* SPDX-License-Identifier: Apache-2.0 */
/* Which type and which rows of a file's tensor a weight is. */
#include "models/families/family.h"
#include "models/weight_types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static ag_weight_spec matrix(const char *gguf_name, size_t cols) {
    ag_weight_spec w = {.kind = AG_WEIGHT_MATRIX, .rows = 8, .cols = cols};
    snprintf(w.gguf_name, sizeof w.gguf_name, "%s", gguf_name);
    return w;
}

static void rows_that_fit_no_block_get_a_similar_type(void **state) {
    (void)state;
    assert_int_equal(ag_weight_type_fitting(AG_Q4_K, 512, AG_F32), AG_Q4_K);
    assert_int_equal(ag_weight_type_fitting(AG_Q4_K, 576, AG_F32), AG_Q5_0);
    assert_int_equal(ag_weight_type_fitting(AG_Q5_K, 576, AG_F32), AG_Q5_1);
    assert_int_equal(ag_weight_type_fitting(AG_Q6_K, 576, AG_F32), AG_Q8_0);
    assert_int_equal(ag_weight_type_fitting(AG_Q2_K, 576, AG_F32), AG_Q4_0);
    assert_int_equal(ag_weight_type_fitting(AG_Q4_0, 65, AG_BF16), AG_BF16);
    assert_int_equal(ag_weight_type_fitting(AG_Q6_K, 65, AG_BF16), AG_BF16);
}

static void last_matching_pattern_counts(void **state) {
    (void)state;
    const ag_tensor_type types[] = {
        {"attn", AG_Q8_0}, {"blk.[01].attn_v", AG_Q6_K}, {"output", AG_F16}};
    ag_model_params p = {.weights = AG_Q4_0, .tensor_types = types, .n_tensor_types = 3};
    const struct {
        const char *name;
        ag_dtype want, as_is;
    } rows[] = {
        {"blk.0.attn_v.weight", AG_Q6_K, AG_Q6_K},
        {"blk.2.attn_v.weight", AG_Q8_0, AG_Q8_0},
        {"blk.11.attn_v.weight", AG_Q8_0, AG_Q8_0},
        {"blk.0.ffn_up.weight", AG_Q4_0, AG_BF16},
        {"output.weight", AG_F16, AG_F16},
        {"blk.3.attn_output.weight", AG_Q8_0, AG_Q8_0},
        {"blk.3.ffn_output.weight", AG_Q4_0, AG_BF16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ag_weight_spec w = matrix(rows[i].name, 256);
        p.as_is = false;
        assert_int_equal(ag_weight_type(&w, AG_BF16, &p), rows[i].want);
        p.as_is = true;
        assert_int_equal(ag_weight_type(&w, AG_BF16, &p), rows[i].as_is);
    }
}

static void rejects_types_that_are_not_of_weights(void **state) {
    (void)state;
    const ag_tensor_type bad[] = {{"", AG_Q8_0}, {NULL, AG_Q8_0}, {"attn", AG_I32}};
    const ag_status want[] = {AG_INVALID, AG_INVALID, AG_UNSUPPORTED};
    for (size_t i = 0; i < 3; i++) {
        const ag_model_params p = {.tensor_types = &bad[i], .n_tensor_types = 1};
        ag_error err = {0};
        assert_int_equal(ag_tensor_types_check(&p, &err), want[i]);
        assert_true(err.msg[0]);
    }
}

static ag_dtype mixed(size_t n_steps, const char *name, size_t cols) {
    ag_model_params p = {.weights = AG_WEIGHTS_MIX};
    const ag_weight_spec w = matrix(name, cols);
    for (size_t i = 0; i < n_steps; i++) assert_true(ag_weights_mix_add(i, &p.weights));
    return ag_weight_type(&w, AG_BF16, &p);
}

static void every_step_of_a_mix_adds_bits(void **state) {
    (void)state;
    static const char *const names[] = {"blk.0.ffn_up.weight", "blk.0.attn_v.weight",
                                        "blk.0.attn_output.weight", "blk.0.ffn_down.weight",
                                        "output.weight"};
    assert_int_equal(mixed(0, names[4], 256), AG_Q4_K);
    assert_int_equal(mixed(0, names[4], 96), AG_Q4_1);
    ag_dtype mix = AG_WEIGHTS_MIX;
    size_t last = 0;
    while (ag_weights_mix_add(last, &mix)) last++;
    assert_true(ag_weights_is_mix(mix));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t cols = 96; cols <= 256; cols += 160) {
            size_t before = 0;
            for (size_t n = 0; n <= last; n++) {
                const size_t bytes = ag_dtype_row_bytes(mixed(n, names[i], cols), cols);
                assert_true(bytes && bytes >= before);
                before = bytes;
            }
        }
        assert_int_equal(mixed(last, names[i], 65), AG_BF16);
    }
    assert_int_equal(mixed(last, names[0], 256), AG_Q4_K);
    assert_int_equal(mixed(last, names[2], 96), AG_Q5_1);
    assert_int_equal(mixed(last, names[4], 256), AG_Q6_K);
    assert_int_equal(mixed(last, names[4], 96), AG_Q8_0);
}

/* ---- rows ---- */

static ag_weight_spec weight_of(const ag_model_spec *s, ag_layer_tensor tensor) {
    size_t i = 0;
    while (ag_layer_weight(s, 0, i).tensor != tensor) i++;
    return ag_layer_weight(s, 0, i);
}

static void reads_rows_of_heads_in_pairs(void **state) {
    (void)state;
    ag_family family = {.gguf = {.paired_rows = true}};
    ag_model_spec s = ag_spec_plain(4, 2, 6);
    s.family = &family;
    s.hidden_size = 24;
    s.n_layers = 1;
    for (size_t i = 0; ag_tensor_naming(i, &s) && !ag_spec_is_gguf(&s); i++) {
        const ag_weight_spec w = weight_of(&s, AG_LT_WQ);
        assert_true(ag_row_order_is_range(&w.order));
    }
    const ag_weight_spec q = weight_of(&s, AG_LT_WQ);
    const ag_weight_spec k = weight_of(&s, AG_LT_WK);
    const ag_weight_spec v = weight_of(&s, AG_LT_WV);
    assert_string_equal(q.name, "blk.0.attn_q.weight");
    static const size_t in_a_head[] = {0, 2, 4, 1, 3, 5};
    for (size_t row = 0; row < 24; row++) {
        const size_t want = row / 6 * 6 + in_a_head[row % 6];
        assert_int_equal(ag_row_order_at(&q.order, row), want);
        if (row < 12) assert_int_equal(ag_row_order_at(&k.order, row), want);
    }
    assert_int_equal(q.order.file_rows, 24);
    assert_int_equal(k.order.file_rows, 12);
    assert_int_equal(v.order.file_rows, 0);
}

static void reads_weights_that_share_a_tensor(void **state) {
    (void)state;
    static const ag_tensor_alias aliases[] = {{AG_LT_WQ, "self_attn.qkv_proj.weight"},
                                              {AG_LT_WK, "self_attn.qkv_proj.weight"},
                                              {AG_LT_WV, "self_attn.qkv_proj.weight"},
                                              {.suffix = NULL}};
    ag_family family = {.aliases = aliases};
    ag_model_spec s = ag_spec_plain(4, 2, 6);
    s.family = &family;
    s.hidden_size = 24;
    s.n_layers = 1;
    const ag_layer_tensor tensors[] = {AG_LT_WQ, AG_LT_WK, AG_LT_WV};
    const size_t first[] = {0, 24, 36};
    for (int i = 0; i < 3; i++) {
        const ag_weight_spec w = weight_of(&s, tensors[i]);
        assert_string_equal(w.name, "model.layers.0.self_attn.qkv_proj.weight");
        assert_int_equal(w.order.file_rows, 48);
        assert_true(ag_row_order_is_range(&w.order));
        for (size_t row = 0; row < w.rows; row++)
            assert_int_equal(ag_row_order_at(&w.order, row), first[i] + row);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_fit_no_block_get_a_similar_type),
        cmocka_unit_test(last_matching_pattern_counts),
        cmocka_unit_test(rejects_types_that_are_not_of_weights),
        cmocka_unit_test(every_step_of_a_mix_adds_bits),
        cmocka_unit_test(reads_rows_of_heads_in_pairs),
        cmocka_unit_test(reads_weights_that_share_a_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
