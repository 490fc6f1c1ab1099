/* SPDX-License-Identifier: Apache-2.0 */
/* Weights on their way from rows to groups of 16 rows. */
#include "backend/cpu/interleaved.h"

#include "backend/cpu/kernels.h"
#include "quant/quant.h"

#include <string.h>

size_t ag_packed_bytes_x16(size_t k) { return ag_x16_row_bytes(k); }

static size_t group_bytes_q4_0(size_t k) { return ag_x16_steps(k) * sizeof(ag_q4_0_x16); }
static size_t group_bytes_q4_1(size_t k) { return ag_x16_steps(k) * sizeof(ag_q4_1_x16); }
static size_t group_bytes_q8_0(size_t k) { return ag_x16_steps(k) * sizeof(ag_q8_0_x16); }

/* Otherwise some of the group is written by no row. */
static int is_whole(size_t n_rows, size_t k) { return n_rows == AG_X16 && k % AG_X16_COLS == 0; }

/* The nibbles of one block, for row r of qs. In both orders byte i holds elements i and i + 16. */
static void put_nibbles(uint8_t qs[4][AG_X16][4], size_t r, const uint8_t *block) {
    for (size_t v = 0; v < 4; v++) memcpy(qs[v][r], block + 4 * v, 4);
}

static void fill_q4_0(void *group, const void *rows, size_t row_bytes, size_t n_rows, size_t k) {
    if (!is_whole(n_rows, k)) memset(group, 0, group_bytes_q4_0(k));
    for (size_t r = 0; r < n_rows; r++) {
        ag_q4_0_x16 *steps = group;
        const unsigned char *row = (const unsigned char *)rows + r * row_bytes;
        for (size_t b = 0; b < k / AG_QK; b++) {
            ag_block_q4_0 block;
            memcpy(&block, row + b * sizeof block, sizeof block);
            steps[b / 2].d[b % 2][r] = block.d;
            put_nibbles(steps[b / 2].qs[b % 2], r, block.qs);
        }
    }
}

static void fill_q4_1(void *group, const void *rows, size_t row_bytes, size_t n_rows, size_t k) {
    if (!is_whole(n_rows, k)) memset(group, 0, group_bytes_q4_1(k));
    for (size_t r = 0; r < n_rows; r++) {
        ag_q4_1_x16 *steps = group;
        const unsigned char *row = (const unsigned char *)rows + r * row_bytes;
        for (size_t b = 0; b < k / AG_QK; b++) {
            ag_block_q4_1 block;
            memcpy(&block, row + b * sizeof block, sizeof block);
            steps[b / 2].d[b % 2][r] = block.d;
            steps[b / 2].m[b % 2][r] = block.m;
            put_nibbles(steps[b / 2].qs[b % 2], r, block.qs);
        }
    }
}

static void fill_q8_0(void *group, const void *rows, size_t row_bytes, size_t n_rows, size_t k) {
    if (!is_whole(n_rows, k)) memset(group, 0, group_bytes_q8_0(k));
    for (size_t r = 0; r < n_rows; r++) {
        ag_q8_0_x16 *steps = group;
        const unsigned char *row = (const unsigned char *)rows + r * row_bytes;
        for (size_t b = 0; b < k / AG_QK; b++) {
            ag_block_q8_0 block;
            memcpy(&block, row + b * sizeof block, sizeof block);
            steps[b / 2].d[b % 2][r] = block.d;
            for (size_t i = 0; i < AG_QK; i++) {
                steps[b / 2].qs[b % 2][i / 4][r][i % 4] = (uint8_t)(block.qs[i] + 128);
            }
        }
    }
}

enum { LAYOUT_X16 = 1 };
const ag_cpu_layout ag_layout_q4_0_x16 = {LAYOUT_X16, AG_X16, group_bytes_q4_0, fill_q4_0};
const ag_cpu_layout ag_layout_q4_1_x16 = {LAYOUT_X16, AG_X16, group_bytes_q4_1, fill_q4_1};
const ag_cpu_layout ag_layout_q8_0_x16 = {LAYOUT_X16, AG_X16, group_bytes_q8_0, fill_q8_0};
