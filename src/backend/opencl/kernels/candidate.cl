/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a logit as a candidate: a word whose upper half is the value in unsigned order and whose
 * lower half is the complement of its id. Larger words are better; 0 is none. ag_cl_candidate()
 * decodes it. */
#ifndef CANDIDATE
#define CANDIDATE

/* Returns the order of a finite value: never 0 nor ~0. */
static inline uint order_of(float v) {
    const uint bits = as_uint(v == 0.0f ? 0.0f : v); /* -0 equals 0 */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline ulong candidate(float v, uint id) { return (ulong)order_of(v) << 32 | ~id; }

#endif
