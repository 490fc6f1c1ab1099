/* SPDX-License-Identifier: Apache-2.0 */
#include <antigravity/dtype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void sizes_equal_the_formats(void **state) {
    (void)state;
    static const struct {
        ag_dtype dtype;
        size_t block, bytes, of_64, scales;
    } want[] = {
        {AG_F32, 1, 4, 256, 0},     {AG_F16, 1, 2, 128, 0},    {AG_BF16, 1, 2, 128, 0},
        {AG_I32, 1, 4, 256, 0},     {AG_U8, 1, 1, 64, 0},      {AG_Q4_0, 32, 18, 36, 1},
        {AG_Q4_1, 32, 20, 40, 2},   {AG_Q8_0, 32, 34, 68, 1},  {AG_Q5_0, 32, 22, 44, 1},
        {AG_Q5_1, 32, 24, 48, 2},   {AG_Q2_K, 256, 84, 0, 0},  {AG_Q3_K, 256, 110, 0, 0},
        {AG_Q4_K, 256, 144, 0, 2},  {AG_Q5_K, 256, 176, 0, 2}, {AG_Q6_K, 256, 210, 0, 0},
        {AG_IQ4_NL, 32, 18, 36, 1}, {AG_MXFP4, 32, 17, 34, 0},
    };
    assert_int_equal(sizeof want / sizeof want[0], AG_DTYPE_COUNT);
    for (size_t i = 0; i < AG_DTYPE_COUNT; i++) {
        assert_int_equal(ag_dtype_block(want[i].dtype), want[i].block);
        assert_int_equal(ag_dtype_block_bytes(want[i].dtype), want[i].bytes);
        assert_int_equal(ag_dtype_row_bytes(want[i].dtype, 64), want[i].of_64);
        assert_int_equal(ag_dtype_scales(want[i].dtype), want[i].scales);
        assert_int_equal(ag_dtype_is_quantized(want[i].dtype), want[i].block > 1);
    }
}

static void rows_that_fit_no_block_have_size_0(void **state) {
    (void)state;
    assert_int_equal(ag_dtype_row_bytes(AG_Q4_0, 33), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_Q8_0, 31), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_Q6_K, 128), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_Q6_K, 512), 420);
    assert_int_equal(ag_dtype_row_bytes(AG_F32, SIZE_MAX / 4 + 1), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_F32, SIZE_MAX / 4), SIZE_MAX / 4 * 4);
    assert_int_equal(ag_dtype_row_bytes(AG_Q8_0, SIZE_MAX / 32 * 32), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_DTYPE_COUNT, 32), 0);
    assert_int_equal(ag_dtype_row_bytes((ag_dtype)-1, 32), 0);
}

static void parses_its_own_names(void **state) {
    (void)state;
    for (int i = 0; i < AG_DTYPE_COUNT; i++) {
        ag_dtype back = AG_DTYPE_COUNT;
        assert_true(ag_dtype_parse(ag_dtype_name((ag_dtype)i), &back));
        assert_int_equal(back, i);
    }
    ag_dtype got = AG_U8;
    assert_true(ag_dtype_parse("Q4_0", &got));
    assert_int_equal(got, AG_Q4_0);
    assert_false(ag_dtype_parse("q4", &got));
    assert_false(ag_dtype_parse("", &got));
    assert_int_equal(got, AG_Q4_0);
    assert_string_equal(ag_dtype_name((ag_dtype)99), "?");
}

static void lists_types_by_role(void **state) {
    (void)state;
    char list[AG_DTYPE_LIST];
    assert_string_equal(ag_dtype_list(AG_DTYPE_WEIGHT, list, sizeof list),
                        "f32, f16, bf16, q4_0, q4_1, q8_0, "
                        "q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4");
    assert_string_equal(ag_dtype_list(AG_DTYPE_CACHE, list, sizeof list), "f32, f16, q4_0, q8_0");
    assert_string_equal(ag_dtype_list(AG_DTYPE_WEIGHT | AG_DTYPE_CACHE, list, sizeof list),
                        "f32, f16, q4_0, q8_0");
    assert_string_equal(ag_dtype_list(0, list, sizeof list),
                        "f32, f16, bf16, i32, u8, q4_0, q4_1, q8_0, "
                        "q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4");
    assert_string_equal(ag_dtype_list(AG_DTYPE_CACHE, list, 6), "f32, ");
    assert_false(ag_dtype_may_be(AG_I32, AG_DTYPE_FLOATS));
    assert_true(ag_dtype_may_be(AG_Q4_1, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT));
    assert_false(ag_dtype_may_be(AG_Q4_1, AG_DTYPE_WEIGHT | AG_DTYPE_CACHE));
    assert_false(ag_dtype_may_be(AG_DTYPE_COUNT, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_equal_the_formats),
        cmocka_unit_test(rows_that_fit_no_block_have_size_0),
        cmocka_unit_test(parses_its_own_names),
        cmocka_unit_test(lists_types_by_role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
