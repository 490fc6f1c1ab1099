/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of sequences of one row each: joins their caches for one launch, and launches
 * kernels/attention_rows.cl. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

/* WARPS and MAX_QUERIES: work-groups of attention_rows.cl. */
enum { WARP = 32, WARPS = 6, WG = WARP * WARPS, MAX_QUERIES = 8, MAX_DIM = 128 };
enum { MIN_SPAN_BLOCKS = 2 };

/* ---- one cache of several sequences ---- */

static bool is_single(const ag_attention_seq *s) {
    return s->n_rows == 1 && !s->scores && !s->device_scores;
}

bool ag_cl_are_joinable(const ag_attention_seq *a, const ag_attention_seq *b) {
    const ag_kv_view *x = &a->kv, *y = &b->kv;
    return b->row0 == a->row0 + a->n_rows && x->k_type == y->k_type && x->v_type == y->v_type &&
           x->n_kv_heads == y->n_kv_heads && x->v_offset == y->v_offset &&
           x->p_offset == y->p_offset;
}

size_t ag_cl_count_joinable(const ag_attention_seq *seqs, size_t n) {
    size_t i = 1;
    while (i < n && is_single(&seqs[0]) && is_single(&seqs[i]) &&
           ag_cl_are_joinable(&seqs[i - 1], &seqs[i]) &&
           !seqs[0].visible_from == !seqs[i].visible_from) {
        i++;
    }
    return i;
}

/* Arrays of joined sequences, in this order. */
typedef struct joined {
    ag_kv_block *blocks; /* [n][heads][n_blocks] */
    uint32_t *slots;     /* [n][heads] */
    uint32_t *until, *from;
} joined;

static ag_status reserve_joined(ag_cl_backend *cl, size_t n, size_t heads, size_t n_blocks,
                                joined *out) {
    const size_t blocks = n * heads * n_blocks * sizeof *out->blocks;
    unsigned char *memory;
    AG_TRY(ag_cl_need_joined(cl, blocks + (n * heads + 2 * n) * sizeof(uint32_t), &memory));
    out->blocks = (ag_kv_block *)(void *)memory;
    out->slots = (uint32_t *)(void *)(memory + blocks);
    out->until = out->slots + n * heads;
    out->from = out->until + n;
    return AG_OK;
}

static void join_sequence(joined *to, const ag_attention_seq *s, size_t i, size_t n_blocks) {
    const ag_kv_view *kv = &s->kv;
    for (size_t h = 0; h < kv->n_kv_heads; h++) {
        const size_t row = i * kv->n_kv_heads + h;
        const size_t used = ag_kv_blocks_for(kv->n_slots[h]);
        ag_kv_block *blocks = to->blocks + row * n_blocks;
        memset(blocks, 0, n_blocks * sizeof *blocks);
        memcpy(blocks, ag_kv_view_block(kv, h, 0), used * sizeof *blocks);
        to->slots[row] = kv->n_slots[h];
    }
    to->until[i] = s->visible_until[0];
    to->from[i] = s->visible_from ? s->visible_from[0] : 0;
}

ag_status ag_cl_join_sequences(ag_cl_backend *cl, const ag_attention_seq *seqs, size_t n,
                               ag_attention_seq *out) {
    const size_t heads = seqs[0].kv.n_kv_heads;
    uint32_t max_slots = 0;
    joined all = {0};
    for (size_t i = 0; i < n; i++) {
        const uint32_t slots = ag_kv_view_max_slots(&seqs[i].kv);
        if (slots > max_slots) max_slots = slots;
    }
    const uint32_t n_blocks = ag_kv_blocks_for(max_slots);
    AG_TRY(reserve_joined(cl, n, heads, n_blocks, &all));
    for (size_t i = 0; i < n; i++) join_sequence(&all, &seqs[i], i, n_blocks);
    *out = seqs[0];
    out->n_rows = n;
    out->visible_until = all.until;
    out->visible_from = out->visible_from ? all.from : NULL;
    out->kv.blocks = all.blocks;
    out->kv.blocks_per_head = n_blocks;
    out->kv.n_slots = all.slots;
    out->kv.n_kv_heads = (uint32_t)(n * heads);
    return AG_OK;
}

/* ---- the kernel for warps ---- */

static bool is_warp_type(ag_dtype type, size_t dim) {
    return type == AG_F16 ||
           ((type == AG_Q8_0 || type == AG_Q4_0) && dim % ag_dtype_block(type) == 0);
}

bool ag_cl_cache_fits_warps(const ag_kv_view *kv, size_t dim) {
    return dim % 16 == 0 && dim <= MAX_DIM && is_warp_type(kv->k_type, dim) &&
           is_warp_type(kv->v_type, dim);
}

bool ag_cl_fits_attend_rows(const ag_cl_backend *cl, const ag_tensor *out, const ag_tensor *q,
                            const ag_attention_seq *seq, const ag_attention_params *params) {
    return cl->mma && cl->device.max_group >= WG && is_single(seq) && !params->sinks &&
           q->offset % 16 == 0 && out->offset % 4 == 0 &&
           ag_cl_cache_fits_warps(&seq->kv, q->shape.dim[2]);
}

