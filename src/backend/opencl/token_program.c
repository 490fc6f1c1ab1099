/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a program to stages for kernels/token.cl. */
#include "backend/opencl/layout.h"
#include "backend/opencl/token.h"
#include "core/fail.h"
#include "core/hadamard.h"
#include "quant/quant.h"

/* ---- supported steps ---- */

/* Returns whether w is a supported weight [n,k], and adds its type to *types. */
static bool is_weight(const ag_tensor *w, uint32_t n, uint32_t k, uint32_t *types) {
    const uint32_t type = UINT32_C(1) << w->dtype;
    *types |= type;
    return type & (AG_CL_TOKEN_BLOCKS | AG_CL_TOKEN_FLOATS) && w->layout == AG_CL_LAYOUT_PREPARED &&
           ag_shape_rows(&w->shape) == n && ag_shape_cols(&w->shape) == k && k % AG_QK == 0;
}

/* Adds the types of a stage's weights to *set. Returns whether all need x in the same form. */
static bool add_types(uint32_t types, uint32_t *set) {
    *set |= types;
    return !(types & AG_CL_TOKEN_FLOATS) || !(types & AG_CL_TOKEN_BLOCKS);
}

/* Returns whether w is a supported weight of a product added to the stream. */
static bool is_branch(const ag_tensor *w, uint32_t k, ag_cl_token_shape *s) {
    return is_weight(w, s->dim, k, k <= AG_CL_TOKEN_LONG ? &s->row_types : &s->long_types);
}

static bool is_cache_type(ag_dtype type, uint32_t head_dim) {
    return type == AG_F32 || type == AG_F16 ||
           ((type == AG_Q8_0 || type == AG_Q4_0) && head_dim % AG_QK == 0);
}

_Static_assert((int)AG_CL_TOKEN_IDS == (int)AG_TOP_K_IDS, "a request holds them");

enum { MAX_COLUMNS = 32768, FLOAT_COLUMNS = 8192 };

/* Returns whether the kernel supports the sizes: a warp's tiles have 8 query heads, local memory
 * has heads of 128 or that number of columns, and the output of a KV head is a multiple of a block.
 */
static bool is_size(const ag_cl_token_shape *s) {
    return s->head_dim % 16 == 0 && s->head_dim <= 128 && s->group <= 8 &&
           s->group * s->head_dim % AG_QK == 0 && s->dim <= MAX_COLUMNS &&
           s->q_dim <= MAX_COLUMNS && s->ffn_dim <= MAX_COLUMNS;
}

static bool has_floats(const ag_cl_token_shape *s) {
    const uint32_t types =
        s->split_types | s->pair_types | s->row_types | s->long_types | s->logit_types;
    return types & AG_CL_TOKEN_FLOATS;
}

/* Extend this when more was tested on a GPU. tests/unit/test_opencl_token_shapes.c lists the tested
 * groups, types, biases and rotations, though not all combinations. The kernel's attention is in
 * halves, so a cache of F32 with weights of floats would lose its exactness. */
bool ag_cl_token_has_run(const ag_cl_token_shape *s) {
    static const uint32_t sizes[] = {32, 64, 80, 96, 128};
    const bool is_exact = has_floats(s) && (s->k_type == AG_F32 || s->v_type == AG_F32);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (s->head_dim == sizes[i]) return !is_exact;
    }
    return false;
}

/* Returns the number of groups. Each must have rows of q/k/v and 32 rows of gate and up. */
static uint32_t groups_for(const ag_cl_backend *cl, const ag_cl_token_shape *s) {
    uint32_t n = cl->device.is_cpu ? 1 : cl->device.compute_units;
    if (n > s->ffn_dim / AG_QK) n = s->ffn_dim / AG_QK;
    if (n > s->q_dim + 2 * s->kv_dim) n = s->q_dim + 2 * s->kv_dim;
    return n;
}

static const ag_tensor *weight_of(const ag_step *step, const ag_op *op, int i) {
    return step->weights[op->w[i]].tensor;
}

/* Returns whether attention equals that of other layers but for windows, and the cache fits. */
static bool is_attention(const ag_step *step, const ag_op *op, ag_cl_token_shape *s) {
    const ag_attend_op *a = &step->program->attend[op->params], *first = step->program->attend;
    const ag_kv_view *kv = &step->seqs[a->cache].kv, *one = &step->seqs[first->cache].kv;
    s->has_windows |= a->window > 0;
    return a->n_heads == first->n_heads && a->n_kv_heads == first->n_kv_heads &&
           a->head_dim == first->head_dim && a->rope == first->rope && a->scale == first->scale &&
           a->rope_factor == first->rope_factor && kv->k_type == one->k_type &&
           kv->v_type == one->v_type && kv->v_offset == one->v_offset &&
           kv->p_offset == one->p_offset;
}

