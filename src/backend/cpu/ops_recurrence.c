/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent operations on the rows of one sequence. Threads share channels and heads; rows are
 * processed in order. */
#include "backend/cpu/cpu_backend.h"
#include "core/recurrence.h"

enum { CHANNEL_UNIT = 64, CHUNK_CHANNELS = 4096 }; /* a unit; smallest chunk: rows * channels */

static void conv_units(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const ag_conv_job *job = ctx;
    const size_t last = end * CHANNEL_UNIT;
    ag_conv_channels(job, begin * CHANNEL_UNIT, last < job->channels ? last : job->channels);
}

ag_status ag_cpu_causal_conv(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                             ag_tensor *state, bool silu) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    ag_conv_job job = {
        .y = ag_tensor_data(y),
        .state = ag_tensor_data(state),
        .x = ag_tensor_data(x),
        .w = ag_tensor_data(w),
        .n_rows = ag_shape_rows(&x->shape),
        .n_taps = ag_shape_rows(&w->shape),
        .channels = ag_shape_cols(&x->shape),
        .silu = silu,
        .row = cpu->kernels.conv_row,
    };
    if (!job.n_rows) return AG_OK;
    const size_t units = (job.channels + CHANNEL_UNIT - 1) / CHANNEL_UNIT;
    const size_t min_units = CHUNK_CHANNELS / (CHANNEL_UNIT * job.n_rows);
    ag_pool_run(cpu->pool, units, ag_cpu_grain(cpu, units, min_units), conv_units, &job);
    return AG_OK;
}

typedef struct delta_heads {
    const ag_cpu_backend *cpu;
    ag_delta_job job;
} delta_heads;

static void delta_units(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const delta_heads *d = ctx;
    for (size_t h = begin; h < end; h++) {
        ag_delta_head(&d->job, h, ag_cpu_thread_scratch(d->cpu, thread));
    }
}

ag_status ag_cpu_delta_rule(ag_backend *b, const ag_delta_call *call) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    const ag_status st = ag_cpu_need_threads(cpu, 2 * call->params.k_dim * sizeof(float));
    if (st != AG_OK) return st;
    delta_heads d = {
        .cpu = cpu,
        .job = {.out = ag_tensor_data(call->out),
                .state = ag_tensor_data(call->state),
                .qkv = ag_tensor_data(call->qkv),
                .a = ag_tensor_data(call->a),
                .b = ag_tensor_data(call->b),
                .decay = ag_tensor_data(call->decay),
                .dt_bias = ag_tensor_data(call->dt_bias),
                .n_rows = ag_shape_rows(&call->qkv->shape),
                .params = call->params,
                .token = cpu->kernels.delta_token},
    };
    ag_pool_run(cpu->pool, call->params.n_v_heads, 1, delta_units, &d);
    return AG_OK;
}
