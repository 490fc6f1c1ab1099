/* SPDX-License-Identifier: Apache-2.0 */
/* A decode step as a program for kernels/token.cl. */
#include "backend/opencl/layout.h"
#include "backend/opencl/token.h"
#include "core/fail.h"
#include "core/hadamard.h"
#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

/* ---- is it a step for the kernel? ---- */

/* Adds its type to a set. */
static bool is_weight(const ag_tensor *w, uint32_t n, uint32_t k, uint32_t *types) {
    const uint32_t type = UINT32_C(1) << w->dtype;
    *types |= type;
    return type & AG_CL_TOKEN_TYPES && w->layout == AG_CL_LAYOUT_PREPARED &&
           ag_shape_rows(&w->shape) == n && ag_shape_cols(&w->shape) == k && k % AG_QK == 0;
}

/* What is added to the stream. */
static bool is_branch(const ag_tensor *w, uint32_t k, ag_cl_token_shape *s) {
    return is_weight(w, s->dim, k, k <= AG_CL_TOKEN_LONG ? &s->row_types : &s->long_types);
}

static bool is_layer(const ag_decode_layer *l, ag_cl_token_shape *s) {
    return is_weight(l->wq, s->q_dim, s->dim, &s->split_types) &&
           is_weight(l->wk, s->kv_dim, s->dim, &s->split_types) &&
           is_weight(l->wv, s->kv_dim, s->dim, &s->split_types) && is_branch(l->wo, s->q_dim, s) &&
           is_weight(l->w_gate, s->ffn_dim, s->dim, &s->pair_types) &&
           is_weight(l->w_up, s->ffn_dim, s->dim, &s->pair_types) &&
           is_branch(l->w_down, s->ffn_dim, s);
}

static bool is_cache_type(ag_dtype type, uint32_t head_dim) {
    return type == AG_F32 || type == AG_F16 ||
           ((type == AG_Q8_0 || type == AG_Q4_0) && head_dim % AG_QK == 0);
}

_Static_assert((int)AG_CL_TOKEN_IDS == (int)AG_TOP_K_IDS, "a request holds them");

enum { MOST_COLUMNS = 32768 };

/* What the kernel is written for: a warp's tiles hold 8 query heads, local memory heads of 128 or
 * that many columns, and what leaves a KV head's attention are whole blocks. */
static bool is_size(const ag_cl_token_shape *s) {
    return s->head_dim % 16 == 0 && s->head_dim <= 128 && s->group <= 8 &&
           s->group * s->head_dim % AG_QK == 0 && s->dim <= MOST_COLUMNS &&
           s->q_dim <= MOST_COLUMNS && s->ffn_dim <= MOST_COLUMNS;
}

/* Widened as a GPU runs more: of these sizes tests/unit/test_opencl_token_shapes.c lists groups,
 * types, biases and rotations, though not each with each. */
bool ag_cl_token_has_run(const ag_cl_token_shape *s) {
    static const uint32_t sizes[] = {32, 64, 80, 96, 128};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (s->head_dim == sizes[i]) return true;
    }
    return false;
}

/* A group must have rows of q/k/v and 32 rows of gate and up: see kernels/token.cl. */
static uint32_t groups_for(const ag_cl_backend *cl, const ag_cl_token_shape *s) {
    uint32_t n = cl->device.is_cpu ? 1 : cl->device.compute_units;
    if (n > s->ffn_dim / AG_QK) n = s->ffn_dim / AG_QK;
    if (n > s->q_dim + 2 * s->kv_dim) n = s->q_dim + 2 * s->kv_dim;
    return n;
}

