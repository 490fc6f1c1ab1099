/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding. Sines cost more than rotations, so the last call's are cached. */
#include "backend/cpu/cpu_backend.h"
#include "core/fail.h"

#include <math.h>
#include <string.h>

enum { MIN_SINES = 512, MIN_ELEMENTS = 4096 }; /* smallest chunks */

typedef struct rope_job {
    const ag_cpu_backend *cpu;
    float *x, *cos_sin;
    const float *inv_freq;
    const uint32_t *positions;
    size_t n_heads, head_dim;
    size_t half;  /* rotated pairs of a head */
    float factor; /* multiplies cosines and sines */
} rope_job;

/* Computes cosines and sines. The angle is rounded to float before its sine is computed, as in the
 * reference implementation: at position 100000 that rounding exceeds a float's last bit. */
static void fill_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rope_job *job = ctx;
    for (size_t row = begin; row < end; row++) {
        float *cos_sin = job->cos_sin + row * 2 * job->half;
        for (size_t i = 0; i < job->half; i++) {
            const float angle = (float)job->positions[row] * job->inv_freq[i];
            cos_sin[2 * i] = job->factor * (float)cos((double)angle);
            cos_sin[2 * i + 1] = job->factor * (float)sin((double)angle);
        }
    }
}

static void rotate_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rope_job *job = ctx;
    for (size_t i = begin * job->n_heads; i < end * job->n_heads; i++) {
        const float *cos_sin = job->cos_sin + i / job->n_heads * 2 * job->half;
        job->cpu->kernels.rope(job->x + i * job->head_dim, cos_sin, 2 * job->half);
    }
}

/* Runs fn over the rows, in chunks with at least `min_elements` elements; a row has `row_size`. */
static void run_rows(rope_job *job, ag_pool_fn fn, size_t n_rows, size_t row_size,
                     size_t min_elements) {
    size_t grain = ag_cpu_grain(job->cpu, n_rows, (min_elements + row_size - 1) / row_size);
    ag_pool_run(job->cpu->pool, n_rows, grain, fn, job);
}

/* Sets job->cos_sin; computes it unless the last call was for the same positions and angles. */
static ag_status need_cos_sin(ag_cpu_backend *cpu, rope_job *job, size_t n_rows) {
    const size_t half = job->half, table = n_rows * 2 * half * sizeof(float);
    const size_t angles = half * sizeof(float), positions_bytes = n_rows * sizeof(uint32_t);
    AG_TRY(ag_cpu_need_rope(cpu, table + angles + positions_bytes));
    unsigned char *known_angles = cpu->rope.memory + table,
                  *known_positions = known_angles + angles;
    job->cos_sin = (float *)(void *)cpu->rope.memory;
    if (cpu->rope.n_rows == n_rows && cpu->rope.half == half && cpu->rope.factor == job->factor &&
        !memcmp(known_angles, job->inv_freq, angles) &&
        !memcmp(known_positions, job->positions, positions_bytes)) {
        return AG_OK;
    }
    run_rows(job, fill_rows, n_rows, half, MIN_SINES);
    memcpy(known_angles, job->inv_freq, angles);
    memcpy(known_positions, job->positions, positions_bytes);
    cpu->rope.n_rows = n_rows;
    cpu->rope.half = half;
    cpu->rope.factor = job->factor;
    return AG_OK;
}

ag_status ag_cpu_rope(ag_backend *b, ag_tensor *x, const uint32_t *positions,
                      const ag_tensor *inv_freq, float factor) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    if (!ag_shape_numel(&x->shape) || !ag_shape_numel(&inv_freq->shape)) return AG_OK;
    rope_job job = {.cpu = cpu,
                    .x = ag_tensor_data(x),
                    .inv_freq = ag_tensor_data(inv_freq),
                    .positions = positions,
                    .n_heads = x->shape.dim[x->shape.n_dims - 2],
                    .head_dim = ag_shape_cols(&x->shape),
                    .half = ag_shape_numel(&inv_freq->shape),
                    .factor = factor};
    const size_t n_rows = ag_shape_rows(&x->shape) / job.n_heads;
    AG_TRY(need_cos_sin(cpu, &job, n_rows));
    run_rows(&job, rotate_rows, n_rows, job.n_heads * job.head_dim, MIN_ELEMENTS);
    return AG_OK;
}
