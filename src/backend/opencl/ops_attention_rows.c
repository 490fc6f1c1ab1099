/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of sequences of one row each: joins their caches for one launch, and launches
 * kernels/attention_rows.cl. */
#include "backend/opencl/kernels/shared.h"
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

/* WARPS and MAX_QUERIES: work-groups of attention_rows.cl. */
enum { WARP = 32, WARPS = 6, WG = WARP * WARPS, MAX_QUERIES = 8, MAX_DIM = 128 };
enum { MIN_SPAN_BLOCKS = 2 };

/* ---- one cache of several sequences ---- */

/* sums: the kernel can sum the row's attention weights. */
static bool is_single(const ag_attention_seq *s, bool sums) {
    return s->n_rows == 1 && !s->scores && (!s->device_scores || (sums && !s->visible_from));
}

bool ag_cl_are_joinable(const ag_attention_seq *a, const ag_attention_seq *b) {
    const ag_kv_view *x = &a->kv, *y = &b->kv;
    return b->row0 == a->row0 + a->n_rows && x->k_type == y->k_type && x->v_type == y->v_type &&
           x->n_kv_heads == y->n_kv_heads && x->v_offset == y->v_offset &&
           x->p_offset == y->p_offset;
}

size_t ag_cl_count_joinable(const ag_attention_seq *seqs, size_t n, bool sums) {
    size_t i = 1;
    while (i < n && is_single(&seqs[0], sums) && is_single(&seqs[i], sums) &&
           ag_cl_are_joinable(&seqs[i - 1], &seqs[i]) &&
           !seqs[0].visible_from == !seqs[i].visible_from) {
        i++;
    }
    return i;
}

/* Arrays of joined sequences, in this order. */
typedef struct joined {
    ag_kv_block *blocks; /* [heads of all sequences] */
    ag_cl_span *spans;   /* for attention_rows.cl */
    uint32_t *slots;     /* [n][heads] */
    uint32_t *until, *from;
} joined;

static uint32_t blocks_of(const ag_attention_seq *s) {
    return ag_kv_blocks_for(ag_kv_view_max_slots(&s->kv));
}

/* Copies the blocks of a sequence, n_blocks for each head. */
static ag_kv_block *copy_blocks(ag_kv_block *to, const ag_kv_view *kv, size_t n_blocks) {
    for (size_t h = 0; h < kv->n_kv_heads; h++, to += n_blocks) {
        const size_t used = ag_kv_blocks_for(kv->n_slots[h]);
        memcpy(to, ag_kv_view_block(kv, h, 0), used * sizeof *to);
        memset(to + used, 0, (n_blocks - used) * sizeof *to);
    }
    return to;
}

/* Joins n sequences. Each head has `each` blocks; 0: those that its sequence needs. n_blocks: the
 * blocks of all heads. */
static ag_status join(ag_cl_backend *cl, const ag_attention_seq *seqs, size_t n, uint32_t each,
                      size_t n_blocks, size_t n_spans, joined *out) {
    const size_t heads = seqs[0].kv.n_kv_heads;
    const size_t blocks = n_blocks * sizeof *out->blocks, spans = n_spans * sizeof *out->spans;
    unsigned char *memory;
    AG_TRY(ag_cl_need_joined(cl, blocks + spans + (n * heads + 2 * n) * sizeof(uint32_t), &memory));
    ag_kv_block *end = out->blocks = (ag_kv_block *)(void *)memory;
    out->spans = (ag_cl_span *)(void *)(memory + blocks);
    out->slots = (uint32_t *)(void *)(memory + blocks + spans);
    out->until = out->slots + n * heads;
    out->from = out->until + n;
    for (size_t i = 0; i < n; i++) {
        const ag_attention_seq *s = &seqs[i];
        end = copy_blocks(end, &s->kv, each ? each : blocks_of(s));
        memcpy(out->slots + i * heads, s->kv.n_slots, heads * sizeof *out->slots);
        out->until[i] = s->visible_until[0];
        out->from[i] = s->visible_from ? s->visible_from[0] : 0;
    }
    return AG_OK;
}

