/* SPDX-License-Identifier: Apache-2.0 */
/* How fast this machine multiplies and adds: what bounds the reading of a prompt. */
#ifndef MEASURE_ARITHMETIC_H
#define MEASURE_ARITHMETIC_H

#include <stdint.h>

typedef enum arithmetic_kind { ARITHMETIC_FLOATS, ARITHMETIC_BYTES } arithmetic_kind;

/* Operations per second, two for a multiplication and its addition, of a loop in registers: floats
 * in float, bytes as the instruction set multiplies them. `isa` is a name as AG_CPU_ISA takes it,
 * of a set that this machine has; 0 where it has no such instruction, or threads fail. Takes about
 * 50 ms. */
double arithmetic_measure(const char *isa, arithmetic_kind kind, uint32_t n_threads);

#endif
