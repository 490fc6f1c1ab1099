/* SPDX-License-Identifier: Apache-2.0 */
/* Launches kernels/sum_weights.cl. */
#include "backend/opencl/kernels/shared.h"
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <string.h>

enum { WG = 64 };

size_t ag_cl_score_floats(const ag_attention_seq *s, size_t group, uint32_t n_slots) {
    return s->device_scores ? s->kv.n_kv_heads * group * AG_CL_SCORES((size_t)n_slots) : 0;
}

ag_status ag_cl_sum_weights(ag_cl_backend *cl, cl_mem scores, uint64_t scores_at,
                            const ag_attention_seq *seqs, size_t n, size_t group, uint32_t n_new,
                            uint32_t stride_of_all) {
    const size_t heads = seqs[0].kv.n_kv_heads, each = heads * sizeof(uint32_t);
    unsigned char *memory;
    uint64_t first = 0;
    uint32_t longest = 0;
    const size_t bytes = n * (sizeof(ag_cl_scored) + 2 * each);
    AG_TRY(ag_cl_need_joined(cl, bytes, &memory));
    memset(memory, 0, bytes);
    ag_cl_scored *unit = (ag_cl_scored *)(void *)memory;
    uint32_t *slots = (uint32_t *)(void *)(unit + n), *scored = slots + n * heads;
    for (size_t i = 0; i < n; i++, unit++, slots += heads, scored += heads) {
        const ag_attention_seq *s = &seqs[i];
        const uint32_t n_blocks = ag_kv_blocks_for(ag_kv_view_max_slots(&s->kv));
        const uint32_t stride = stride_of_all ? stride_of_all : n_blocks * AG_KV_BLOCK;
        uint64_t address = 0;
        if (!s->device_scores) continue;
        AG_TRY(ag_cl_buffer_address(cl, s->device_scores, &address));
        *unit = (ag_cl_scored){first, address + s->device_scores_at, stride, s->score_max};
        for (size_t h = 0; h < heads; h++) {
            slots[h] = s->kv.n_slots[h] + n_new;
            if (slots[h] > longest) longest = slots[h];
        }
        memcpy(scored, s->scored, each);
        first += ag_cl_score_floats(s, group, stride);
    }
    if (!longest) return AG_OK;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "sum_weights.cl", "sum_weights", NULL));
    ag_cl_arg_part(&l, scores, scores_at);
    ag_cl_arg_staged(&l, memory, bytes);
    ag_cl_arg_u32(&l, (uint32_t)group);
    AG_TRY(
        ag_cl_enqueue(&l, 3, (size_t[]){ag_cl_items(longest, WG), heads, n}, (size_t[]){WG, 1, 1}));
    /* The sums are no argument, and buffers that launches use by address may be released. */
    return cl->by_address ? AG_OK : ag_cl_finish(cl, &cl->base.err);
}
