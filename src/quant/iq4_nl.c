/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/blocks.h"

#include <string.h>

/* Values of the nibbles in units of d. */
static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

bool ag_quantize_iq4_nl(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK;
        ag_block_iq4_nl out;
        *block = b;
        float lowest, highest;
        ag_block_range(x, &lowest, &highest);
        /* The value of largest magnitude gets nibble 0. */
        const float extreme = highest > -lowest ? highest : lowest;
        out.d = ag_f32_to_f16(extreme / values[0]);
        if (!ag_f16_is_finite(out.d)) return false;
        const float d = ag_f16_to_f32(out.d), inverse = d != 0 ? 1 / d : 0;
        uint8_t q[AG_QK];
        for (int i = 0; i < AG_QK; i++) q[i] = ag_nearest_of(values, x[i] * inverse);
        ag_pack_nibbles(out.qs, q);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_iq4_nl(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++, dst += AG_QK) {
        ag_block_iq4_nl in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        const float d = ag_f16_to_f32(in.d);
        uint8_t q[AG_QK];
        ag_unpack_nibbles(q, in.qs);
        for (int i = 0; i < AG_QK; i++) dst[i] = d * (float)values[q[i]];
    }
}
