/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of weights to groups of 16 rows. */
#include "backend/cpu/interleaved.h"

#include "backend/cpu/kernels.h"
#include "quant/superblock.h"

#include <string.h>

size_t ag_packed_bytes_x16(size_t k) { return ag_x16_row_bytes(k); }

/* Writes the nibbles of one block to row r of qs. In both orders byte i has elements i and i + 16.
 */
static void put_nibbles(uint8_t qs[4][AG_X16][4], size_t r, const uint8_t *block) {
    for (size_t v = 0; v < 4; v++) memcpy(qs[v][r], block + 4 * v, 4);
}

/* Returns four bytes as one word. Masks and shifts of callers stay within each byte. */
static uint32_t word_at(const uint8_t *p) {
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Writes the lower four bits of 64 levels: the low nibbles of 32 bytes to `low`, the high nibbles
 * to `high`. */
static void put_two_lows(uint8_t low[4][AG_X16][4], uint8_t high[4][AG_X16][4], size_t r,
                         const uint8_t *bytes) {
    const uint32_t nibble = 0x0f0f0f0fu;
    for (size_t v = 0; v < 4; v++) {
        const uint32_t first = word_at(bytes + 4 * v), second = word_at(bytes + 16 + 4 * v);
        const uint32_t x = (first & nibble) | (second & nibble) << 4;
        const uint32_t y = (first >> 4 & nibble) | (second & ~nibble);
        memcpy(low[v][r], &x, sizeof x);
        memcpy(high[v][r], &y, sizeof y);
    }
}

/* Writes the lower four bits of the levels of Q4_K and Q5_K. */
static void put_lows(uint8_t qs[AG_X16_K_BLOCKS][4][AG_X16][4], size_t r, const uint8_t *bytes) {
    for (size_t i = 0; i < AG_X16_K_BLOCKS; i += 2) {
        put_two_lows(qs[i], qs[i + 1], r, bytes + i * 16);
    }
}

/* Writes bits `shift` and `shift` + 1 of each of 32 bytes. */
static void put_pairs(uint8_t to[2][AG_X16][4], size_t r, const uint8_t *bytes, size_t shift) {
    for (size_t g = 0; g < 2; g++) {
        uint32_t word = 0;
        for (size_t f = 0; f < 4; f++) {
            word |= (word_at(bytes + 16 * g + 4 * f) >> shift & 0x03030303u) << 2 * f;
        }
        memcpy(to[g][r], &word, sizeof word);
    }
}

/* Writes the 2-bit fields of a super-block of 256: 64 bytes. */
static void put_all_pairs(uint8_t to[AG_X16_K_BLOCKS][2][AG_X16][4], size_t r,
                          const uint8_t bytes[64]) {
    for (size_t i = 0; i < AG_X16_K_BLOCKS; i++) put_pairs(to[i], r, bytes + i / 4 * 32, i % 4 * 2);
}

/* Writes one bit of each level; bit i of each of 32 bytes belongs to block i. */
static void put_bits(uint8_t to[AG_X16_K_BLOCKS][AG_X16][4], size_t r, const uint8_t bytes[32]) {
    for (size_t i = 0; i < AG_X16_K_BLOCKS; i++) {
        uint32_t word = 0;
        for (size_t v = 0; v < 8; v++) word |= (word_at(bytes + 4 * v) >> i & 0x01010101u) << v;
        memcpy(to[i][r], &word, sizeof word);
    }
}

/* ---- writing block b of a row to row r of a group ---- */

static void put_q4_0(ag_q4_0_x16 *steps, size_t r, size_t b, const ag_block_q4_0 *in) {
    steps[b / 2].d[b % 2][r] = in->d;
    put_nibbles(steps[b / 2].qs[b % 2], r, in->qs);
}

static void put_q4_1(ag_q4_1_x16 *steps, size_t r, size_t b, const ag_block_q4_1 *in) {
    steps[b / 2].d[b % 2][r] = in->d;
    steps[b / 2].m[b % 2][r] = in->m;
    put_nibbles(steps[b / 2].qs[b % 2], r, in->qs);
}

static void put_q8_0(ag_q8_0_x16 *steps, size_t r, size_t b, const ag_block_q8_0 *in) {
    steps[b / 2].d[b % 2][r] = in->d;
    for (size_t v = 0; v < AG_QK / 4; v++) {
        uint32_t four;
        memcpy(&four, in->qs + 4 * v, sizeof four);
        four ^= 0x80808080u; /* adds 128 to each byte */
        memcpy(steps[b / 2].qs[b % 2][v][r], &four, sizeof four);
    }
}

static void put_q5_0(ag_q5_0_x16 *steps, size_t r, size_t b, const ag_block_q5_0 *in) {
    steps[b / 2].d[b % 2][r] = in->d;
    put_nibbles(steps[b / 2].qs[b % 2], r, in->qs);
    ag_put_qh_words(steps[b / 2].qh[b % 2][r], in->qh);
}

static void put_q5_1(ag_q5_1_x16 *steps, size_t r, size_t b, const ag_block_q5_1 *in) {
    steps[b / 2].d[b % 2][r] = in->d;
    steps[b / 2].m[b % 2][r] = in->m;
    put_nibbles(steps[b / 2].qs[b % 2], r, in->qs);
    ag_put_qh_words(steps[b / 2].qh[b % 2][r], in->qh);
}

static void put_scales(ag_x16_scales *to, size_t r, const uint8_t *sc, const uint8_t *m) {
    for (size_t b = 0; b < AG_X16_K_BLOCKS; b++) {
        const int shift = b % 2 * 4, high = sc[b] >> 4 | m[b] >> 4 << 2;
        to->low[b][r] = (uint8_t)((sc[b] & 15) | m[b] << 4);
        if (!shift) to->high[b / 2][r] = 0;
        to->high[b / 2][r] |= (uint8_t)(high << shift);
    }
}

static void put_q4_k_scales(ag_x16_scales *to, size_t r, const uint8_t packed[12]) {
    uint8_t sc[AG_X16_K_BLOCKS], m[AG_X16_K_BLOCKS];
    ag_q4_k_scales(sc, m, packed);
    put_scales(to, r, sc, m);
}

enum { MINUS = 0x8000 }; /* sign bit of an F16 */

static void put_q4_k(ag_q4_k_x16 *steps, size_t r, size_t b, const ag_block_q4_k *in) {
    ag_q4_k_x16 *to = &steps[b];
    to->d[r] = in->d;
    to->m[r] = in->dmin ^ MINUS;
    put_q4_k_scales(&to->scales, r, in->scales);
    put_lows(to->qs, r, in->qs);
}

static void put_q5_k(ag_q5_k_x16 *steps, size_t r, size_t b, const ag_block_q5_k *in) {
    ag_q5_k_x16 *to = &steps[b];
    to->d[r] = in->d;
    to->m[r] = in->dmin ^ MINUS;
    put_q4_k_scales(&to->scales, r, in->scales);
    put_lows(to->qs, r, in->qs);
    put_bits(to->qh, r, in->qh);
}

static void put_q6_k(ag_q6_k_x16 *steps, size_t r, size_t b, const ag_block_q6_k *in) {
    ag_q6_k_x16 *to = &steps[b];
    to->d[r] = in->d;
    to->unused[r] = 0;
    for (size_t i = 0; i < AG_X16_K_BLOCKS; i++) {
        for (size_t g = 0; g < 2; g++) to->scales[i][g][r] = in->scales[2 * i + g];
    }
    for (size_t i = 0; i < 4; i++) { /* 32 bytes hold blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7 */
        const size_t block = i / 2 * 4 + i % 2;
        put_two_lows(to->qs[block], to->qs[block + 2], r, in->ql + 32 * i);
    }
    put_all_pairs(to->qh, r, in->qh);
}

static void put_q3_k(ag_q3_k_x16 *steps, size_t r, size_t b, const ag_block_q3_k *in) {
    ag_q3_k_x16 *to = &steps[b];
    uint8_t first[AG_X16_K_BLOCKS], second[AG_X16_K_BLOCKS];
    int8_t scales[16];
    ag_q3_k_scales(scales, in->scales);
    to->d[r] = in->d;
    to->unused[r] = 0;
    for (size_t i = 0; i < AG_X16_K_BLOCKS; i++) {
        first[i] = (uint8_t)(scales[2 * i] + 32);
        second[i] = (uint8_t)(scales[2 * i + 1] + 32);
    }
    put_scales(&to->scales, r, first, second);
    put_all_pairs(to->qs, r, in->qs);
    put_bits(to->qh, r, in->hmask);
}

static void put_q2_k(ag_q2_k_x16 *steps, size_t r, size_t b, const ag_block_q2_k *in) {
    ag_q2_k_x16 *to = &steps[b];
    to->d[r] = in->d;
    to->m[r] = in->dmin ^ MINUS;
    for (size_t i = 0; i < AG_X16_K_BLOCKS; i++) {
        for (size_t g = 0; g < 2; g++) to->scales[i][g][r] = in->scales[2 * i + g];
    }
    put_all_pairs(to->qs, r, in->qs);
}

static void put_iq4_nl(ag_iq4_nl_x16 *steps, size_t r, size_t b, const ag_block_iq4_nl *in) {
    steps[b / 2].d[b % 2][r] = in->d;
    put_nibbles(steps[b / 2].qs[b % 2], r, in->qs);
}

static void put_mxfp4(ag_mxfp4_x16 *steps, size_t r, size_t b, const ag_block_mxfp4 *in) {
    steps[b / 2].e[b % 2][r] = in->e;
    put_nibbles(steps[b / 2].qs[b % 2], r, in->qs);
}

/* ---- the table ---- */

/* A group that is not full, or whose last step is not, is zeroed first. */
#define LAYOUT(NAME, name)                                                                  \
    static size_t group_bytes_##name(size_t k) {                                            \
        const size_t columns = AG_X16_STEP_BLOCKS(name) * AG_QK;                            \
        return (k + columns - 1) / columns * sizeof(ag_##name##_x16);                       \
    }                                                                                       \
    static void fill_##name(void *group, const void *rows, size_t row_bytes, size_t n_rows, \
                            size_t k) {                                                     \
        const size_t n_blocks = ag_dtype_row_bytes(AG_##NAME, k) / sizeof(ag_block_##name); \
        if (n_rows < AG_X16 || k % AG_X16_COLS) memset(group, 0, group_bytes_##name(k));    \
        for (size_t b = 0; b < n_blocks; b++) { /* each step is written once */             \
            const unsigned char *from = rows;                                               \
            for (size_t r = 0; r < n_rows; r++, from += row_bytes) {                        \
                const ag_block_##name *row = (const void *)from;                            \
                put_##name(group, r, b, &row[b]);                                           \
            }                                                                               \
        }                                                                                   \
    }                                                                                       \
    const ag_cpu_layout ag_layout_##name##_x16 = {LAYOUT_X16, AG_X16, group_bytes_##name,   \
                                                  fill_##name};
enum { LAYOUT_X16 = 1 };
AG_X16_MAP(LAYOUT)