ag_status ag_cl_join_sequences(ag_cl_backend *cl, const ag_attention_seq *seqs, size_t n,
                               ag_attention_seq *out) {
    const size_t heads = seqs[0].kv.n_kv_heads;
    uint32_t n_blocks = 0;
    joined all = {0};
    for (size_t i = 0; i < n; i++) {
        if (blocks_of(&seqs[i]) > n_blocks) n_blocks = blocks_of(&seqs[i]);
    }
    AG_TRY(join(cl, seqs, n, n_blocks, n * heads * n_blocks, 0, &all));
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
    return cl->mma && cl->device.max_group >= WG && is_single(seq, true) && !params->sinks &&
           q->offset % 16 == 0 && out->offset % 4 == 0 &&
           ag_cl_cache_fits_warps(&seq->kv, q->shape.dim[2]);
}

typedef struct grid {
    const ag_attention_seq *seqs;
    size_t n, heads, kv_heads, group, dim; /* n: sequences; heads: of queries */
    size_t queries, chunks;                /* query heads of a work-group; groups of them */
    size_t n_blocks;                       /* blocks of all heads */
    size_t span_blocks;                    /* blocks of a span, about */
    size_t n_spans, max_spans;             /* spans of all sequences; most spans of one */
    size_t parts_bytes, scores_bytes;      /* scratch memory; of spans' results, then of scores */
} grid;

/* Returns the spans of n_blocks blocks. Each has the blocks of a span or more. */
static uint32_t spans_of(const grid *g, uint32_t n_blocks) {
    const uint32_t n = n_blocks / (uint32_t)g->span_blocks;
    return n ? n : 1;
}

/* Divides sequences into spans, so that each work-group that the device can run at a time has its
 * share of the blocks of all of them. */
static grid grid_for(const ag_cl_backend *cl, const ag_tensor *q, const ag_attention_seq *seqs,
                     size_t n) {
    grid g = {.seqs = seqs, .n = n, .heads = q->shape.dim[1], .dim = q->shape.dim[2]};
    g.kv_heads = seqs[0].kv.n_kv_heads;
    g.group = g.heads / g.kv_heads;
    g.queries = g.group < MAX_QUERIES ? g.group : MAX_QUERIES;
    g.chunks = (g.group + g.queries - 1) / g.queries;
    for (size_t i = 0; i < n; i++) g.n_blocks += g.kv_heads * blocks_of(&seqs[i]);
    /* Registers of a compute unit of NVIDIA's suffice for two groups with few queries or values. */
    const bool two = g.queries <= MAX_QUERIES / 2 && g.dim <= MAX_DIM / 2;
    const size_t resident = (two ? 2 : 1) * cl->device.compute_units;
    g.span_blocks = (g.n_blocks * g.chunks + resident - 1) / resident;
    if (g.span_blocks < MIN_SPAN_BLOCKS) g.span_blocks = MIN_SPAN_BLOCKS;
    for (size_t i = 0; i < n; i++) {
        const size_t spans = spans_of(&g, blocks_of(&seqs[i]));
        g.n_spans += spans;
        if (spans > g.max_spans) g.max_spans = spans;
        g.scores_bytes += ag_cl_score_floats(&seqs[i], g.group, blocks_of(&seqs[i]) * AG_KV_BLOCK);
    }
    g.scores_bytes *= sizeof(float);
    const size_t part = g.kv_heads * g.chunks * g.queries * (g.dim + 2) * sizeof(float);
    if (g.max_spans > 1) g.parts_bytes = ag_cl_items(g.n_spans * part, 256);
    return g;
}

/* Lists the spans of divided sequences, then the others. */
static void list_spans(const grid *g, ag_cl_span *out) {
    for (int divided = 1; divided >= 0; divided--) {
        uint32_t first_entry = 0, first_part = 0;
        for (uint32_t row = 0; row < g->n; row++) {
            const uint32_t n_blocks = blocks_of(&g->seqs[row]), n = spans_of(g, n_blocks);
            const uint32_t slots = (n_blocks ? (n_blocks + n - 1) / n : 1) * AG_KV_BLOCK;
            for (uint32_t i = 0; i < n && (n > 1) == divided; i++)
                *out++ = (ag_cl_span){row, i, slots, first_part, first_entry, n_blocks};
            first_entry += (uint32_t)g->kv_heads * n_blocks;
            first_part += n;
        }
    }
}

