/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer of kernels/token.cl and its uploads before a launch. */
#include "backend/opencl/token.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { PACKET = 8, BLOCK_PACKETS = 10, ALIGN = 256 };

static size_t reserve_bytes(size_t *at, size_t bytes) {
    const size_t here = *at;
    *at = (here + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

static ag_cl_token_layout layout_mailbox(const ag_cl_token_shape *s) {
    const size_t layers = s->n_layers;
    const size_t pieces = s->n_groups / s->n_kv ? s->n_groups / s->n_kv : 1;
    const size_t of_piece = (size_t)s->group * (s->head_dim + 2) * PACKET;
    const bool floats = (s->row_types | s->long_types) & AG_CL_TOKEN_FLOATS;
    const size_t of_block = (floats ? (size_t)AG_QK : BLOCK_PACKETS) * PACKET;
    ag_cl_token_layout at = {0};
    size_t end = 0;
    at.stream = reserve_bytes(&end, (size_t)s->dim * PACKET);
    at.cos_sin = reserve_bytes(&end, (size_t)s->head_dim * sizeof(float));
    at.n_slots = reserve_bytes(&end, layers * s->n_kv * sizeof(cl_uint));
    at.request = reserve_bytes(&end, sizeof(ag_cl_token_request));
    at.result = reserve_bytes(&end, sizeof(ag_cl_token_result));
    at.mailbox_bytes = at.result + offsetof(ag_cl_token_result, at);
    at.stages = reserve_bytes(&end, ag_cl_token_max_stages(s) * sizeof(ag_cl_token_stage));
    at.blocks = reserve_bytes(&end, layers * s->n_kv * s->max_blocks * sizeof(cl_ulong));
    at.qkv = reserve_bytes(&end, ((size_t)s->q_dim + 2 * (size_t)s->kv_dim) * PACKET);
    at.out = reserve_bytes(&end, s->q_dim / AG_QK * of_block);
    at.gate = reserve_bytes(&end, s->ffn_dim / AG_QK * of_block);
    at.partial = reserve_bytes(&end, s->n_kv * pieces * of_piece);
    at.maxima = reserve_bytes(&end, (size_t)AG_CL_TOKEN_MAXIMA * PACKET);
    at.bytes = end;
    return at;
}

/* ---- memory ---- */

void ag_cl_token_release_store(ag_cl_token *token) {
    ag_buffer_release(&token->store);
    ag_buffer_release(&token->scores);
    ag_free(token->stages);
    ag_free(token->blocks);
    ag_free(token->known);
    ag_free(token->mailbox);
    *token = (ag_cl_token){0};
}

ag_status ag_cl_token_reserve(ag_cl_backend *cl, ag_cl_token *token,
                              const ag_cl_token_shape *shape) {
    if (token->store && token->shape.max_blocks >= shape->max_blocks) {
        token->sent = token->sent && token->shape.select == shape->select;
        token->shape.select = shape->select;
        return AG_OK;
    }
    ag_error *err = &cl->base.err;
    ag_cl_token_release_store(token);
    token->shape = *shape;
    token->shape.max_blocks =
        2 * shape->max_blocks; /* for fewer reallocations as the cache grows */
    token->at = layout_mailbox(&token->shape);
    const size_t n_blocks = (size_t)shape->n_layers * shape->n_kv * token->shape.max_blocks;
    token->stages = ag_calloc(ag_cl_token_max_stages(shape), sizeof *token->stages);
    token->blocks = ag_calloc(n_blocks, sizeof *token->blocks);
    token->known = ag_calloc(n_blocks, sizeof *token->known);
    token->mailbox = ag_calloc(1, token->at.stages);
    ag_status st = AG_OK;
    if (!token->stages || !token->blocks || !token->known || !token->mailbox) {
        st = AG_FAIL(err, NOMEM, "stages of %u layers", shape->n_layers);
    }
    if (st == AG_OK) {
        st = ag_memory_alloc(&cl->memory->base, token->at.bytes, AG_USAGE_SCRATCH, &token->store,
                             err);
    }
    if (st == AG_OK) st = ag_cl_buffer_address(cl, token->store, &token->address);
    if (st != AG_OK) ag_cl_token_release_store(token);
    token->next_tag = 1; /* 0 is the tag of unwritten packets */
    return st;
}

/* ---- uploads ---- */

static ag_status send(ag_cl_backend *cl, const ag_cl_token *token, size_t offset, const void *data,
                      size_t n) {
    return ag_cl_stage_into(cl, ag_cl_buffer_of(cl, token->store)->mem, offset, data, n,
                            &cl->base.err);
}

static ag_status upload_stages(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step) {
    const size_t bytes = ag_cl_token_stages(&token->shape) * sizeof *token->stages;
    if (token->sent) return AG_OK;
    AG_TRY(ag_cl_token_write_stages(cl, step, token));
    AG_TRY(send(cl, token, token->at.stages, token->stages, bytes));
    token->sent = true;
    cl->counts.uploaded++;
    return AG_OK;
}

/* Writes the request for the best logits and clears the result. */
static void ask(ag_cl_token *token, const ag_top_k *top) {
    ag_cl_token_request *request = (void *)(token->mailbox + token->at.request);
    ag_cl_token_result *result = (void *)(token->mailbox + token->at.result);
    result->aborted = result->n_listed = result->pad = 0;
    result->bad = UINT32_MAX;
    if (!top) return;
    request->k = (cl_uint)top->k;
    request->n_ids = (cl_uint)top->n_ids;
    if (top->n_ids) memcpy(request->ids, top->ids, top->n_ids * sizeof *request->ids);
}

/* Writes the addresses of a head's blocks, including the new token's, unless they are known. */
static ag_status list_head(ag_cl_backend *cl, cl_ulong *row, ag_kv_block *known,
                           const ag_kv_view *kv, uint32_t head, bool *changed) {
    const ag_kv_block *now = ag_kv_view_block(kv, head, 0);
    const uint32_t n = kv->n_slots[head] / AG_KV_BLOCK + 1;
    if (!memcmp(known, now, n * sizeof *now)) return AG_OK;
    *changed = true;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t address = 0;
        AG_TRY(ag_cl_buffer_address(cl, now[i].buffer, &address));
        row[i] = address + now[i].offset;
    }
    memcpy(known, now, n * sizeof *now);
    return AG_OK;
}

static ag_status list_blocks(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step,
                             bool *changed) {
    const ag_cl_token_shape *s = &token->shape;
    const uint32_t released = cl->released;
    size_t at = 0;
    *changed = false;
    if (token->released != released) {
        memset(token->known, 0,
               (size_t)s->n_layers * s->n_kv * s->max_blocks * sizeof *token->known);
    }
    token->released = released;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (uint32_t h = 0; h < s->n_kv; h++, at += s->max_blocks) {
            AG_TRY(list_head(cl, token->blocks + at, token->known + at, &step->seqs[l].kv, h,
                             changed));
        }
    }
    return AG_OK;
}

