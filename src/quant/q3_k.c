/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/superblock.h"

#include <string.h>

void ag_q3_k_scales(int8_t sc[16], const uint8_t packed[12]) {
    for (int p = 0; p < 16; p++) {
        const int low = packed[p % 8] >> p / 8 * 4 & 15, high = packed[8 + p % 4] >> p / 4 * 2 & 3;
        sc[p] = (int8_t)((low | high << 4) - 32);
    }
}

static void pack_scales(uint8_t packed[12], const int8_t sc[16]) {
    memset(packed, 0, 12);
    for (int p = 0; p < 16; p++) {
        const unsigned scale = (unsigned)(sc[p] + 32);
        packed[p % 8] |= (uint8_t)((scale & 15) << p / 8 * 4);
        packed[8 + p % 4] |= (uint8_t)(scale >> 4 << p / 4 * 2);
    }
}

bool ag_quantize_q3_k(void *dst, const float *src, size_t n_blocks, size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK_K;
        ag_block_q3_k out;
        *block = b;
        ag_signed_superblock super;
        if (!ag_round_signed_superblock(&super, x, -4, -32)) return false;
        out.d = super.d;
        pack_scales(out.scales, super.sc);
        ag_put_fields(out.qs, super.q, 0, 2, 32);
        ag_put_fields(out.hmask, super.q, 2, 1, 32);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q3_k(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++, dst += AG_QK_K) {
        ag_block_q3_k in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        uint8_t q[AG_QK_K];
        int8_t scales[16];
        ag_q3_k_scales(scales, in.scales);
        ag_q3_k_levels(q, &in);
        for (int i = 0; i < AG_QK_K; i++) {
            const int level = q[i] - 4;
            dst[i] = ag_f16_to_f32(in.d) * (float)scales[i / 16] * (float)level;
        }
    }
}
