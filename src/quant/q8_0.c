/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/blocks.h"

#include <string.h>

/* Rounds to nearest with the scale as stored; the F32 scale would increase the error. */
static bool quantize_block(ag_block_q8_0 *out, const float *x) {
    float lowest, highest;
    ag_block_range(x, &lowest, &highest);
    float largest = highest > -lowest ? highest : -lowest;
    out->d = ag_f32_to_f16(largest / 127);
    float d = ag_f16_to_f32(out->d), inverse = d > 0 ? 1 / d : 0;
    for (int i = 0; i < AG_QK; i++) {
        int q = (int)(x[i] * inverse + 256.5f) - 256; /* the sum is positive: rounds down */
        q = q > 127 ? 127 : q;
        out->qs[i] = (int8_t)(q < -127 ? -127 : q);
    }
    return ag_f16_is_finite(out->d);
}

bool ag_quantize_q8_0(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        ag_block_q8_0 out;
        *block = b;
        if (!quantize_block(&out, src + b * AG_QK)) return false;
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q8_0(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++) {
        ag_block_q8_0 in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        float d = ag_f16_to_f32(in.d);
        for (int i = 0; i < AG_QK; i++) dst[b * AG_QK + (size_t)i] = (float)in.qs[i] * d;
    }
}
