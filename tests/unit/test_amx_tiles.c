/* SPDX-License-Identifier: Apache-2.0 */
/* The AMX kernels with tiles in plain C against AVX-512, to the last bit. Linked with kernels of
 * its own, which stand in the place of the library's. */
#include "backend/cpu/features.h"
#include "backend/cpu/kernels.h"
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *lines(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

/* Any bytes are nibbles and levels; the halves of a step are made small numbers. */
static unsigned char *random_groups(const ag_cpu_matmul *kernel, size_t n, size_t k) {
    const size_t groups = (n + AG_X16 - 1) / AG_X16, bytes = kernel->layout->group_bytes(k);
    const size_t step = bytes / ag_x16_steps(k), halves = step % 256 ? step % 256 : step % 512;
    unsigned char *p = lines(groups * bytes);
    uint32_t state = 7;
    for (size_t i = 0; i < groups * bytes; i++) p[i] = (unsigned char)(next_random(&state) >> 24);
    for (size_t at = 0; at < groups * bytes; at += step) {
        for (size_t i = 1; i < halves; i += 2)
            p[at + i] = (unsigned char)(0x20 | (p[at + i] & 0x87));
    }
    return p;
}

static float *product(const ag_cpu_matmul *kernel, const unsigned char *groups, size_t m, size_t n,
                      size_t k) {
    float *x = malloc(k * sizeof *x), *y = calloc(m * n, sizeof *y);
    unsigned char *panel = lines(m * kernel->packed_bytes(k));
    void *scratch = lines(kernel->scratch_bytes ? kernel->scratch_bytes(k) : 64);
    uint32_t state = 3;
    for (size_t i = 0; i < m; i++) {
        for (size_t l = 0; l < k; l++) x[l] = (float)(int32_t)next_random(&state) * 0x1p-31f;
        kernel->pack(panel, x, i, m, k);
    }
    const ag_cpu_weight w = {.data = groups, .k = k};
    kernel->rows(y, n, panel, m, &w, 0, n, scratch);
    free(scratch);
    free(panel);
    free(x);
    return y;
}

static void tiles_give_the_bits_of_avx512(void **state) {
    (void)state;
    static const size_t sizes[][3] = {{16, 16, 32},   {15, 33, 96},   {17, 15, 64},
                                      {48, 33, 2080}, {31, 64, 1056}, {275, 40, 544}};
    static const ag_dtype types[] = {AG_Q4_0, AG_Q4_1, AG_Q8_0};
    if (!(ag_cpu_features() >> AG_CPU_AVX512 & 1)) {
        print_message("skipped: this machine has no AVX-512\n");
        skip();
    }
    ag_cpu_kernels avx512 = {0}, amx = {0};
    ag_cpu_kernels_avx512(&avx512);
    ag_cpu_kernels_amx(&amx);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        for (size_t t = 0; t < 3; t++) {
            const ag_cpu_matmul *kernel = avx512.prepared[types[t]];
            unsigned char *groups = random_groups(kernel, n, k);
            float *want = product(kernel, groups, m, n, k);
            float *have = product(amx.prepared[types[t]], groups, m, n, k);
            assert_memory_equal(have, want, m * n * sizeof *want);
            free(have);
            free(want);
            free(groups);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_give_the_bits_of_avx512)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
