/* SPDX-License-Identifier: Apache-2.0 */
#include <antigravity/dtype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void sizes_are_those_of_the_formats(void **state) {
    (void)state;
    static const struct {
        ag_dtype dtype;
        size_t block, bytes, of_64;
    } want[] = {
        {AG_F32, 1, 4, 256}, {AG_F16, 1, 2, 128},   {AG_BF16, 1, 2, 128},  {AG_I32, 1, 4, 256},
        {AG_U8, 1, 1, 64},   {AG_Q4_0, 32, 18, 36}, {AG_Q4_1, 32, 20, 40}, {AG_Q8_0, 32, 34, 68},
    };
    assert_int_equal(sizeof want / sizeof want[0], AG_DTYPE_COUNT);
    for (size_t i = 0; i < AG_DTYPE_COUNT; i++) {
        assert_int_equal(ag_dtype_block(want[i].dtype), want[i].block);
        assert_int_equal(ag_dtype_block_bytes(want[i].dtype), want[i].bytes);
        assert_int_equal(ag_dtype_row_bytes(want[i].dtype, 64), want[i].of_64);
        assert_int_equal(ag_dtype_is_quantized(want[i].dtype), want[i].block == 32);
    }
}

static void rows_that_do_not_fit_have_no_size(void **state) {
    (void)state;
    assert_int_equal(ag_dtype_row_bytes(AG_Q4_0, 33), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_Q8_0, 31), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_F32, SIZE_MAX / 4 + 1), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_F32, SIZE_MAX / 4), SIZE_MAX / 4 * 4);
    assert_int_equal(ag_dtype_row_bytes(AG_Q8_0, SIZE_MAX / 32 * 32), 0);
    assert_int_equal(ag_dtype_row_bytes(AG_DTYPE_COUNT, 32), 0);
    assert_int_equal(ag_dtype_row_bytes((ag_dtype)-1, 32), 0);
}

static void names_go_both_ways(void **state) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_formats),
        cmocka_unit_test(rows_that_do_not_fit_have_no_size),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
