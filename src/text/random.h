/* SPDX-License-Identifier: Apache-2.0 */
/* Random number generator xoshiro256**, seeded by splitmix64 (Blackman and Vigna,
 * arXiv:1805.01407). The numbers are equal on all platforms. */
#ifndef AG_TEXT_RANDOM_H
#define AG_TEXT_RANDOM_H

#include <stdint.h>

typedef struct ag_random {
    uint64_t s[4];
} ag_random;

void ag_random_seed(ag_random *r, uint64_t seed);
uint64_t ag_random_next(ag_random *r);
/* Returns a uniform number in [0, 1), a multiple of 2^-53. */
double ag_random_unit(ag_random *r);

#endif
