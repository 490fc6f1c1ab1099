/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/recurrence.cl: recurrent operations on the rows of one sequence. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

static const char file[] = "recurrence.cl";
enum { WG = 64 }; /* as in the file */

ag_status ag_cl_causal_conv(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                            ag_tensor *state, bool silu) {
    const size_t n_rows = ag_shape_rows(&x->shape), channels = ag_shape_cols(&x->shape);
    if (!n_rows || !channels) return AG_OK;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), file, "causal_conv", NULL));
    AG_CL_ARG_TENSORS(&l, y, x, w, state);
    AG_CL_ARG_U32S(&l, n_rows, ag_shape_rows(&w->shape), channels, silu);
    return ag_cl_enqueue(&l, 1, (size_t[]){ag_cl_items(channels, WG)}, (size_t[]){WG});
}

ag_status ag_cl_delta_rule(ag_backend *b, const ag_delta_call *call) {
    const ag_delta_params *p = &call->params;
    const size_t n_rows = ag_shape_rows(&call->qkv->shape);
    if (!n_rows) return AG_OK;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), file, "delta_rule", NULL));
    AG_CL_ARG_TENSORS(&l, call->out, call->state, call->qkv, call->a, call->b, call->decay,
                      call->dt_bias);
    AG_CL_ARG_U32S(&l, n_rows, p->n_k_heads, p->n_v_heads, p->k_dim, p->v_dim, p->tiled);
    ag_cl_arg_f32(&l, p->eps);
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(p->v_dim, WG), p->n_v_heads},
                         (size_t[]){WG, 1});
}
