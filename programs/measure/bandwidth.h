/* SPDX-License-Identifier: Apache-2.0 */
/* How fast this machine reads memory: what bounds the decoding of a model. */
#ifndef MEASURE_BANDWIDTH_H
#define MEASURE_BANDWIDTH_H

#include <stdint.h>

typedef struct bandwidth bandwidth;

/* Takes up to 1 GiB for as long as it lives, and about a second to find the fastest of the read
 * loops (read_loops.h). With AG_BANDWIDTH_MIB, 1 to 1024, in the environment it takes this number
 * of MiB and each loop reads it twice: rates are those of the caches then. NULL without memory. */
bandwidth *bandwidth_create(uint32_t n_threads);
void bandwidth_destroy(bandwidth *b);

/* Bytes per second, the best of some passes of the three fastest loops over this memory; takes
 * about a third of a second. 0: b is NULL or its threads could not be started. */
double bandwidth_measure(bandwidth *b);

/* Reads this memory, after which the caches hold little else. */
void bandwidth_sweep(bandwidth *b);

#endif