bool ag_cl_token_shape_of(const ag_cl_backend *cl, const ag_decode_step *step,
                          ag_cl_token_shape *out) {
    const ag_kv_view *kv = &step->kv[0];
    const uint32_t n_heads = step->layers[0].n_heads;
    if (!step->n_layers || !is_cache_type(kv->k_type, kv->head_dim)) return false;
    if (!is_cache_type(kv->v_type, kv->head_dim)) return false;
    if (n_heads % kv->n_kv_heads) return false;
    ag_cl_token_shape s = {
        .dim = (uint32_t)ag_shape_cols(&step->layers[0].wq->shape),
        .q_dim = n_heads * kv->head_dim,
        .kv_dim = kv->n_kv_heads * kv->head_dim,
        .ffn_dim = (uint32_t)ag_shape_rows(&step->layers[0].w_gate->shape),
        .n_vocab = (uint32_t)ag_shape_rows(&step->lm_head->shape),
        .n_layers = step->n_layers,
        .n_kv = kv->n_kv_heads,
        .head_dim = kv->head_dim,
        .group = n_heads / kv->n_kv_heads,
        .max_blocks = ag_step_most_slots(step) / AG_KV_BLOCK + 1,
        .k_type = (uint32_t)kv->k_type,
        .v_type = (uint32_t)kv->v_type,
        .piece = step->hadamard ? (uint32_t)ag_hadamard_piece(kv->head_dim) : 1,
    };
    s.features = ag_step_features(step) & AG_CL_TOKEN_COMPILED;
    s.n_groups = groups_for(cl, &s);
    s.select = step->top && s.n_groups <= AG_CL_TOKEN_MAXIMA / 2;
    if (!is_size(&s) || s.ffn_dim % AG_QK || !s.n_groups) return false;
    for (uint32_t l = 0; l < s.n_layers; l++) {
        const ag_decode_layer *layer = &step->layers[l];
        if (!is_layer(layer, &s)) return false;
        if (layer->bq || layer->bk || layer->bv || layer->bo) s.has_biases = 1;
    }
    if (!is_weight(step->lm_head, s.n_vocab, s.dim, &s.logit_types)) return false;
    *out = s;
    return true;
}

uint32_t ag_cl_token_stages(const ag_cl_token_shape *s) {
    return 5 * s->n_layers + (s->select ? 2 : 1);
}

uint32_t ag_cl_token_most_stages(const ag_cl_token_shape *s) { return 5 * s->n_layers + 2; }

/* Of a group's rows: parts whose largest logits bound the best ones. Enough that few logits pass
 * the bound, a power of two from 2 on. */
static uint32_t parts_of_group(const ag_cl_backend *cl, const ag_cl_token_shape *s) {
    enum { ENOUGH = 256 };
    const uint32_t warps = cl->device.is_nvidia ? AG_CL_TOKEN_ITEMS / 32 : AG_CL_TOKEN_ITEMS_CPU;
    uint32_t parts = 2;
    while (parts < warps && parts * s->n_groups < ENOUGH) parts *= 2;
    return parts;
}

/* ---- the program ---- */

typedef struct writer {
    ag_cl_backend *cl;
    const ag_cl_token *token;
    ag_cl_token_stage *stages;
    uint32_t n;
} writer;

static cl_ulong mailbox(const writer *w, size_t offset) { return w->token->address + offset; }

static ag_status tensor_address(const writer *w, const ag_tensor *t, cl_ulong *out) {
    uint64_t address = 0;
    AG_TRY(ag_cl_token_address(w->cl, t->buffer, &address));
    *out = address + t->offset;
    return AG_OK;
}

/* Weight number n of the stage. Its planes are named as if its first row were number row0. */
static ag_status weight(const writer *w, const ag_tensor *t, uint32_t row0, ag_cl_token_stage *s,
                        size_t n) {
    const size_t rows = ag_shape_rows(&t->shape), k = ag_shape_cols(&t->shape);
    cl_ulong begin = 0, planes[AG_CL_PLANES];
    AG_TRY(tensor_address(w, t, &begin));
    cl_ulong at = begin;
    for (unsigned p = 0; p < AG_CL_PLANES; p++) {
        const size_t row = ag_cl_plane_bytes(t->dtype, p, k);
        if (p == AG_CL_FACTORS) at = begin + ag_cl_prepared_scales(t->dtype, rows, k);
        planes[p] = at - (cl_ulong)row0 * row;
        at += rows * row;
    }
    s->types[n] = t->dtype;
    s->w[n] = (ag_cl_token_weight){
        .levels = planes[0], .high = planes[1], .factors = planes[2], .more = planes[3]};
    return AG_OK;
}

/* A product with one weight. Tags count the stages: what stage i writes has tag i + 1. */
static ag_status add_product(writer *w, ag_cl_stage_type type, uint32_t layer, const ag_tensor *t,
                             const ag_tensor *norm, size_t in, uint32_t in_tag, cl_ulong out) {
    ag_cl_token_stage *s = &w->stages[w->n++];
    *s = (ag_cl_token_stage){
        .type = type,
        .rows = (cl_uint)ag_shape_rows(&t->shape),
        .k = (cl_uint)ag_shape_cols(&t->shape),
        .layer = layer,
        .in_tag = in_tag,
        .end1 = UINT32_MAX,
        .end2 = UINT32_MAX,
        .in = mailbox(w, in),
        .out = out,
    };
    if (norm) AG_TRY(tensor_address(w, norm, &s->norm));
    return weight(w, t, 0, s, 0);
}

