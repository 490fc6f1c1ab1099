/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/blocks.h"

#include <string.h>

bool ag_quantize_q4_1(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK;
        float lowest, highest;
        ag_block_range(x, &lowest, &highest);
        ag_block_q4_1 out = {.d = ag_f32_to_f16((highest - lowest) / 15),
                             .m = ag_f32_to_f16(lowest)};
        *block = b;
        if (!ag_f16_is_finite(out.d) || !ag_f16_is_finite(out.m)) return false;
        const float scale = ag_f16_to_f32(out.d), base = ag_f16_to_f32(out.m);
        const float inverse = scale != 0 ? 1 / scale : 0;
        uint8_t q[AG_QK];
        for (int i = 0; i < AG_QK; i++) {
            const int level = (int)((x[i] - base) * inverse + 0.5f);
            q[i] = (uint8_t)(level < 0 ? 0 : level < 15 ? level : 15);
        }
        ag_pack_nibbles(out.qs, q);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q4_1(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++) {
        ag_block_q4_1 in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        float d = ag_f16_to_f32(in.d), m = ag_f16_to_f32(in.m), *out = dst + b * AG_QK;
        for (int i = 0; i < AG_QK / 2; i++) {
            out[i] = (float)(in.qs[i] & 15) * d + m;
            out[i + AG_QK / 2] = (float)(in.qs[i] >> 4) * d + m;
        }
    }
}
