/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/blocks.h"

#include <string.h>

bool ag_quantize_q5_1(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK;
        ag_block_q5_1 out;
        *block = b;
        float lowest, highest;
        ag_block_range(x, &lowest, &highest);
        const float d = (highest - lowest) / 31;
        out.d = ag_f32_to_f16(d);
        out.m = ag_f32_to_f16(lowest);
        if (!ag_f16_is_finite(out.d) || !ag_f16_is_finite(out.m)) return false;
        const float inverse = out.d ? 1 / d : 0;
        uint8_t q[AG_QK];
        for (int i = 0; i < AG_QK; i++) {
            const int level = (int)((x[i] - lowest) * inverse + 0.5f);
            q[i] = (uint8_t)(level < 31 ? level : 31);
        }
        ag_pack_nibbles(out.qs, q);
        ag_pack_qh(out.qh, q);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q5_1(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++, dst += AG_QK) {
        ag_block_q5_1 in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        const float d = ag_f16_to_f32(in.d), m = ag_f16_to_f32(in.m);
        uint8_t q[AG_QK];
        ag_unpack_nibbles(q, in.qs);
        ag_unpack_qh(q, in.qh);
        for (int i = 0; i < AG_QK; i++) dst[i] = (float)q[i] * d + m;
    }
}
