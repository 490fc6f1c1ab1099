/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a token in one launch of kernels/token.cl. */
#include "backend/opencl/token.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t ag_cl_token_columns(const ag_cl_token_shape *s) {
    uint32_t k = s->dim > s->q_dim ? s->dim : s->q_dim;
    return k > s->ffn_dim ? k : s->ffn_dim;
}

static size_t items_of(const ag_cl_backend *cl) {
    return cl->device.is_nvidia ? AG_CL_TOKEN_ITEMS : AG_CL_TOKEN_ITEMS_CPU;
}

/* Returns the option for the alignment of weight rows: a warp's segments, 64 blocks, or pairs of
 * blocks. */
static const char *row_option(const ag_cl_token_shape *s) {
    const uint32_t any = s->dim | s->q_dim | s->ffn_dim;
    if (any % (64 * AG_QK) == 0) return "-DROWS_OF=64";
    return any % (2 * AG_QK) == 0 ? "-DROWS_OF=2" : "-DROWS_OF=1";
}

/* Writes the weight types that each kind of product is compiled for. On processors one function
 * handles all kinds and types, because compiling costs more than branches. */
static void type_options(const ag_cl_backend *cl, const ag_cl_token_shape *s, char *out,
                         size_t cap) {
    const uint32_t all = cl->device.is_nvidia ? 0 : AG_CL_TOKEN_BLOCKS;
    snprintf(out, cap,
             "-DSPLIT_TYPES=%u -DPAIR_TYPES=%u -DROW_TYPES=%u -DLONG_TYPES=%u -DLOGIT_TYPES=%u",
             (unsigned)(s->split_types | all), (unsigned)(s->pair_types | all),
             (unsigned)(s->row_types | all), (unsigned)(s->long_types | all),
             (unsigned)(s->logit_types | all));
}

static ag_status begin_token(ag_cl_backend *cl, const ag_cl_token *token, ag_cl_launch *l) {
    const ag_cl_token_shape *s = &token->shape;
    char options[384], types[160];
    type_options(cl, s, types, sizeof types);
    snprintf(options, sizeof options,
             "-DLOCAL=%zu -DHEAD_DIM=%u -DGROUP=%u -DMAX_K=%u -DK_TYPE=%u -DV_TYPE=%u -DPIECE=%u "
             "%s %s%s%s%s%s",
             items_of(cl), (unsigned)s->head_dim, (unsigned)s->group,
             (unsigned)ag_cl_token_columns(s), (unsigned)s->k_type, (unsigned)s->v_type,
             (unsigned)s->piece, types, row_option(s), s->has_windows ? " -DWINDOW=1" : "",
             s->has_qk_norms ? " -DQK_NORM=1" : "", s->is_gelu ? " -DGELU=1" : "",
             token->scores ? " -DSCORES=1" : "");
    return ag_cl_begin(l, cl, "token.cl", "token", options);
}

static void set_arguments(ag_cl_launch *l, const ag_cl_token *token, const ag_step *step,
                          uint32_t first_tag) {
    const ag_cl_token_layout *at = &token->at;
    ag_cl_arg_u64(l, token->address + at->stages);
    AG_CL_ARG_U32S(l, ag_cl_token_stages(&token->shape), first_tag);
    const size_t offsets[] = {at->result, at->cos_sin, at->blocks, at->n_slots, at->partial};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        ag_cl_arg_u64(l, token->address + offsets[i]);
    ag_cl_arg_u64(l, step->seqs[0].device_scores ? token->scores_address : 0);
    AG_CL_ARG_U32S(l, token->shape.n_kv, token->shape.max_blocks, step->seqs[0].kv.v_offset,
                   step->seqs[0].kv.p_offset, step->position);
    ag_cl_arg_f32(l, step->program->attend[0].scale);
    ag_cl_arg_f32(l, step->program->ops[0].number);
}

/* Claims the tags of one token. Clears all mailboxes before tags wrap around at 2^32. */
static ag_status claim_tags(ag_cl_backend *cl, ag_cl_token *token, uint32_t *first) {
    const uint32_t n = ag_cl_token_stages(&token->shape) + 1;
    if (token->next_tag > UINT32_MAX - n) {
        AG_TRY(ag_cl_clear(cl, ag_cl_buffer_of(cl, token->store)->mem, token->at.qkv,
                           token->at.bytes - token->at.qkv, &cl->base.err));
        token->next_tag = 1;
    }
    *first = token->next_tag;
    token->next_tag += n;
    return AG_OK;
}

