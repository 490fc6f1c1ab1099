/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of a cache's blocks: what one launch reaches with constant distances between blocks and
 * between heads. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

ag_cl_kv_run ag_cl_kv_run_of_head(const ag_kv_view *kv, uint32_t head, uint32_t block0,
                                  uint32_t end) {
    const ag_kv_block *first = ag_kv_view_block(kv, head, block0);
    ag_cl_kv_run run = {.buffer = first->buffer,
                        .offset = first->offset,
                        .block0 = block0,
                        .n_blocks = 1,
                        .head0 = head,
                        .n_heads = 1};
    if (!run.buffer) run.n_blocks = end - block0;
    for (uint32_t i = 1; block0 + i < end && run.buffer; i++, run.n_blocks++) {
        if (first[i].buffer != run.buffer || first[i].offset <= first[i - 1].offset) break;
        const size_t step = first[i].offset - first[i - 1].offset;
        if (i == 1) run.stride = step;
        if (step != run.stride) break;
    }
    return run;
}

uint32_t ag_cl_kv_even_blocks(const ag_kv_view *kv, uint32_t block0, uint32_t end) {
    for (uint32_t h = 0; h < kv->n_kv_heads; h++)
        end = block0 + ag_cl_kv_run_of_head(kv, h, block0, end).n_blocks;
    return end - block0;
}

ag_cl_kv_run ag_cl_kv_run_at(const ag_kv_view *kv, uint32_t head0, uint32_t block0,
                             uint32_t n_blocks) {
    const uint32_t end = block0 + n_blocks;
    ag_cl_kv_run run = ag_cl_kv_run_of_head(kv, head0, block0, end);
    for (uint32_t h = head0 + 1; h < kv->n_kv_heads; h++, run.n_heads++) {
        const ag_cl_kv_run next = ag_cl_kv_run_of_head(kv, h, block0, end);
        if (!next.buffer) continue;
        if (next.buffer != run.buffer || next.stride != run.stride || next.offset <= run.offset)
            break;
        const size_t before = (size_t)run.n_heads * run.head_stride;
        if (!run.head_stride && (next.offset - run.offset) % run.n_heads == 0)
            run.head_stride = (next.offset - run.offset) / run.n_heads;
        else if (next.offset - run.offset != before) break;
    }
    return run;
}

ag_status ag_cl_kv_each_run(const ag_kv_view *kv, uint32_t block0, uint32_t end,
                            ag_cl_kv_run_fn *launch, const void *user) {
    for (uint32_t i = block0, even; i < end; i += even) {
        even = ag_cl_kv_even_blocks(kv, i, end);
        for (uint32_t h = 0; h < kv->n_kv_heads;) {
            const ag_cl_kv_run run = ag_cl_kv_run_at(kv, h, i, even);
            AG_TRY(launch(user, &run));
            h += run.n_heads;
        }
    }
    return AG_OK;
}

void ag_cl_arg_run(ag_cl_launch *l, const ag_cl_kv_run *run, cl_mem other) {
    if (run->buffer) ag_cl_arg_buffer(l, run->buffer);
    else ag_cl_arg_mem(l, other);
}