/* Reserves memory for the results of spans and for scores. *scratch NULL: there are none. */
static ag_status need_memory(ag_cl_backend *cl, const grid *g, cl_mem *scratch) {
    *scratch = NULL;
    if (g->parts_bytes) AG_TRY(ag_cl_need_counts(cl, g->n * g->kv_heads * g->chunks));
    if (!g->parts_bytes && !g->scores_bytes) return AG_OK;
    return ag_cl_need_scratch(cl, g->parts_bytes + g->scores_bytes, scratch);
}

/* Writes where each row's scores are, in units of four floats, in place of first positions. */
static void list_scores(const grid *g, uint32_t *out) {
    size_t at = 0;
    for (size_t i = 0; i < g->n; i++) {
        const ag_attention_seq *s = &g->seqs[i];
        out[i] = s->device_scores ? (uint32_t)(at / 4) : UINT32_MAX;
        at += ag_cl_score_floats(s, g->group, blocks_of(s) * AG_KV_BLOCK);
    }
}

static void arg_rows(ag_cl_launch *l, const grid *g, const ag_tensor *t) {
    const size_t row0 = g->seqs[0].row0;
    ag_cl_arg_at(l, t->buffer, t->offset + row0 * g->heads * g->dim * sizeof(float));
}

static void arg_cache(ag_cl_launch *l, const grid *g, const joined *all) {
    const ag_attention_seq *first = &g->seqs[0];
    const ag_cl_kv_rows rows = {.blocks = all->blocks,
                                .key = first->kv.blocks,
                                .n_rows = 1,
                                .per_row = (uint32_t)g->n_blocks,
                                .n_blocks = (uint32_t)g->n_blocks};
    ag_cl_arg_rows(l, &rows);
    ag_cl_arg_u64(l, first->kv.v_offset);
    ag_cl_arg_u64(l, first->kv.p_offset);
    const bool has_more = first->visible_from || g->scores_bytes;
    const size_t n_words = g->n * (g->kv_heads + (has_more ? 2 : 1));
    ag_cl_arg_staged(l, all->spans, g->n_spans * sizeof *all->spans + n_words * sizeof *all->slots);
}

ag_status ag_cl_attend_rows(ag_cl_backend *cl, const ag_tensor *out, const ag_tensor *q,
                            const ag_attention_seq *seqs, size_t n,
                            const ag_attention_params *params) {
    const grid g = grid_for(cl, q, seqs, n);
    joined all = {0};
    cl_mem scratch;
    AG_TRY(join(cl, seqs, n, 0, g.n_blocks, g.n_spans, &all));
    list_spans(&g, all.spans);
    AG_TRY(need_memory(cl, &g, &scratch));
    if (g.scores_bytes) list_scores(&g, all.from);
    char options[160];
    snprintf(options, sizeof options,
             "-DDIM=%zu -DQUERIES=%zu -DWARPS=%d -DK_TYPE=%d -DV_TYPE=%d%s%s%s", g.dim, g.queries,
             (int)WARPS, (int)seqs[0].kv.k_type, (int)seqs[0].kv.v_type,
             seqs[0].visible_from ? " -DWINDOW=1" : "", params->softcap > 0 ? " -DSOFTCAP=1" : "",
             g.scores_bytes ? " -DSCORES=1" : "");
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "attention_rows.cl", "attend_rows", options));
    arg_rows(&l, &g, out);
    arg_rows(&l, &g, q);
    ag_cl_arg_mem(&l, scratch);
    ag_cl_arg_mem(&l, g.parts_bytes ? cl->tile_counts.mem : NULL);
    arg_cache(&l, &g, &all);
    AG_CL_ARG_U32S(&l, n, g.kv_heads, g.group);
    ag_cl_arg_f32(&l, params->scale);
    ag_cl_arg_f32(&l, params->softcap);
    ag_cl_arg_u64(&l, g.parts_bytes / sizeof(float));
    AG_TRY(ag_cl_enqueue(&l, 3, (size_t[]){g.n_spans * WG, g.kv_heads, g.chunks},
                         (size_t[]){WG, 1, 1}));
    if (!g.scores_bytes) return AG_OK;
    return ag_cl_sum_weights(cl, scratch, g.parts_bytes, seqs, n, g.group, 0, 0);
}
