/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that read memory sequentially. None is fastest everywhere: they differ in load width,
 * number of streams and prefetch distance. */
#ifndef MEASURE_READ_LOOPS_H
#define MEASURE_READ_LOOPS_H

#include <stddef.h>
#include <stdint.h>

enum { READ_LOOPS_MAX = 16, READ_UNIT_BYTES = 4096 };

/* Reads words[0..n); n must be a multiple of READ_UNIT_BYTES / 8. Returns a checksum so that the
 * loads are not optimised away. */
typedef uint64_t (*read_loop)(const uint64_t *words, size_t n);

/* Lists the loops that this processor supports, and returns their number. */
size_t read_loops_list(read_loop loops[READ_LOOPS_MAX]);

#endif
