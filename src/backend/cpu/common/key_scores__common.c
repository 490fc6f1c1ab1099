/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"
#include "core/kv_view.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

static const float *key_at(float *converted, const ag_cpu_kv_head *kv, uint32_t slot) {
    const unsigned char *block = kv->blocks[slot / AG_KV_BLOCK];
    const size_t row_bytes = ag_dtype_row_bytes(kv->k_type, kv->head_dim);
    ag_dequantize_row(kv->k_type, converted, block + slot % AG_KV_BLOCK * row_bytes, kv->head_dim);
    return converted;
}

static double length_of(const double *x, size_t n) {
    double square = 0;
    for (size_t i = 0; i < n; i++) square += x[i] * x[i];
    return sqrt(square);
}

static void directions(double *x, const float *key, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = key[i];
    const double length = length_of(x, n), inverse = length > 0 ? 1 / length : 0;
    for (size_t i = 0; i < n; i++) x[i] *= inverse;
}

void ag_key_scores__common(float *scores, const ag_cpu_kv_head *kv, void *scratch) {
    const size_t d = kv->head_dim;
    double *mean = scratch, *key = mean + d;
    float *converted = (float *)(void *)(key + d);
    memset(mean, 0, d * sizeof *mean);
    for (uint32_t s = 0; s < kv->n_slots; s++) {
        directions(key, key_at(converted, kv, s), d);
        for (size_t i = 0; i < d; i++) mean[i] += key[i];
    }
    const double length = length_of(mean, d), scale = length > 0 ? -1 / length : 0;
    for (uint32_t s = 0; s < kv->n_slots; s++) {
        double dot = 0;
        directions(key, key_at(converted, kv, s), d);
        for (size_t i = 0; i < d; i++) dot += key[i] * mean[i];
        scores[s] = (float)(dot * scale);
    }
}
