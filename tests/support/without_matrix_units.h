/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AG_TESTS_WITHOUT_MATRIX_UNITS_H
#define AG_TESTS_WITHOUT_MATRIX_UNITS_H

#include <stdlib.h>
#include <string.h>

/* For tests that want the same bits however many rows a pass has: matrix units round many rows in
 * another way than few. Before a backend is made. */
static inline void without_matrix_units(void) {
    const char *cap = getenv("AG_CPU_ISA");
    if (!cap || !*cap || !strcmp(cap, "amx")) setenv("AG_CPU_ISA", "avx512", 1);
}

#endif
