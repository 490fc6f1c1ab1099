/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/kv_compact.cl: one copies retained slots to scratch memory, another copies
 * them to their new slots. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

enum { WG = 64 }; /* as in the file */

typedef struct compaction {
    ag_cl_backend *cl;
    const ag_kv_view *kv;
    const uint32_t *keep;
    uint32_t head, first, n_keep; /* slots below `first` do not move */
    uint32_t k_row, v_row;
    cl_mem scratch;
} compaction;

/* Copies the slots to scratch memory, or (`back`) from there. */
static ag_status move_all(const compaction *c, bool back) {
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, c->cl, "kv_compact.cl", "move_slots", NULL));
    ag_cl_arg_view(&l, c->kv, NULL, ag_kv_blocks_for(ag_kv_view_max_slots(c->kv)));
    ag_cl_arg_u32(&l, c->head);
    ag_cl_arg_u64(&l, c->kv->v_offset);
    ag_cl_arg_u64(&l, c->kv->p_offset);
    ag_cl_arg_mem(&l, c->scratch);
    ag_cl_arg_staged(&l, c->keep + c->first, (c->n_keep - c->first) * sizeof *c->keep);
    AG_CL_ARG_U32S(&l, c->k_row, c->v_row, c->first, back);
    const size_t pairs = (c->k_row + c->v_row + sizeof(uint32_t)) / 2;
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(pairs, WG), c->n_keep - c->first},
                         (size_t[]){WG, 1});
}

ag_status ag_cl_kv_compact(ag_backend *b, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                           uint32_t n_keep) {
    compaction c = {.cl = ag_cl_of(b), .kv = kv, .keep = keep, .head = head, .n_keep = n_keep};
    while (c.first < n_keep && keep[c.first] == c.first) c.first++;
    if (c.first == n_keep) return AG_OK;
    c.k_row = (uint32_t)ag_dtype_row_bytes(kv->k_type, kv->head_dim);
    c.v_row = (uint32_t)ag_dtype_row_bytes(kv->v_type, kv->head_dim);
    const size_t row = c.k_row + c.v_row + sizeof(uint32_t);
    AG_TRY(ag_cl_need_scratch(c.cl, (n_keep - c.first) * row, &c.scratch));
    AG_TRY(move_all(&c, false));
    return move_all(&c, true);
}
