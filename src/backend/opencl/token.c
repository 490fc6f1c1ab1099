/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a token in one launch of kernels/token.cl. */
#include "backend/opencl/token.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <stdio.h>

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
    ag_cl_arg_u32(l, ag_cl_token_stages(&token->shape));
    ag_cl_arg_u32(l, first_tag);
    ag_cl_arg_u64(l, token->address + at->result);
    ag_cl_arg_u64(l, token->address + at->cos_sin);
    ag_cl_arg_u64(l, token->address + at->blocks);
    ag_cl_arg_u64(l, token->address + at->n_slots);
    ag_cl_arg_u64(l, token->address + at->partial);
    ag_cl_arg_u64(l, step->seqs[0].device_scores ? token->scores_address : 0);
    ag_cl_arg_u32(l, token->shape.n_kv);
    ag_cl_arg_u32(l, token->shape.max_blocks);
    ag_cl_arg_u32(l, (uint32_t)step->seqs[0].kv.v_offset);
    ag_cl_arg_u32(l, (uint32_t)step->seqs[0].kv.p_offset);
    ag_cl_arg_u32(l, step->position);
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

/* Returns whether every layer attends to all slots. No GPU has run this yet. */
static bool sums_allowed(const ag_cl_backend *cl, const ag_step *step) {
    for (uint32_t l = 0; l < step->program->n_attend; l++) {
        if (step->program->attend[l].window) return false;
    }
    return cl->switches.token == AG_CL_ON;
}

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
    const ag_status st = ag_cl_token_read(cl, token, step);
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
           cl->switches.token != AG_CL_OFF &&
           (!step->seqs[0].device_scores || sums_allowed(cl, step));
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
