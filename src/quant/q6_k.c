/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/superblock.h"

#include <string.h>

bool ag_quantize_q6_k(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK_K;
        *block = b;
        ag_signed_superblock super;
        if (!ag_round_signed_superblock(&super, x, -32, -128)) return false;
        ag_block_q6_k out = {.d = super.d};
        memcpy(out.scales, super.sc, sizeof out.scales);
        ag_put_fields(out.ql, super.q, 0, 4, 64);
        ag_put_fields(out.qh, super.q, 4, 2, 32);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q6_k(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++, dst += AG_QK_K) {
        ag_block_q6_k in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        uint8_t q[AG_QK_K];
        ag_q6_k_levels(q, &in);
        for (int i = 0; i < AG_QK_K; i++) {
            dst[i] = ag_f16_to_f32(in.d) * (float)in.scales[i / 16] * (float)(q[i] - 32);
        }
    }
}
