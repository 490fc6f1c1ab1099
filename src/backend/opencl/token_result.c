/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the results of a launch of kernels/token.cl: logits and the best of them. */
#include "backend/opencl/token.h"
#include "core/fail.h"

#include <stdlib.h>
#include <string.h>

static int larger_first(const void *a, const void *b) {
    const cl_ulong x = *(const cl_ulong *)a, y = *(const cl_ulong *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void unpack(ag_cl_token_result *r, ag_top_k *top) {
    qsort(r->listed, r->n_listed, sizeof *r->listed, larger_first);
    top->bad = r->bad == UINT32_MAX ? SIZE_MAX : r->bad;
    if (top->n_ids) memcpy(top->at, r->at, top->n_ids * sizeof *top->at);
    top->n = top->k < r->n_listed ? top->k : r->n_listed;
    for (size_t i = 0; i < top->n; i++) {
        ag_cl_candidate(r->listed[i], &top->best_ids[i], &top->best[i]);
    }
}

/* Reads the best logits. If the list is incomplete because a bound was too low, searches the row.
 */
static ag_status take_best(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step) {
    if (token->shape.select && token->result.n_listed <= AG_CL_TOKEN_LISTED) {
        unpack(&token->result, step->top);
        step->top->known = true;
        return AG_OK;
    }
    return ag_cl_top_k(&cl->base, step->logits, &step->top);
}

ag_status ag_cl_token_read(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step) {
    const ag_cl_api *api = &cl->api;
    ag_cl_buffer *store = ag_cl_buffer_of(cl, token->store);
    ag_cl_buffer *logits = ag_cl_buffer_of(cl, step->logits->buffer);
    const size_t n = token->shape.select ? sizeof token->result : sizeof token->result.aborted;
    const cl_bool wait = step->host_logits ? CL_FALSE : CL_TRUE;
    cl_int code = api->clEnqueueReadBuffer(cl->queue, store->mem, wait, token->at.result, n,
                                           &token->result, 0, NULL, NULL);
    if (code == CL_SUCCESS && step->host_logits) {
        code = api->clEnqueueReadBuffer(cl->queue, logits->mem, CL_TRUE, step->logits->offset,
                                        ag_tensor_bytes(step->logits), step->host_logits, 0, NULL,
                                        NULL);
    }
    if (code != CL_SUCCESS) return ag_cl_fail(cl, &cl->base.err, code, "a token in one launch");
    if (token->result.aborted || !step->top) return AG_OK;
    return take_best(cl, token, step);
}
