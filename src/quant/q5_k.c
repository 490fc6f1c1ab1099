/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/superblock.h"

#include <string.h>

bool ag_quantize_q5_k(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK_K;
        *block = b;
        ag_superblock super;
        if (!ag_round_superblock(&super, x, 32, 31, 63)) return false;
        ag_block_q5_k out = {.d = super.d, .dmin = super.dmin};
        ag_pack_q4_k_scales(out.scales, super.sc, super.m);
        ag_put_fields(out.qs, super.q, 0, 4, 32);
        ag_put_fields(out.qh, super.q, 4, 1, 32);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q5_k(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++, dst += AG_QK_K) {
        ag_block_q5_k in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        uint8_t q[AG_QK_K];
        ag_q5_k_levels(q, &in);
        ag_dequantize_superblock_32(dst, q, in.d, in.dmin, in.scales);
    }
}