static bool is_op(const ag_step *step, const ag_op *op, ag_cl_token_shape *s) {
    const ag_gate_kind kind = s->is_gelu ? AG_GATE_GELU_TANH : AG_GATE_SILU;
    const bool is_head_norm = op->code == AG_OP_NORM && op->out[0] == op->in[0];
    s->has_qk_norms |= is_head_norm;
    if (op->code == AG_OP_ATTEND) return is_attention(step, op, s);
    if (op->code == AG_OP_GATE) return op->kind == kind;
    if (op->code != AG_OP_NORM) return true;
    return op->number == step->program->ops[0].number &&
           (!is_head_norm || ag_shape_numel(&weight_of(step, op, 0)->shape) == s->head_dim);
}

/* Returns whether the weights of a stage's products are supported. */
static bool is_stage(const ag_step *step, const ag_stage *stage, ag_cl_token_shape *s) {
    const ag_op *first = &step->program->ops[stage->first], *normed = first + 1;
    uint32_t types = 0;
    switch (stage->pattern) {
    case AG_STAGE_ATTENTION:
        return true;
    case AG_STAGE_ADDED:
        return is_branch(weight_of(step, first, 0), step->program->values[first->in[0]].cols, s);
    case AG_STAGE_NORMED:
        return is_weight(weight_of(step, normed, 0), s->q_dim, s->dim, &types) &&
               is_weight(weight_of(step, normed, 1), s->kv_dim, s->dim, &types) &&
               is_weight(weight_of(step, normed, 2), s->kv_dim, s->dim, &types) &&
               add_types(types, &s->split_types);
    case AG_STAGE_GATED:
        return is_weight(weight_of(step, normed, 0), s->ffn_dim, s->dim, &types) &&
               is_weight(weight_of(step, normed, 1), s->ffn_dim, s->dim, &types) &&
               add_types(types, &s->pair_types);
    case AG_STAGE_LOGITS:
        return is_weight(weight_of(step, normed, 0), s->n_vocab, s->dim, &s->logit_types);
    }
    return false;
}

/* Returns the columns of the gate of the first feed-forward; 0: none. */
static uint32_t first_gate(const ag_program *p, uint32_t *is_gelu) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].code != AG_OP_GATE) continue;
        *is_gelu = p->ops[i].kind == AG_GATE_GELU_TANH;
        return p->values[p->ops[i].out[0]].cols;
    }
    return 0;
}

static bool rotates_whole_heads(const ag_step *step) {
    const ag_attend_op *a = step->program->attend;
    return a->rope != AG_NONE &&
           ag_shape_numel(&step->inv_freq[a->rope][step->is_long].shape) == a->head_dim / 2;
}

bool ag_cl_token_shape_of(const ag_cl_backend *cl, const ag_step *step, ag_cl_token_shape *out) {
    const ag_program *p = step->program;
    const ag_attend_op *a = p->attend;
    const ag_kv_view *kv = &step->seqs[0].kv;
    if (!p->n_attend || a->n_heads % a->n_kv_heads || !rotates_whole_heads(step)) return false;
    if (!is_cache_type(kv->k_type, kv->head_dim)) return false;
    if (!is_cache_type(kv->v_type, kv->head_dim)) return false;
    ag_cl_token_shape s = {
        .dim = p->values[p->stream].cols,
        .q_dim = a->n_heads * a->head_dim,
        .kv_dim = a->n_kv_heads * a->head_dim,
        .n_vocab = p->values[p->logits].cols,
        .n_layers = p->n_attend,
        .n_kv = a->n_kv_heads,
        .head_dim = a->head_dim,
        .group = a->n_heads / a->n_kv_heads,
        .k_type = (uint32_t)kv->k_type,
        .v_type = (uint32_t)kv->v_type,
        .piece = step->hadamard ? (uint32_t)ag_hadamard_piece(a->head_dim) : 1,
    };
    s.ffn_dim = first_gate(p, &s.is_gelu);
    s.n_groups = groups_for(cl, &s);
    if (!is_size(&s) || s.ffn_dim % AG_QK || !s.n_groups) return false;
    if (p->n_stages != 5 * s.n_layers + 1) return false;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (!is_op(step, &p->ops[i], &s)) return false;
    }
    for (uint32_t i = 0; i < p->n_stages; i++) {
        if (!is_stage(step, &p->stages[i], &s)) return false;
    }
    /* Local memory must have x in floats, rounded up to segments as in token_product.cl. */
    const size_t columns = ag_cl_items(ag_cl_token_columns(&s), FLOAT_COLUMNS);
    if (has_floats(&s) && columns * sizeof(float) > cl->mma_local) return false;
    ag_cl_token_shape_now(step, &s);
    *out = s;
    return true;
}

