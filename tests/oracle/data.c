/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/oracle.h"

#include "memory/galloc.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 128, GUARD_VALUE = 0xa5 };

/* splitmix64, by Sebastiano Vigna (public domain algorithm). */
static uint64_t next_random(oracle_run *run) {
    uint64_t z = run->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t oracle_below(oracle_run *run, uint32_t n) {
    return (uint32_t)((next_random(run) >> 32) % n);
}

static float plain_value(oracle_run *run) {
    return (float)((double)(next_random(run) >> 40) * 0x1p-23 - 1.0);
}

static float extreme_value(oracle_run *run, float before) {
    switch (oracle_below(run, 6)) {
    case 0:
        return 0.0f;
    case 1:
        return -before;
    default:
        return ldexpf(plain_value(run), (int)oracle_below(run, 41) - 26);
    }
}

void oracle_fill(oracle_run *run, float *values, size_t n, oracle_data data) {
    for (size_t i = 0; i < n; i++) {
        values[i] =
            data == DATA_EXTREME ? extreme_value(run, i ? values[i - 1] : 1.0f) : plain_value(run);
    }
    if (data != DATA_NONFINITE || !n) return;
    values[oracle_below(run, (uint32_t)n)] = INFINITY;
    values[oracle_below(run, (uint32_t)n)] = NAN;
}

void oracle_run_free(oracle_run *run) {
    free(run->got);
    free(run->want);
}

oracle_score oracle_compare(const oracle_run *run) {
    oracle_score score = {0};
    double errors = 0, squares = 0;
    for (size_t i = 0; i < run->n; i++) {
        const float got = run->got[i], want = (float)run->want[i];
        if (isnan(want) || isinf(want) || isnan(got) || isinf(got)) {
            if (run->rounds_input) score.n_unlike += isfinite(want) || isfinite(got);
            else score.n_unlike += isnan(want) ? !isnan(got) : got != want;
            continue;
        }
        errors += (got - run->want[i]) * (got - run->want[i]);
        squares += run->want[i] * run->want[i];
    }
    score.nmse = errors > 0 ? errors / squares : 0;
    return score;
}

/* ---- tensors between guard zones ---- */

/* Rounds the values to rows of dtype at dst and reads them back as floats. */
static void round_values(ag_dtype dtype, unsigned char *dst, float *values, size_t n) {
    if (dtype == AG_F32) {
        memcpy(dst, values, n * sizeof *values);
        return;
    }
    for (size_t i = 0; i < n && !ag_dtype_is_quantized(dtype); i++) {
        uint16_t h = dtype == AG_F16 ? ag_f32_to_f16(values[i]) : ag_f32_to_bf16(values[i]);
        memcpy(dst + 2 * i, &h, sizeof h);
    }
    if (ag_dtype_is_quantized(dtype)) {
        ag_quantize_row(dtype, dst, values, n, AG_ROUND_REFERENCE, NULL);
    }
    ag_dequantize_row(dtype, values, dst, n);
}

static guarded make_in(oracle_run *run, ag_memory *memory, ag_dtype dtype, ag_shape shape,
                       size_t skew, oracle_data data) {
    guarded g = {0};
    const size_t n = ag_shape_numel(&shape), offset = GUARD_BYTES + skew;
    g.bytes = offset + ag_dtype_row_bytes(dtype, n) + GUARD_BYTES;
    g.image = malloc(g.bytes);
    g.values = malloc((n ? n : 1) * sizeof *g.values);
    ag_status st = AG_NOMEM;
    if (g.image && g.values) {
        memset(g.image, GUARD_VALUE, g.bytes);
        oracle_fill(run, g.values, n, data);
        round_values(dtype, g.image + offset, g.values, n);
        st = ag_memory_alloc(memory, g.bytes, AG_USAGE_SCRATCH, &g.buffer, NULL);
    }
    if (st == AG_OK) st = ag_buffer_upload(g.buffer, 0, g.image, g.bytes, NULL);
    if (st == AG_OK) st = ag_tensor_make(&g.t, dtype, shape, g.buffer, offset, NULL);
    if (st == AG_OK) return g;
    run->out_of_memory = true;
    guarded_free(&g);
    return g;
}

guarded guarded_make(oracle_run *run, ag_dtype dtype, ag_shape shape, size_t skew,
                     oracle_data data) {
    return make_in(run, ag_backend_memory(run->be), dtype, shape, skew, data);
}

guarded guarded_make_on_host(oracle_run *run, ag_dtype dtype, ag_shape shape, size_t skew,
                             oracle_data data) {
    ag_memory *host;
    if (ag_galloc_create(&host, NULL) != AG_OK) {
        run->out_of_memory = true;
        return (guarded){0};
    }
    const guarded g = make_in(run, host, dtype, shape, skew, data);
    ag_galloc_destroy(host);
    return g;
}

void guarded_check(oracle_run *run, const guarded *g, bool is_destination) {
    if (!g->buffer) return;
    const size_t begin = g->t.offset, end = begin + ag_tensor_bytes(&g->t);
    unsigned char *now = malloc(g->bytes);
    if (!now || ag_sync(run->be) != AG_OK ||
        ag_buffer_download(now, g->buffer, 0, g->bytes, NULL) != AG_OK) {
        run->out_of_memory = true;
        free(now);
        return;
    }
    for (size_t i = 0; i < g->bytes; i++) {
        if (is_destination && i >= begin && i < end) continue;
        run->guard_faults += now[i] != g->image[i];
    }
    free(now);
}

void guarded_free(guarded *g) {
    ag_buffer_release(&g->buffer);
    free(g->image);
    free(g->values);
    g->image = NULL;
    g->values = NULL;
}

/* Makes room for n more results. */
static bool grow(oracle_run *run, size_t n) {
    if (run->cap - run->n >= n) return true;
    size_t cap = run->n + n;
    float *got = realloc(run->got, cap * sizeof *got);
    if (got) run->got = got;
    double *want = realloc(run->want, cap * sizeof *want);
    if (want) run->want = want;
    if (got && want) run->cap = cap;
    return got && want;
}

double *oracle_take(oracle_run *run, const guarded *g) {
    if (!g->buffer || (run->timing && run->timing->unchecked)) return NULL;
    const size_t n = ag_shape_numel(&g->t.shape), bytes = ag_tensor_bytes(&g->t);
    unsigned char *raw = malloc(bytes ? bytes : 1);
    if (!raw || !grow(run, n) || ag_read(run->be, raw, &g->t, bytes) != AG_OK) {
        run->out_of_memory = true;
        free(raw);
        return NULL;
    }
    if (n) ag_dequantize_row(g->t.dtype, run->got + run->n, raw, n);
    free(raw);
    double *want = run->want + run->n;
    run->n += n;
    return run->results_only ? NULL : want;
}
