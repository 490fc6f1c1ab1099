/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/layout.h"

#include "quant/quant.h"
#include "quant/superblock.h"

#include <string.h>

enum { HALF = 2 };

/* ---- splitting a block of a file ---- */

static const struct layout {
    unsigned char bytes[AG_CL_PLANES]; /* bytes of a block in each plane */
    void (*split)(ag_dtype type, unsigned char *const to[], const unsigned char *block);
} layouts[AG_DTYPE_COUNT];

/* Splits a block of 32: factors, then fifth bits, then nibbles or bytes. */
static void split_32(ag_dtype type, unsigned char *const to[], const unsigned char *block) {
    const unsigned char *bytes = layouts[type].bytes;
    for (unsigned p = AG_CL_FACTORS; p < AG_CL_PLANES; block += bytes[p++]) {
        memcpy(to[p], block, bytes[p]);
    }
    if (bytes[1]) {
        uint8_t q[AG_QK] = {0};
        ag_unpack_qh(q, block);
        ag_put_bit_words(to[1], q, 4);
    }
    memcpy(to[0], block + bytes[1], bytes[0]);
}

static void put_parts(unsigned char *to, const uint8_t packed[12]) {
    uint8_t sc[8], m[8];
    ag_q4_k_scales(sc, m, packed);
    for (size_t i = 0; i < 8; i++) {
        to[2 * i] = sc[i];
        to[2 * i + 1] = m[i];
    }
}

/* Splits a block of 256: levels, then what the file has of factors. */
static void split_256(ag_dtype type, unsigned char *const to[], const unsigned char *block) {
    union {
        ag_block_q2_k q2;
        ag_block_q3_k q3;
        ag_block_q4_k q4;
        ag_block_q5_k q5;
        ag_block_q6_k q6;
    } in;
    uint8_t q[AG_QK_K];
    int8_t scales[AG_QK_K / 16];
    memcpy(&in, block, ag_dtype_block_bytes(type));
    if (type == AG_Q4_K) {
        ag_get_fields(q, in.q4.qs, 4, 32);
        put_parts(to[2], in.q4.scales);
        memcpy(to[3], block, 2 * HALF);
    } else if (type == AG_Q5_K) {
        ag_q5_k_levels(q, &in.q5);
        ag_put_fields(to[1], q, 4, 1, 4);
        put_parts(to[2], in.q5.scales);
        memcpy(to[3], block, 2 * HALF);
    } else if (type == AG_Q6_K) {
        ag_q6_k_levels(q, &in.q6);
        ag_put_fields(to[1], q, 4, 2, 4);
        memcpy(to[2], in.q6.scales, sizeof in.q6.scales);
        memcpy(to[3], &in.q6.d, HALF);
    } else if (type == AG_Q2_K) {
        ag_get_fields(q, in.q2.qs, 2, 32);
        memcpy(to[2], in.q2.scales, sizeof in.q2.scales);
        memcpy(to[3], &in.q2.d, HALF);
        memcpy(to[3] + HALF, &in.q2.dmin, HALF);
    } else {
        ag_q3_k_levels(q, &in.q3);
        ag_q3_k_scales(scales, in.q3.scales);
        ag_put_fields(to[1], q, 2, 1, 4);
        memcpy(to[2], scales, sizeof scales);
        memcpy(to[3], &in.q3.d, HALF);
    }
    if (type == AG_Q2_K || type == AG_Q3_K) ag_put_fields(to[0], q, 0, 2, 4);
    else ag_put_fields(to[0], q, 0, 4, 16);
}

/* ---- the types ---- */

static const struct layout layouts[AG_DTYPE_COUNT] = {
    [AG_Q4_0] = {{16, 0, 2}, split_32},        [AG_Q4_1] = {{16, 0, 2, 2}, split_32},
    [AG_Q8_0] = {{32, 0, 2}, split_32},        [AG_Q5_0] = {{16, 4, 2}, split_32},
    [AG_Q5_1] = {{16, 4, 2, 2}, split_32},     [AG_IQ4_NL] = {{16, 0, 2}, split_32},
    [AG_MXFP4] = {{16, 0, 1}, split_32},       [AG_Q4_K] = {{128, 0, 16, 4}, split_256},
    [AG_Q5_K] = {{128, 32, 16, 4}, split_256}, [AG_Q6_K] = {{128, 64, 16, 2}, split_256},
    [AG_Q2_K] = {{64, 0, 16, 4}, split_256},   [AG_Q3_K] = {{64, 32, 16, 2}, split_256},
};

bool ag_cl_has_layout(ag_dtype type) {
    return type == AG_F32 || type == AG_F16 || type == AG_BF16 || layouts[type].split;
}

size_t ag_cl_plane_bytes(ag_dtype type, unsigned plane, size_t k) {
    if (layouts[type].split) return k / ag_dtype_block(type) * layouts[type].bytes[plane];
    return plane ? 0 : ag_dtype_row_bytes(type, (k + AG_QK - 1) / AG_QK * AG_QK);
}

void ag_cl_take_apart(ag_dtype type, unsigned char *const planes[AG_CL_PLANES],
                      const unsigned char *row, size_t k) {
    if (!layouts[type].split) {
        const size_t n = ag_dtype_row_bytes(type, k);
        memcpy(planes[0], row, n);
        memset(planes[0] + n, 0, ag_cl_plane_bytes(type, 0, k) - n);
        return;
    }
    const size_t n_blocks = k / ag_dtype_block(type), bytes = ag_dtype_block_bytes(type);
    unsigned char *to[AG_CL_PLANES];
    memcpy(to, planes, sizeof to);
    for (size_t i = 0; i < n_blocks; i++) {
        layouts[type].split(type, to, row + i * bytes);
        for (unsigned p = 0; p < AG_CL_PLANES; p++) to[p] += layouts[type].bytes[p];
    }
}
