/* SPDX-License-Identifier: Apache-2.0 */
/* Portable C, for processors without specific loops. */
#include "peak_loops.h"

enum { CHAINS = 12 };

static void floats(size_t n) {
    volatile float sink;
    float s[CHAINS] = {0}, a = 0.5f;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) s[i] = s[i] * a + a;
    }
    for (int i = 0; i < CHAINS; i++) sink = s[i];
    (void)sink;
}

const peak_loop peak_loops[] = {{"common", ARITHMETIC_FLOATS, 2.0 * CHAINS, NULL, floats}};
const size_t n_peak_loops = sizeof peak_loops / sizeof peak_loops[0];
