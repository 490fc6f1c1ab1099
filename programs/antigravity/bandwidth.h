/* SPDX-License-Identifier: Apache-2.0 */
/* How fast this machine reads memory: what bounds the decoding of a model. */
#ifndef ANTIGRAVITY_BANDWIDTH_H
#define ANTIGRAVITY_BANDWIDTH_H

#include <stdint.h>

typedef struct bandwidth bandwidth;

/* Takes up to 1 GiB for as long as it lives. NULL without memory. */
bandwidth *bandwidth_create(uint32_t n_threads);
void bandwidth_destroy(bandwidth *b);

/* Bytes per second, the best of several loops: one stream or four, by each width of load that the
 * processor has. Takes about a second. 0: b is NULL or no thread could be started. */
double bandwidth_measure(bandwidth *b);

#endif