typedef struct grid {
    size_t heads, kv_heads, group, dim; /* heads: of queries; kv_heads: of a sequence */
    size_t queries, chunks;             /* query heads of a work-group; groups of them */
    uint32_t n_blocks, span;            /* span: in slots */
    size_t n_spans;
} grid;

/* Divides sequences into spans if there are fewer heads than work-groups that the device can run.
 */
static grid grid_for(const ag_cl_backend *cl, const ag_tensor *q, size_t kv_heads,
                     const ag_attention_seq *all) {
    grid g = {.heads = q->shape.dim[1], .kv_heads = kv_heads, .dim = q->shape.dim[2]};
    g.group = g.heads / kv_heads;
    g.queries = g.group < MAX_QUERIES ? g.group : MAX_QUERIES;
    g.chunks = (g.group + g.queries - 1) / g.queries;
    g.n_blocks = ag_kv_blocks_for(ag_kv_view_max_slots(&all->kv));
    const size_t units = all->n_rows * kv_heads * g.chunks;
    /* Registers of a compute unit of NVIDIA's suffice for two groups with few queries or values. */
    const size_t groups = g.queries > MAX_QUERIES / 2 || g.dim > MAX_DIM / 2 ? 1 : 2;
    const size_t wanted = groups * cl->device.compute_units / units;
    size_t blocks = wanted > 1 ? (g.n_blocks + wanted - 1) / wanted : g.n_blocks;
    if (blocks < MIN_SPAN_BLOCKS) blocks = MIN_SPAN_BLOCKS;
    g.span = (uint32_t)blocks * AG_KV_BLOCK;
    g.n_spans = g.n_blocks > blocks ? (g.n_blocks + blocks - 1) / blocks : 1;
    return g;
}

/* Reserves memory for the results of spans. *scratch NULL: there is one. */
static ag_status need_spans(ag_cl_backend *cl, const grid *g, size_t n, cl_mem *scratch) {
    const size_t units = n * g->kv_heads * g->chunks;
    *scratch = NULL;
    if (g->n_spans == 1) return AG_OK;
    AG_TRY(ag_cl_need_counts(cl, units));
    return ag_cl_need_scratch(cl, units * g->n_spans * g->queries * (g->dim + 2) * sizeof(float),
                              scratch);
}

static void arg_rows(ag_cl_launch *l, const grid *g, const ag_tensor *t, size_t row0) {
    ag_cl_arg_at(l, t->buffer, t->offset + row0 * g->heads * g->dim * sizeof(float));
}

static void arg_cache(ag_cl_launch *l, const grid *g, const ag_attention_seq *all,
                      const void *key) {
    const ag_cl_kv_rows rows = {.blocks = all->kv.blocks,
                                .key = key,
                                .n_rows = all->kv.n_kv_heads,
                                .per_row = g->n_blocks,
                                .n_blocks = g->n_blocks};
    ag_cl_arg_rows(l, &rows);
    ag_cl_arg_u64(l, all->kv.v_offset);
    ag_cl_arg_u64(l, all->kv.p_offset);
    const size_t n_words = all->kv.n_kv_heads + all->n_rows * (all->visible_from ? 2 : 1);
    ag_cl_arg_staged(l, all->kv.n_slots, n_words * sizeof *all->kv.n_slots);
}

ag_status ag_cl_attend_rows(ag_cl_backend *cl, const ag_tensor *out, const ag_tensor *q,
                            const ag_attention_seq *seqs, size_t n,
                            const ag_attention_params *params) {
    ag_attention_seq all;
    AG_TRY(ag_cl_join_sequences(cl, seqs, n, &all));
    const grid g = grid_for(cl, q, seqs[0].kv.n_kv_heads, &all);
    cl_mem scratch;
    AG_TRY(need_spans(cl, &g, n, &scratch));
    char options[144];
    snprintf(options, sizeof options,
             "-DDIM=%zu -DQUERIES=%zu -DWARPS=%d -DK_TYPE=%d -DV_TYPE=%d%s%s", g.dim, g.queries,
             (int)WARPS, (int)all.kv.k_type, (int)all.kv.v_type,
             all.visible_from ? " -DWINDOW=1" : "", params->softcap > 0 ? " -DSOFTCAP=1" : "");
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "attention_rows.cl", "attend_rows", options));
    arg_rows(&l, &g, out, all.row0);
    arg_rows(&l, &g, q, all.row0);
    ag_cl_arg_mem(&l, scratch);
    ag_cl_arg_mem(&l, scratch ? cl->tile_counts.mem : NULL);
    arg_cache(&l, &g, &all, seqs[0].kv.blocks);
    ag_cl_arg_u32(&l, (uint32_t)n);
    ag_cl_arg_u32(&l, (uint32_t)g.kv_heads);
    ag_cl_arg_u32(&l, (uint32_t)g.group);
    ag_cl_arg_f32(&l, params->scale);
    ag_cl_arg_f32(&l, params->softcap);
    ag_cl_arg_u32(&l, g.span);
    return ag_cl_enqueue(&l, 3, (size_t[]){g.n_spans * WG, g.kv_heads, n * g.chunks},
                         (size_t[]){WG, 1, 1});
}
