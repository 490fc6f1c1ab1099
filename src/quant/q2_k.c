/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/superblock.h"

#include <string.h>

bool ag_quantize_q2_k(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK_K;
        ag_block_q2_k out;
        *block = b;
        ag_superblock super;
        if (!ag_round_superblock(&super, x, 16, 3, 15)) return false;
        out.d = super.d;
        out.dmin = super.dmin;
        for (int i = 0; i < 16; i++) out.scales[i] = (uint8_t)(super.sc[i] | super.m[i] << 4);
        ag_put_fields(out.qs, super.q, 0, 2, 32);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q2_k(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++, dst += AG_QK_K) {
        ag_block_q2_k in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        uint8_t q[AG_QK_K];
        ag_get_fields(q, in.qs, 2, 32);
        for (int i = 0; i < AG_QK_K; i++) {
            const uint8_t both = in.scales[i / 16];
            const float scale = ag_f16_to_f32(in.d) * (float)(both & 15);
            dst[i] = scale * (float)q[i] - ag_f16_to_f32(in.dmin) * (float)(both >> 4);
        }
    }
}
