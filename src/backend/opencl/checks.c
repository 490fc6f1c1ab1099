/* SPDX-License-Identifier: Apache-2.0 */
/* Checks devices once: products on tensor cores, by two whose results are known exactly, and paths
 * for extensions, by kernels/vendor_check.cl. */
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

/* ---- extensions ---- */

static ag_status find_faults(ag_cl_backend *cl, cl_uint faults[3]) {
    enum { CHECK_WG = 64 }; /* as in the file */
    ag_error *err = &cl->base.err;
    cl_mem found;
    ag_cl_launch l;
    AG_TRY(ag_cl_need_scratch(cl, 3 * sizeof *faults, &found));
    AG_TRY(ag_cl_begin(&l, cl, "vendor_check.cl", "vendor_check", cl->vendor.options));
    ag_cl_arg_mem(&l, found);
    AG_TRY(ag_cl_enqueue(&l, 1, (size_t[]){CHECK_WG}, (size_t[]){CHECK_WG}));
    const cl_int code = cl->api.clEnqueueReadBuffer(cl->queue, found, CL_TRUE, 0,
                                                    3 * sizeof *faults, faults, 0, NULL, NULL);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "trying a vendor's path");
}

ag_status ag_cl_vendor_check(ag_cl_backend *cl, ag_error *err) {
    static const char *const variables[3] = {"AG_OPENCL_SUBGROUPS", "AG_OPENCL_DOT",
                                             "AG_OPENCL_HALF"};
    cl_uint faults[3] = {0, 0, 0};
    const ag_status st = cl->vendor.options[0] ? find_faults(cl, faults) : AG_OK;
    if (st != AG_OK && err) *err = cl->base.err;
    for (int i = 0; i < 3 && st == AG_OK; i++) {
        if (!faults[i]) continue;
        return AG_FAIL(err, DEVICE, "%s: %s computes otherwise than its extension says (%u faults)",
                       variables[i], cl->device.name, (unsigned)faults[i]);
    }
    return st;
}
