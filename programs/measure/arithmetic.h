/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the arithmetic rate of this machine: the limit of prompt processing. */
#ifndef MEASURE_ARITHMETIC_H
#define MEASURE_ARITHMETIC_H

#include "peak_loops.h"

#include <stdint.h>

/* Returns operations per second of a loop in registers; a multiply-add counts as two. Kind bytes
 * uses the instruction set's integer products. `isa` is a name that AG_CPU_ISA accepts and this
 * machine supports. Returns 0 if the set has no such loop or threads fail. Takes about 50 ms. */
double arithmetic_measure(const char *isa, arithmetic_kind kind, uint32_t n_threads);

#endif
