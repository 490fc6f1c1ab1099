/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of multiply-adds in registers, one row for each instruction set and kind. */
#ifndef MEASURE_PEAK_LOOPS_H
#define MEASURE_PEAK_LOOPS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum arithmetic_kind { ARITHMETIC_FLOATS, ARITHMETIC_BYTES } arithmetic_kind;

typedef struct peak_loop {
    const char *isa;
    arithmetic_kind kind;
    double operations;     /* per step */
    bool (*prepare)(void); /* called in each thread; false: not available; NULL: none */
    void (*run)(size_t n_steps);
} peak_loop;

extern const peak_loop peak_loops[];
extern const size_t n_peak_loops;

#endif
