/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the best of rows whose values are spread in ways that a bound on them could miss. */
#include "core/backend_ops.h"
#include "unit/float_tensor.h"
#include "unit/opencl_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 9, MAX_ROWS = 64, MAX_N = 140000, MAX_WORDS = MAX_N / 32 + 1 };

static ag_backend *device;
static float values[ROWS * MAX_N];
static uint32_t masks[ROWS * MAX_WORDS];
static int32_t order[MAX_N];
static const float *sorted_row;
static uint32_t random_bits = 7;

static uint32_t next_bits(void) { return random_bits = random_bits * 1664525u + 1013904223u; }

static float next_value(void) { return (float)(int32_t)next_bits() * 0x1p-28f; }

static int best_first(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const float v = sorted_row[x], w = sorted_row[y];
    return v == w ? x - y : v > w ? -1 : 1;
}

static void check_row(const ag_top_k *top, const float *row, size_t n) {
    size_t n_finite = 0, bad = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (top->mask && !(top->mask[i / 32] >> (i % 32) & 1)) continue;
        if (isfinite(row[i])) order[n_finite++] = (int32_t)i;
        else if (row[i] != -INFINITY && bad == SIZE_MAX) bad = i;
    }
    sorted_row = row;
    qsort(order, n_finite, sizeof *order, best_first);
    assert_true(top->known);
    assert_int_equal(top->bad, bad);
    assert_int_equal(top->n, top->k < n_finite ? top->k : n_finite);
    for (size_t i = 0; i < top->n; i++) {
        const float value = row[order[i]] + 0.0f; /* -0 as 0 */
        assert_int_equal(top->best_ids[i], order[i]);
        assert_memory_equal(&top->best[i], &value, sizeof value);
    }
    for (size_t i = 0; i < top->n_ids; i++) {
        assert_memory_equal(&top->at[i], &row[top->ids[i]], sizeof *row);
    }
}

/* Returns the mask of a row: NULL, or of few tokens, or of about a half. Bits after n are set. */
static const uint32_t *make_mask(size_t row, size_t n) {
    const size_t n_words = (n + 31) / 32;
    uint32_t *mask = masks + row * n_words;
    for (size_t i = 0; i < n_words; i++) {
        const uint32_t high = next_bits() >> 16;
        mask[i] = row % 4 == 3 ? (i + row) % 5 == 0 : next_bits() ^ high;
    }
    if (n % 32) mask[n_words - 1] |= UINT32_MAX << n % 32;
    return row % 4 == 2 ? NULL : mask;
}

/* Checks rows [n] of values with different k and ids; the second row is not wanted. */
static void check_query(size_t rows, size_t n, bool masked) {
    static const size_t ks[ROWS] = {40, 1, 384, 7, 128, 257, 2, 64, 200};
    static ag_top_k found[MAX_ROWS];
    const int32_t ids[] = {(int32_t)n - 1, 0, (int32_t)n / 2};
    ag_top_k *tops[MAX_ROWS];
    ag_buffer *owner;
    const ag_tensor t = float_tensor(ag_backend_memory(device), &owner, values, rows, n);
    for (size_t r = 0; r < rows; r++) {
        found[r] = (ag_top_k){.k = ks[r % ROWS], .ids = ids, .n_ids = r % 4};
        if (masked) found[r].mask = make_mask(r, n);
        tops[r] = r == 1 ? NULL : &found[r];
    }
    assert_int_equal(ag_find_top_k(device, &t, tops), AG_OK);
    for (size_t r = 0; r < rows; r++) {
        if (tops[r]) check_row(tops[r], values + r * n, n);
    }
    ag_buffer_release(&owner);
}

static void check_rows(size_t rows, size_t n) {
    check_query(rows, n, false);
    check_query(rows, n, true);
}

static void fill(size_t count, float value) {
    for (size_t i = 0; i < count; i++) values[i] = value;
}

static void fill_random(size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = next_value();
}

static void rows_have_the_best_of_their_own_number(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 300, 2049, 50257, MAX_N};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill_random(ROWS * sizes[i]);
        check_rows(ROWS, sizes[i]);
    }
}

static void many_rows_have_masks_of_their_own(void **state) {
    (void)state;
    enum { N = 5003 };
    fill_random(MAX_ROWS * N);
    check_rows(MAX_ROWS, N);
}

static void equal_values_give_the_lowest_ids(void **state) {
    (void)state;
    fill(3 * MAX_N, -2.5f);
    check_rows(3, MAX_N);
    for (size_t i = 0; i < 3 * MAX_N; i++) values[i] = i % 3 ? 0.0f : -0.0f;
    check_rows(3, MAX_N);
    for (size_t i = 0; i < 3 * MAX_N; i++) values[i] = floorf(next_value());
    check_rows(3, MAX_N);
}

/* All values of the searched parts reach the bound: their list overflows. */
static void the_best_may_be_in_one_part(void **state) {
    (void)state;
    fill_random(3 * MAX_N);
    for (size_t r = 0; r < 3; r++) {
        for (size_t i = 0; i < 500; i++) values[r * MAX_N + 70001 + i] = 20 + next_value();
    }
    check_rows(3, MAX_N);
    for (size_t i = 0; i < MAX_N; i++) {
        values[i] = (float)i;
        values[MAX_N + i] = values[2 * MAX_N + i] = -(float)i;
    }
    check_rows(3, MAX_N);
    for (size_t i = 0; i < MAX_N; i++) values[2 * MAX_N + i] = (float)i;
    check_rows(3, MAX_N);
}

static void rows_may_have_few_finite_values(void **state) {
    (void)state;
    enum { N = 50257 };
    fill(4 * N, -INFINITY);
    for (size_t i = 0; i < 33; i++) values[i * 1507] = values[2 * N + i] = next_value();
    for (size_t i = 0; i < 300; i++) values[3 * N + 5 + 100 * i] = next_value();
    check_rows(4, N);
}

static void values_that_are_not_numbers_are_reported(void **state) {
    (void)state;
    enum { N = 50257 };
    fill_random(6 * N);
    values[N - 1] = NAN;
    for (size_t i = 0; i < N; i += 16) values[2 * N + i + 3] = i % 32 ? INFINITY : -NAN;
    for (size_t i = 0; i < N; i++) values[3 * N + i] = NAN;
    values[4 * N + 20000] = INFINITY;
    values[4 * N + 9000] = NAN;
    check_rows(6, N);
}

int main(void) {
    if (!(device = open_opencl())) return EXIT_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_best_of_their_own_number),
        cmocka_unit_test(many_rows_have_masks_of_their_own),
        cmocka_unit_test(equal_values_give_the_lowest_ids),
        cmocka_unit_test(the_best_may_be_in_one_part),
        cmocka_unit_test(rows_may_have_few_finite_values),
        cmocka_unit_test(values_that_are_not_numbers_are_reported),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(device);
    return failed;
}
