/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to read memory from front to back. None is the fastest everywhere: widths of loads, numbers
 * of streams and distances of prefetching are tried. */
#ifndef MEASURE_READ_LOOPS_H
#define MEASURE_READ_LOOPS_H

#include <stddef.h>
#include <stdint.h>

enum { READ_LOOPS_MAX = 16, READ_UNIT_BYTES = 4096 };

/* Reads words[0..n), whole units; what it returns keeps the compiler honest. */
typedef uint64_t (*read_loop)(const uint64_t *words, size_t n);

/* Those that this processor can run; returns how many. */
size_t read_loops_list(read_loop loops[READ_LOOPS_MAX]);

#endif
