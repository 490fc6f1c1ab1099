/* SPDX-License-Identifier: Apache-2.0 */
/* Checks products on tensor cores by two whose results are known exactly. */
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/fail.h"

/* Several tiles of each kind, with rows and columns past the last full one, and several steps; and
 * a tile of few rows, which has teams. */
enum { M = 129, FEW = 16, N = 130, K = 512, BLOCK = 32, BLOCK_BYTES = 16 };
enum { X_BYTES = M * K * 4, Y_BYTES = M * N * 4, ONE = 0x3c00 /* as F16 */ };

static int level_of(size_t row, size_t i) { return (int)((row * 7 + i * 3 + i / BLOCK) % 16); }

static int value_of(size_t row, size_t i) { return (int)((row * 5 + i) % 7) - 3; }

/* Writes a prepared Q4_0 weight. */
static void fill_weight(unsigned char *w) {
    unsigned char *factors = w + ag_cl_prepared_scales(AG_Q4_0, N, K);
    for (size_t row = 0; row < N; row++) {
        for (size_t b = 0; b < K / BLOCK; b++) {
            const size_t block = row * (K / BLOCK) + b;
            for (size_t i = 0; i < BLOCK_BYTES; i++) {
                const size_t at = b * BLOCK + i;
                w[block * BLOCK_BYTES + i] =
                    (unsigned char)(level_of(row, at) | level_of(row, at + BLOCK_BYTES) << 4);
            }
            factors[2 * block] = ONE & 255;
            factors[2 * block + 1] = ONE >> 8;
        }
    }
}

static void fill_rows(float *x) {
    for (size_t row = 0; row < M; row++) {
        for (size_t i = 0; i < K; i++) x[row * K + i] = (float)value_of(row, i);
    }
}

static size_t count_faults(const float *y, size_t m) {
    size_t faults = 0;
    for (size_t row = 0; row < m; row++) {
        for (size_t column = 0; column < N; column++) {
            int sum = 0;
            for (size_t i = 0; i < K; i++) sum += value_of(row, i) * (level_of(column, i) - 8);
            faults += !(y[row * N + column] == (float)sum);
        }
    }
    return faults;
}

/* Multiplies m rows on the device. rows: a buffer with x, then y. host: the bytes of both. */
static ag_status multiply(ag_cl_backend *cl, ag_buffer *rows, ag_buffer *weight,
                          unsigned char *host, size_t m) {
    ag_error *err = &cl->base.err;
    ag_tensor x = {.dtype = AG_F32, .shape = ag_shape_2d(m, K), .buffer = rows};
    ag_tensor y = {.dtype = AG_F32, .shape = ag_shape_2d(m, N), .buffer = rows, .offset = X_BYTES};
    ag_tensor w = {.dtype = AG_Q4_0,
                   .shape = ag_shape_2d(N, K),
                   .buffer = weight,
                   .layout = AG_CL_LAYOUT_PREPARED};
    const ag_tensor *const ws[] = {&w};
    ag_tensor *const ys[] = {&y};
    fill_rows((float *)(void *)host);
    AG_TRY(ag_buffer_upload(rows, 0, host, X_BYTES, err));
    AG_TRY(ag_cl_mma(cl, ys, &x, ws, 1));
    AG_TRY(ag_buffer_download(host + X_BYTES, rows, X_BYTES, Y_BYTES, err));
    const size_t faults = count_faults((const float *)(const void *)(host + X_BYTES), m);
    if (!faults) return AG_OK;
    return AG_FAIL(err, DEVICE, "%zu of %zu values of a product are wrong", faults, m * N);
}

static ag_status check(ag_cl_backend *cl, unsigned char *host, ag_buffer **rows,
                       ag_buffer **weight) {
    ag_error *err = &cl->base.err;
    const size_t n = ag_cl_prepared_bytes(&cl->base, AG_Q4_0, N, K);
    ag_memory *memory = ag_backend_memory(&cl->base);
    AG_TRY(ag_memory_alloc(memory, X_BYTES + Y_BYTES, AG_USAGE_SCRATCH, rows, err));
    AG_TRY(ag_memory_alloc(memory, n, AG_USAGE_WEIGHTS, weight, err));
    fill_weight(host);
    AG_TRY(ag_buffer_upload(*weight, 0, host, n, err));
    AG_TRY(multiply(cl, *rows, *weight, host, M));
    return multiply(cl, *rows, *weight, host, FEW);
}

void ag_cl_mma_check(ag_cl_backend *cl) {
    ag_buffer *rows = NULL, *weight = NULL;
    unsigned char *host = ag_malloc(X_BYTES + Y_BYTES);
    ag_status st = host ? check(cl, host, &rows, &weight)
                        : AG_FAIL(&cl->base.err, NOMEM, "check of tensor cores");
    ag_buffer_release(&rows);
    ag_buffer_release(&weight);
    ag_free(host);
    cl->mma_checked = true;
    if (st == AG_OK) return;
    cl->mma = false;
    ag_backend_log(&cl->base, AG_LOG_WARN, "prompts go without tensor cores: %s", cl->base.err.msg);
}