/* q, k and v are one product whose rows come from three weights. */
static ag_status add_qkv(writer *w, uint32_t layer, const ag_decode_layer *l) {
    const ag_cl_token_layout *at = &w->token->at;
    const ag_cl_token_shape *shape = &w->token->shape;
    AG_TRY(add_product(w, AG_CL_NORMED, layer, l->wq, l->attention_norm, at->stream, w->n,
                       mailbox(w, at->qkv)));
    ag_cl_token_stage *s = &w->stages[w->n - 1];
    s->end1 = shape->q_dim;
    s->end2 = shape->q_dim + shape->kv_dim;
    s->rows = s->end2 + shape->kv_dim;
    AG_TRY(weight(w, l->wk, s->end1, s, 1));
    return weight(w, l->wv, s->end2, s, 2);
}

static ag_status if_any(const writer *w, const ag_tensor *t, cl_ulong *out) {
    return t ? tensor_address(w, t, out) : AG_OK;
}

static ag_status add_attention(writer *w, uint32_t layer, const ag_decode_layer *l) {
    ag_cl_token_stage *s = &w->stages[w->n];
    *s = (ag_cl_token_stage){
        .type = AG_CL_ATTENTION,
        .layer = layer,
        .in_tag = w->n,
        .in = mailbox(w, w->token->at.qkv),
        .out = mailbox(w, w->token->at.out),
    };
    w->n++;
    s->window = l->window;
    const ag_tensor *const extra[AG_CL_TOKEN_EXTRA] = {l->bq, l->bk, l->bv, l->q_norm, l->k_norm};
    for (size_t i = 0; i < AG_CL_TOKEN_EXTRA; i++) AG_TRY(if_any(w, extra[i], &s->extra[i]));
    return AG_OK;
}

static ag_status add_layer(writer *w, uint32_t layer, const ag_decode_layer *l) {
    const ag_cl_token_layout *at = &w->token->at;
    const cl_ulong stream = mailbox(w, at->stream);
    AG_TRY(add_qkv(w, layer, l));
    AG_TRY(add_attention(w, layer, l));
    AG_TRY(add_product(w, AG_CL_ADDED, layer, l->wo, NULL, at->out, w->n, stream));
    AG_TRY(if_any(w, l->bo, &w->stages[w->n - 1].extra[0]));
    AG_TRY(add_product(w, AG_CL_GATED, layer, l->w_gate, l->ffn_norm, at->stream, w->n,
                       mailbox(w, at->gate)));
    ag_cl_token_stage *gated = &w->stages[w->n - 1];
    AG_TRY(weight(w, l->w_up, 0, gated, 1));
    return add_product(w, AG_CL_ADDED, layer, l->w_down, NULL, at->gate, w->n, stream);
}

/* Logits, and of each group the largest; then the best. */
static ag_status add_end(writer *w, const ag_decode_step *step) {
    const ag_cl_token_layout *at = &w->token->at;
    const ag_cl_token_shape *shape = &w->token->shape;
    const uint32_t parts = parts_of_group(w->cl, shape);
    cl_ulong logits = 0;
    AG_TRY(tensor_address(w, step->logits, &logits));
    AG_TRY(add_product(w, AG_CL_LOGITS, 0, step->lm_head, step->norm, at->stream, w->n, logits));
    ag_cl_token_stage *s = &w->stages[w->n - 1];
    s->end1 = shape->select ? parts : 0;
    s->extra[0] = mailbox(w, at->maxima);
    s->extra[1] = mailbox(w, at->result);
    if (!shape->select) return AG_OK;
    w->stages[w->n] = (ag_cl_token_stage){
        .type = AG_CL_SELECT,
        .rows = s->rows,
        .k = parts,
        .in_tag = w->n,
        .in = mailbox(w, at->maxima),
        .out = logits,
        .extra = {mailbox(w, at->request), mailbox(w, at->result)},
    };
    w->n++;
    return AG_OK;
}

ag_status ag_cl_token_write_program(ag_cl_backend *cl, const ag_decode_step *step,
                                    ag_cl_token *token) {
    writer w = {.cl = cl, .token = token, .stages = token->program};
    for (uint32_t l = 0; l < step->n_layers; l++) AG_TRY(add_layer(&w, l, &step->layers[l]));
    return add_end(&w, step);
}