/* ---- sums of attention weights ---- */

static ag_status reserve_scores(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step) {
    const ag_cl_token_shape *s = &token->shape;
    const size_t rows = (size_t)s->n_layers * s->n_kv * s->group;
    const size_t bytes = rows * AG_CL_SCORES((size_t)s->max_blocks * AG_KV_BLOCK) * sizeof(float);
    if (!step->seqs[0].device_scores || token->scores) return AG_OK;
    AG_TRY(
        ag_memory_alloc(&cl->memory->base, bytes, AG_USAGE_SCRATCH, &token->scores, &cl->base.err));
    return ag_cl_buffer_address(cl, token->scores, &token->scores_address);
}

/* ---- the result ---- */

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

/* Reads the best logits. Searches the row if the list is incomplete, as a bound was too low. */
static ag_status take_best(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step) {
    if (token->shape.select && token->result.n_listed <= AG_CL_TOKEN_LISTED) {
        unpack(&token->result, step->top);
        step->top->known = true;
        return AG_OK;
    }
    return ag_cl_top_k(&cl->base, step->logits, &step->top);
}

/* Waits for the launch and reads its result. If token->result.aborted is set, nothing else is
 * valid. */
static ag_status read_result(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step) {
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

/* ---- the launch ---- */

static void refuse(ag_cl_backend *cl, ag_cl_token *token, const char *why) {
    ag_cl_token_release_store(token);
    cl->token_refused = true;
    ag_backend_log(&cl->base, AG_LOG_WARN, "decoding goes operation by operation: %s", why);
}

static ag_status run(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step, bool *taken) {
    uint32_t first_tag = 0;
    ag_cl_launch l;
    size_t most;
    const size_t items = items_of(cl);
    AG_TRY(reserve_scores(cl, token, step));
    AG_TRY(begin_token(cl, token, &l));
    AG_TRY(ag_cl_max_group(cl, l.kernel, &most));
    if (most < items) {
        refuse(cl, token, "the device has too few registers for its kernel");
        return AG_OK;
    }
    AG_TRY(claim_tags(cl, token, &first_tag));
    AG_TRY(ag_cl_token_upload(cl, token, step, first_tag));
    set_arguments(&l, token, step, first_tag);
    const size_t global = token->shape.n_groups * items;
    AG_TRY(ag_cl_enqueue(&l, 1, &global, &items));
    const ag_status st = read_result(cl, token, step);
    if (st != AG_OK) {
        /* The launch uses buffers by address, so none may be released while it runs. */
        (void)ag_cl_finish(cl, NULL);
        return st;
    }
    if (token->result.aborted) {
        refuse(cl, token, "its work-groups do not run side by side");
        return AG_OK;
    }
    *taken = true;
    return AG_OK;
}

bool ag_cl_token_allowed(const ag_cl_backend *cl, const ag_step *step) {
    const ag_attend_op *a = step->program->attend;
    const bool scales_queries = a->query_beta != 0 && step->position >= a->query_period;
    return !cl->token_refused && !cl->zero_copy && cl->gpu_attention && !scales_queries &&
           cl->switches.token != AG_CL_OFF;
}

/* Work-groups poll for one another, so all must run at the same time. Processors run them one after
 * another: there the kernel uses one group. */
bool ag_cl_token_fits(const ag_cl_backend *cl, const ag_step *step, ag_cl_token_shape *shape) {
    if (!ag_cl_token_shape_of(cl, step, shape)) return false;
    return cl->switches.token == AG_CL_ON || (cl->whole_tokens && ag_cl_token_has_run(shape));
}

ag_status ag_cl_token_step(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step,
                           bool *taken) {
    ag_cl_token_shape shape = token->shape;
    ag_cl_token_shape_now(step, &shape);
    AG_TRY(ag_cl_token_reserve(cl, token, &shape));
    AG_TRY(run(cl, token, step, taken));
    cl->counts.launched += *taken;
    if (!*taken || !step->seqs[0].device_scores) return AG_OK;
    return ag_cl_sum_weights(cl, ag_cl_buffer_of(cl, token->scores)->mem, 0, step->seqs,
                             shape.n_layers, shape.group, 1, token->shape.max_blocks * AG_KV_BLOCK);
}
