/* SPDX-License-Identifier: Apache-2.0 */
/* Three passes: scores of all visible slots, softmax, weighted sum of the values. A row of the
 * cache is converted once for all query heads that share it. */
#include "backend/cpu/common/common.h"
#include "backend/cpu/common/dot.h"
#include "core/kv_view.h"
#include "quant/quant.h"

#include <string.h>

/* Scratch, in this order. */
typedef struct rows {
    double *q;    /* [n_heads, head_dim] */
    double *sums; /* [n_heads, head_dim] */
    double *row;  /* [head_dim] */
    float *values;
} rows;

size_t ag_attention_scratch_bytes__common(uint32_t head_dim, uint32_t n_heads) {
    size_t wide = (2 * (size_t)n_heads + 1) * head_dim * sizeof(double);
    return wide + head_dim * sizeof(float);
}

static rows rows_in(void *scratch, size_t head_dim, size_t n_heads) {
    rows r = {.q = scratch};
    r.sums = r.q + n_heads * head_dim;
    r.row = r.sums + n_heads * head_dim;
    r.values = (float *)(void *)(r.row + head_dim);
    return r;
}

/* Slots are in order of position: those that the query sees come first. */
static uint32_t visible_slots(const ag_cpu_kv_head *kv, uint32_t position) {
    uint32_t n = kv->n_slots;
    for (; n; n--) {
        const unsigned char *block = kv->blocks[(n - 1) / AG_KV_BLOCK];
        const void *positions = block + kv->p_offset;
        if (((const uint32_t *)positions)[(n - 1) % AG_KV_BLOCK] <= position) break;
    }
    return n;
}

static void load_row(const rows *r, const ag_cpu_kv_head *kv, uint32_t slot, ag_dtype type,
                     size_t offset) {
    const unsigned char *block = kv->blocks[slot / AG_KV_BLOCK] + offset;
    size_t row_bytes = ag_dtype_row_bytes(type, kv->head_dim);
    ag_dequantize_row(type, r->values, block + slot % AG_KV_BLOCK * row_bytes, kv->head_dim);
    for (uint32_t i = 0; i < kv->head_dim; i++) r->row[i] = r->values[i];
}

uint32_t ag_attention__common(const ag_cpu_attention_query *query, const ag_cpu_kv_head *kv,
                              float *weights, size_t weight_stride, void *scratch) {
    const size_t d = kv->head_dim, n_heads = query->n_heads;
    const uint32_t n = visible_slots(kv, query->position);
    const rows r = rows_in(scratch, d, n_heads);
    for (size_t i = 0; i < n_heads * d; i++) r.q[i] = query->q[i];
    for (uint32_t slot = 0; slot < n; slot++) {
        load_row(&r, kv, slot, kv->k_type, kv->k_offset);
        for (size_t h = 0; h < n_heads; h++) {
            double score = dot(r.q + h * d, r.row, d) * query->scale;
            weights[h * weight_stride + slot] = (float)score;
        }
    }
    for (size_t h = 0; h < n_heads; h++) ag_softmax__common(weights + h * weight_stride, n);
    memset(r.sums, 0, n_heads * d * sizeof *r.sums);
    for (uint32_t slot = 0; slot < n; slot++) {
        load_row(&r, kv, slot, kv->v_type, kv->v_offset);
        for (size_t h = 0; h < n_heads; h++) {
            const double weight = weights[h * weight_stride + slot];
            double *sums = r.sums + h * d;
            for (size_t i = 0; i < d; i++) sums[i] += weight * r.row[i];
        }
    }
    for (size_t i = 0; i < n_heads * d; i++) query->out[i] = (float)r.sums[i];
    return n;
}
