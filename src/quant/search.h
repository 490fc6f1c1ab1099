/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for the scales of a part of a block: the levels that follow from several scales are
 * tried, and of each the scale that is best for them by least squares. Errors are weighted: w[i]
 * says what the square of the error of x[i] counts. */
#ifndef AG_QUANT_SEARCH_H
#define AG_QUANT_SEARCH_H

#include "quant/superblock.h"

/* Parts of up to 32 values; x and w are borrowed. Levels are whole numbers of [low, high]. */
typedef struct ag_search {
    const float *x, *w;
    size_t n; /* a multiple of 8 */
    float low, high;
} ag_search;

/* The nearest level, halves to even: the sum has no places after the point. */
static inline float ag_search_level(float v, float low, float high) {
    v = v > low ? v : low;
    v = v < high ? v : high;
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

/* Weighted squares of the errors of d * level - m, m of any sign. */
float ag_search_error(const ag_search *s, float d, float m);
/* The levels themselves, counted from `low`. */
void ag_search_levels(uint8_t *q, const ag_search *s, float d, float m);

/* The best d found for x = d * level; low < 0 <= high. 0 where all of x is (nearly) 0. */
float ag_search_scale(const ag_search *s);
/* The best d >= 0 and m found for x = d * level - m; low == 0. signed_base: m may be below 0. */
void ag_search_scale_and_base(const ag_search *s, bool signed_base, float *d, float *m);

/* A block of 256 with weights w: what ag_round_parts and ag_round_signed_parts do, with as small an
 * error as the search finds, never a larger one. */
bool ag_search_parts(ag_block_parts *out, const float *x, const float *w, size_t part, int top,
                     int top_scale);
bool ag_search_signed_parts(ag_signed_parts *out, const float *x, const float *w, int lowest,
                            int lowest_scale);

#endif