static ag_status upload_blocks(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step) {
    bool changed;
    ag_status st = list_blocks(cl, token, step, &changed);
    if (st == AG_OK && !changed) return AG_OK;
    if (st == AG_OK) {
        st = send(cl, token, token->at.blocks, token->blocks,
                  (size_t)token->shape.n_layers * token->shape.n_kv * token->shape.max_blocks *
                      sizeof *token->blocks);
    }
    if (st != AG_OK) token->known[0] = (ag_kv_block){0}; /* forces another upload */
    return st;
}

static ag_status upload_mailbox(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step,
                                uint32_t tag) {
    const ag_cl_token_layout *at = &token->at;
    const ag_cl_token_shape *s = &token->shape;
    cl_ulong *packets = (cl_ulong *)(void *)(token->mailbox + at->stream);
    float *cos_sin = (float *)(void *)(token->mailbox + at->cos_sin);
    cl_uint *n_slots = (cl_uint *)(void *)(token->mailbox + at->n_slots);
    const ag_attend_op *a = step->program->attend;
    const float *inv_freq = ag_tensor_f32(&step->inv_freq[a->rope][step->is_long]);
    const double factor = (double)a->rope_factor;
    for (uint32_t i = 0; i < s->dim; i++) {
        cl_uint bits;
        memcpy(&bits, &step->embedding[i], sizeof bits);
        packets[i] = (cl_ulong)tag << 32 | bits;
    }
    for (uint32_t i = 0; i < s->head_dim / 2; i++) {
        const double angle = (double)step->position * (double)inv_freq[i];
        cos_sin[2 * i] = (float)(factor * cos(angle));
        cos_sin[2 * i + 1] = (float)(factor * sin(angle));
    }
    for (uint32_t l = 0; l < s->n_layers; l++) {
        memcpy(n_slots + (size_t)l * s->n_kv, step->seqs[l].kv.n_slots, s->n_kv * sizeof *n_slots);
    }
    ask(token, step->top);
    return send(cl, token, at->stream, token->mailbox, at->mailbox_bytes);
}

ag_status ag_cl_token_upload(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step,
                             uint32_t first_tag) {
    AG_TRY(upload_stages(cl, token, step));
    AG_TRY(upload_blocks(cl, token, step));
    return upload_mailbox(cl, token, step, first_tag);
}
