/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the memory read rate of this machine: the limit of decoding. */
#ifndef MEASURE_BANDWIDTH_H
#define MEASURE_BANDWIDTH_H

#include <stdint.h>

typedef struct bandwidth bandwidth;

/* Allocates up to 1 GiB and finds the fastest read loops (read_loops.h), in about a second. If
 * AG_BANDWIDTH_MIB is set, 1 to 1024, it allocates that many MiB and each loop reads them twice;
 * then the rates are those of the caches. Returns NULL if out of memory. */
bandwidth *bandwidth_create(uint32_t n_threads);
void bandwidth_destroy(bandwidth *b);

/* Returns bytes per second: the best pass of the three fastest loops. Takes about a third of a
 * second. Returns 0 if b is NULL or threads fail. */
double bandwidth_measure(bandwidth *b);

/* Reads all of this memory, which evicts most other data from the caches. */
void bandwidth_sweep(bandwidth *b);

#endif
