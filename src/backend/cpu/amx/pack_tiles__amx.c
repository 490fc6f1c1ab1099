/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/amx.h"

#include <immintrin.h>
#include <string.h>

enum { BLOCK = 32, TILE_BYTES = 1024, ROW_BYTES = TILE_BYTES / AG_X16 };

static size_t n_blocks(size_t k) { return ag_x16_steps(k) * 2; }

size_t ag_packed_bytes_tiles__amx(size_t k) { return n_blocks(k) * ROW_BYTES; }

/* Rounds to the nearest bfloat16, ties to even. NaN gives NaN. */
static __m256i round_to_bf16(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_mov_epi32(r, nan, _mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}

void ag_pack_tiles__amx(void *panel, const float *x, size_t row, size_t m, size_t k) {
    const size_t in_tile = row % AG_X16, blocks = n_blocks(k);
    unsigned char *to = (unsigned char *)panel + (row - in_tile) * ag_packed_bytes_tiles__amx(k);
    to += in_tile * ROW_BYTES;
    const size_t n_missing = row + 1 == m ? AG_X16 - 1 - in_tile : 0;
    for (size_t b = 0; b < blocks; b++, to += TILE_BYTES) {
        __m256i low = _mm256_setzero_si256(), high = low;
        if (b * BLOCK < k) { /* k is a multiple of BLOCK */
            low = round_to_bf16(_mm512_loadu_ps(x + b * BLOCK));
            high = round_to_bf16(_mm512_loadu_ps(x + b * BLOCK + 16));
        }
        _mm256_store_si256((void *)to, low);
        _mm256_store_si256((void *)(to + 32), high);
        if (n_missing) memset(to + ROW_BYTES, 0, n_missing * ROW_BYTES);
    }
}
