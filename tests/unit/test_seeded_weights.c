/* SPDX-License-Identifier: Apache-2.0 */
#include "support/seeded_weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct written {
    unsigned char bytes[1024];
    size_t n;
} written;

static bool write_from(const char *manifest, written *w) {
    char in[] = "/tmp/ag-manifest-XXXXXX", out[] = "/tmp/ag-seeded-XXXXXX";
    const int fd = mkstemp(in), out_fd = mkstemp(out);
    assert_true(fd >= 0 && out_fd >= 0);
    assert_int_equal(write(fd, manifest, strlen(manifest)), strlen(manifest));
    const bool is_written = write_seeded_weights(in, out);
    w->n = (size_t)read(out_fd, w->bytes, sizeof w->bytes);
    close(fd);
    close(out_fd);
    unlink(in);
    unlink(out);
    return is_written;
}

/* Writes one tensor "model.norm.weight" of four elements with seed 1 and compares its bytes. */
static void check(const char *attributes, const void *want, size_t n_bytes) {
    char manifest[512];
    written w;
    snprintf(manifest, sizeof manifest,
             "{\"seed\": 1, \"dtype\": \"BF16\", \"tensors\": {\"model.norm.weight\": "
             "{\"shape\": [2, 2], %s}}}",
             attributes);
    assert_true(write_from(manifest, &w));
    assert_true(w.n > n_bytes);
    assert_memory_equal(w.bytes + w.n - n_bytes, want, n_bytes);
}

static void gives_the_values_of_the_specification(void **state) {
    (void)state;
    static const uint16_t bf16[] = {0x3f69, 0x3f89, 0x3f6a, 0x3f61};
    static const uint32_t f32[] = {0x3f69206a, 0x3f8882bf, 0x3f69a352, 0x3f612952};
    static const uint8_t u8[] = {122, 124, 122, 122};
    check("\"mean\": 1, \"half_range\": 0.25", bf16, sizeof bf16);
    check("\"dtype\": \"F32\", \"mean\": 1.0, \"half_range\": 0.25", f32, sizeof f32);
    check("\"dtype\": \"U8\", \"min\": 121, \"max\": 125", u8, sizeof u8);
}

static void zeroed_elements_advance_the_state(void **state) {
    (void)state;
    static const uint16_t bf16[] = {0x3f69, 0, 0, 0x3f61};
    static const uint8_t u8[] = {0, 124, 122, 122};
    check("\"mean\": 1, \"half_range\": 0.25, \"zero\": [1, 2]", bf16, sizeof bf16);
    check("\"dtype\": \"U8\", \"min\": 121, \"max\": 125, \"zero\": [0, 1]", u8, sizeof u8);
}

static void header_lists_tensors_in_order_without_gaps(void **state) {
    (void)state;
    static const char want[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                               "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                               "\"a\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[12,14]}}";
    written w;
    assert_true(write_from("{\"seed\": 9, \"dtype\": \"F32\", \"tensors\": {"
                           "\"b\": {\"shape\": [3], \"mean\": 0, \"half_range\": 1},"
                           "\"a\": {\"shape\": [1, 2], \"dtype\": \"U8\", \"min\": 0, "
                           "\"max\": 255}}}",
                           &w));
    const size_t n = strlen(want), padded = (n + 7) / 8 * 8;
    assert_int_not_equal(n, padded);
    assert_int_equal(w.n, 8 + padded + 14);
    assert_int_equal(w.bytes[0] | w.bytes[1] << 8, padded);
    assert_memory_equal(w.bytes + 8, want, n);
    for (size_t i = n; i < padded; i++) assert_int_equal(w.bytes[8 + i], ' ');
}

static void fails_for_other_types_and_files(void **state) {
    (void)state;
    written w;
    assert_false(write_from("{\"seed\": 1, \"dtype\": \"F16\", \"tensors\": {\"a\": "
                            "{\"shape\": [1], \"mean\": 0, \"half_range\": 1}}}",
                            &w));
    assert_false(write_from("{\"seed\": 1, ", &w));
    assert_false(write_seeded_weights("/nonexistent/weights.json", "/nonexistent/out"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_values_of_the_specification),
        cmocka_unit_test(zeroed_elements_advance_the_state),
        cmocka_unit_test(header_lists_tensors_in_order_without_gaps),
        cmocka_unit_test(fails_for_other_types_and_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
