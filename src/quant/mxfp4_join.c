/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/quant.h"

/* Half j of a block of the file has values 2j and 2j + 1. */
static uint8_t nibble_at(const uint8_t *nibbles, int i) {
    return (uint8_t)(nibbles[i / 2] >> 4 * (i % 2) & 15);
}

void ag_join_mxfp4(void *dst, const uint8_t *nibbles, const uint8_t *exponents, size_t n_blocks) {
    ag_block_mxfp4 *blocks = dst;
    for (size_t b = 0; b < n_blocks; b++, nibbles += AG_QK / 2) {
        blocks[b].e = exponents[b];
        for (int i = 0; i < AG_QK / 2; i++) {
            const uint8_t low = nibble_at(nibbles, i), high = nibble_at(nibbles, i + AG_QK / 2);
            blocks[b].qs[i] = (uint8_t)(low | high << 4);
        }
    }
}
