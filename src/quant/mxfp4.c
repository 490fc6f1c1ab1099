/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/blocks.h"

#include <math.h>
#include <string.h>

/* Values of the nibbles in units of d, twice those of 4-bit floats: a sign, two bits of exponent,
 * one of mantissa. */
static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Returns d, half of 2^(e - 127); NaN for 255. */
static float scale_of(uint8_t e) {
    const uint32_t bits = e == 255 ? 0x7fc00000u : e < 2 ? 0x00200000u << e : (e - 1u) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* Returns the exponent that puts the largest value between 4 and 8 units; the largest level is
 * 6. At least 3, so that the scale has an inverse. */
static uint8_t exponent_of(float largest) {
    int e;
    (void)frexpf(largest, &e); /* largest = 2^e * [1/2, 1) */
    e += 127 - 3;
    return (uint8_t)(largest == 0 || e < 3 ? 3 : e);
}

bool ag_quantize_mxfp4(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK;
        ag_block_mxfp4 out;
        *block = b;
        float lowest, highest;
        ag_block_range(x, &lowest, &highest);
        out.e = exponent_of(highest > -lowest ? highest : -lowest);
        const float inverse = 1 / scale_of(out.e);
        uint8_t q[AG_QK];
        for (int i = 0; i < AG_QK; i++) q[i] = ag_nearest_of(values, x[i] * inverse);
        ag_pack_nibbles(out.qs, q);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_mxfp4(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++, dst += AG_QK) {
        ag_block_mxfp4 in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        const float d = scale_of(in.e);
        uint8_t q[AG_QK];
        ag_unpack_nibbles(q, in.qs);
        for (int i = 0; i < AG_QK; i++) dst[i] = d * (float)values[q[i]];
    }
}