void ag_cl_token_shape_now(const ag_step *step, ag_cl_token_shape *shape) {
    uint32_t max_slots = 0;
    for (uint32_t l = 0; l < shape->n_layers; l++) {
        const uint32_t n = ag_kv_view_max_slots(&step->seqs[l].kv);
        if (n > max_slots) max_slots = n;
    }
    shape->max_blocks = max_slots / AG_KV_BLOCK + 1;
    shape->select = step->top && shape->n_groups <= AG_CL_TOKEN_MAXIMA / 2;
}

uint32_t ag_cl_token_stages(const ag_cl_token_shape *s) {
    return 5 * s->n_layers + (s->select ? 2 : 1);
}

uint32_t ag_cl_token_max_stages(const ag_cl_token_shape *s) { return 5 * s->n_layers + 2; }

/* Returns the number of partial maxima for each work-group: a power of two, at least 2. More of
 * them give a tighter bound for the best logits. */
static uint32_t parts_of_group(const ag_cl_backend *cl, const ag_cl_token_shape *s) {
    enum { ENOUGH = 256 };
    const uint32_t warps = cl->device.is_nvidia ? AG_CL_TOKEN_ITEMS / 32 : AG_CL_TOKEN_ITEMS_CPU;
    uint32_t parts = 2;
    while (parts < warps && parts * s->n_groups < ENOUGH) parts *= 2;
    return parts;
}

/* ---- the stages ---- */

typedef struct writer {
    ag_cl_backend *cl;
    const ag_cl_token *token;
    const ag_step *step;
    uint32_t n; /* number of stages */
} writer;

static cl_ulong mailbox(const writer *w, size_t offset) { return w->token->address + offset; }

static ag_status tensor_address(const writer *w, const ag_tensor *t, cl_ulong *out) {
    uint64_t address = 0;
    AG_TRY(ag_cl_buffer_address(w->cl, t->buffer, &address));
    *out = address + t->offset;
    return AG_OK;
}

/* Adds weight i of the operation. Plane addresses are shifted as if its first row were row0. */
static ag_status add_weight(const writer *w, const ag_op *op, int i, uint32_t row0,
                            ag_cl_token_stage *s) {
    const ag_tensor *t = weight_of(w->step, op, i);
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
    s->types[i] = t->dtype;
    s->w[i] = (ag_cl_token_weight){
        .levels = planes[0], .high = planes[1], .factors = planes[2], .more = planes[3]};
    return AG_OK;
}

static ag_status norm_address(const writer *w, const ag_op *norm, cl_ulong *out) {
    return tensor_address(w, weight_of(w->step, norm, 0), out);
}

/* Adds a stage. Packets that stage i writes have tag i + 1. */
static ag_cl_token_stage *add_stage(writer *w, ag_cl_stage_type type, size_t in, cl_ulong out) {
    ag_cl_token_stage *s = &w->token->stages[w->n];
    *s = (ag_cl_token_stage){
        .type = type,
        .in_tag = w->n,
        .in = mailbox(w, in),
        .out = out,
    };
    w->n++;
    return s;
}

/* Adds a product with the operation's first weight. */
static ag_status add_product(writer *w, ag_cl_stage_type type, const ag_op *op, size_t in,
                             cl_ulong out, ag_cl_token_stage **stage) {
    const ag_tensor *t = weight_of(w->step, op, 0);
    ag_cl_token_stage *s = *stage = add_stage(w, type, in, out);
    s->rows = (cl_uint)ag_shape_rows(&t->shape);
    s->k = (cl_uint)ag_shape_cols(&t->shape);
    s->end1 = s->end2 = UINT32_MAX;
    return add_weight(w, op, 0, 0, s);
}

/* Adds a norm and its products. q, k and v are one product with the rows of three weights. */
static ag_status add_normed(writer *w, const ag_op *norm) {
    const ag_cl_token_layout *at = &w->token->at;
    const ag_cl_token_shape *shape = &w->token->shape;
    const ag_op *qkv = norm + 1;
    ag_cl_token_stage *s;
    AG_TRY(add_product(w, AG_CL_NORMED, qkv, at->stream, mailbox(w, at->qkv), &s));
    AG_TRY(norm_address(w, norm, &s->norm));
    s->end1 = shape->q_dim;
    s->end2 = shape->q_dim + shape->kv_dim;
    s->rows = s->end2 + shape->kv_dim;
    AG_TRY(add_weight(w, qkv, 1, s->end1, s));
    return add_weight(w, qkv, 2, s->end2, s);
}

