/* SPDX-License-Identifier: Apache-2.0 */
/* A logit as a word that grows with its worth: the value's bits in an order of unsigned numbers
 * above, the complement of its id below; 0 is none. ag_cl_candidate() takes it apart. */
#ifndef CANDIDATE
#define CANDIDATE

static inline ulong candidate(float v, uint id) {
    const uint bits = as_uint(v == 0.0f ? 0.0f : v); /* zeros are equals, whatever their sign */
    const uint order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (ulong)order << 32 | ~id;
}

#endif
