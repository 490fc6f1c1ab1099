/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AG_TESTS_WITHOUT_MATRIX_UNITS_H
#define AG_TESTS_WITHOUT_MATRIX_UNITS_H

#include <stdlib.h>
#include <string.h>

/* Disables matrix units, for tests that need equal bits for any number of rows in a pass: matrix
 * units round differently. Must be called before a backend is created. */
static inline void without_matrix_units(void) {
    const char *cap = getenv("AG_CPU_ISA");
    if (!cap || !*cap || !strcmp(cap, "amx")) setenv("AG_CPU_ISA", "avx512", 1);
}

#endif