/* Adds attention. `extra` has biases of q, k and v and norms of heads of q and k. */
static ag_status add_attention(writer *w, const ag_stage *stage) {
    const ag_program *p = w->step->program;
    const ag_op *attend = &p->ops[stage->first + stage->n - 1];
    ag_cl_token_stage *s =
        add_stage(w, AG_CL_ATTENTION, w->token->at.qkv, mailbox(w, w->token->at.out));
    const ag_attend_op *a = &p->attend[attend->params];
    s->layer = a->cache;
    s->window = a->window;
    for (const ag_op *op = &p->ops[stage->first]; op < attend; op++) {
        int i = op->code == AG_OP_BIAS ? 0 : 3;
        for (int k = 0; attend->in[k] != op->out[0]; k++) i++;
        AG_TRY(tensor_address(w, weight_of(w->step, op, 0), &s->extra[i]));
    }
    return AG_OK;
}

static ag_status add_added(writer *w, const ag_stage *stage, size_t in) {
    const ag_op *product = &w->step->program->ops[stage->first], *bias = product + 1;
    ag_cl_token_stage *s;
    const bool floats = AG_CL_TOKEN_FLOATS >> weight_of(w->step, product, 0)->dtype & 1;
    w->token->stages[w->n - 1].sends_floats = floats;
    AG_TRY(add_product(w, AG_CL_ADDED, product, in, mailbox(w, w->token->at.stream), &s));
    if (bias->code != AG_OP_BIAS) return AG_OK;
    return tensor_address(w, weight_of(w->step, bias, 0), &s->extra[0]);
}

static ag_status add_gated(writer *w, const ag_op *norm) {
    const ag_cl_token_layout *at = &w->token->at;
    ag_cl_token_stage *s;
    AG_TRY(add_product(w, AG_CL_GATED, norm + 1, at->stream, mailbox(w, at->gate), &s));
    AG_TRY(norm_address(w, norm, &s->norm));
    return add_weight(w, norm + 1, 1, 0, s);
}

/* Adds the logits with the maxima of each group, then the selection of the best. */
static ag_status add_logits(writer *w, const ag_op *norm) {
    const ag_cl_token_layout *at = &w->token->at;
    const ag_cl_token_shape *shape = &w->token->shape;
    const uint32_t parts = parts_of_group(w->cl, shape);
    cl_ulong logits = 0;
    ag_cl_token_stage *s;
    AG_TRY(tensor_address(w, w->step->logits, &logits));
    AG_TRY(add_product(w, AG_CL_LOGITS, norm + 1, at->stream, logits, &s));
    AG_TRY(norm_address(w, norm, &s->norm));
    s->end1 = shape->select ? parts : 0;
    s->extra[0] = mailbox(w, at->maxima);
    s->extra[1] = mailbox(w, at->result);
    if (!shape->select) return AG_OK;
    ag_cl_token_stage *select = add_stage(w, AG_CL_SELECT, at->maxima, logits);
    select->rows = s->rows;
    select->k = parts;
    select->extra[0] = mailbox(w, at->request);
    select->extra[1] = mailbox(w, at->result);
    return AG_OK;
}

ag_status ag_cl_token_write_stages(ag_cl_backend *cl, const ag_step *step, ag_cl_token *token) {
    const ag_program *p = step->program;
    writer w = {.cl = cl, .token = token, .step = step};
    size_t in = 0; /* mailbox written by the previous stage */
    for (const ag_stage *s = p->stages; s < p->stages + p->n_stages; s++) {
        const ag_op *first = &p->ops[s->first];
        ag_status st = AG_OK;
        switch (s->pattern) {
        case AG_STAGE_NORMED:
            st = add_normed(&w, first);
            break;
        case AG_STAGE_ATTENTION:
            st = add_attention(&w, s);
            in = token->at.out;
            break;
        case AG_STAGE_GATED:
            st = add_gated(&w, first);
            in = token->at.gate;
            break;
        case AG_STAGE_ADDED:
            st = add_added(&w, s, in);
            break;
        case AG_STAGE_LOGITS:
            st = add_logits(&w, first);
            break;
        }
        AG_TRY(st);
    }
    return AG_OK;
}
