/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/kv_write.cl: writes new tokens to caches. */
#include "backend/opencl/ops.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <stdio.h>

/* Work-items of a group. A multiprocessor of NVIDIA's runs at most 32 groups at a time. */
enum { MIN_WG = 32, MAX_WG = 128 };
enum { TURNED = 4 }; /* equal to that of kv_write.cl */

/* New rows of adjacent sequences. */
typedef struct work {
    ag_cl_backend *cl;
    const ag_attention_seq *seqs;
    size_t n_seqs, n_rows;
    uint32_t n_blocks; /* columns of the table of blocks */
    /* In cl->joined. The table has the blocks of each head from the first that receives a row. */
    ag_kv_block *blocks; /* [n_seqs][heads][n_blocks] */
    uint32_t *positions; /* [n_rows] */
    uint32_t *sequences; /* [n_rows], followed by slots */
    uint32_t *slots;     /* [n_seqs][heads]: slot in the table minus the row */
} work;

static bool is_written_here(ag_dtype type) {
    return type == AG_F32 || type == AG_F16 || type == AG_Q8_0 || type == AG_Q4_0;
}

static ag_status reserve_tables(work *w) {
    const size_t heads = w->n_seqs * w->seqs[0].kv.n_kv_heads, blocks = heads * w->n_blocks;
    const size_t words = heads + 2 * w->n_rows;
    unsigned char *memory;
    AG_TRY(
        ag_cl_need_joined(w->cl, blocks * sizeof *w->blocks + words * sizeof *w->slots, &memory));
    w->blocks = (ag_kv_block *)(void *)memory;
    w->positions = (uint32_t *)(void *)(memory + blocks * sizeof *w->blocks);
    w->sequences = w->positions + w->n_rows;
    w->slots = w->sequences + w->n_rows;
    return AG_OK;
}

static void join_sequence(const work *w, size_t i) {
    const ag_attention_seq *s = &w->seqs[i];
    const ag_kv_view *kv = &s->kv;
    const uint32_t row0 = (uint32_t)(s->row0 - w->seqs[0].row0);
    for (size_t h = 0; h < kv->n_kv_heads; h++) {
        const size_t row = i * kv->n_kv_heads + h;
        const uint32_t first = kv->n_slots[h] / AG_KV_BLOCK;
        const size_t used = ag_kv_blocks_for(kv->n_slots[h] + (uint32_t)s->n_rows) - first;
        const ag_kv_block *from = ag_kv_view_block(kv, h, first);
        ag_kv_block *blocks = w->blocks + row * w->n_blocks;
        for (size_t b = 0; b < w->n_blocks; b++) blocks[b] = b < used ? from[b] : (ag_kv_block){0};
        w->slots[row] = kv->n_slots[h] % AG_KV_BLOCK - row0;
    }
    for (size_t r = 0; r < s->n_rows; r++) {
        w->sequences[row0 + r] = (uint32_t)i;
        w->positions[row0 + r] = s->visible_until[r];
    }
}

/* Returns the pieces of a row of keys or of values, whichever has more. */
static size_t max_pieces(const ag_kv_view *kv) {
    const bool has_blocks = ag_dtype_block(kv->k_type) > 1 && ag_dtype_block(kv->v_type) > 1;
    const size_t piece = has_blocks ? AG_QK : 4;
    return (kv->head_dim + piece - 1) / piece;
}

/* Sets ROTATION_PARAMS for the rows that belong to the sequences. Returns the work-items for q. */
static size_t arg_rotation(const work *w, ag_cl_launch *l, const ag_rotation *r) {
    const size_t heads = r->q->shape.dim[1], half = ag_shape_numel(&r->inv_freq->shape);
    ag_cl_arg_at(l, r->q->buffer,
                 r->q->offset + w->seqs[0].row0 * heads * r->q->shape.dim[2] * sizeof(float));
    ag_cl_arg_staged(l, ag_tensor_f32(r->inv_freq), half * sizeof(float));
    AG_CL_ARG_U32S(l, heads, half);
    ag_cl_arg_f32(l, r->factor);
    return w->n_rows * ag_cl_items(heads, TURNED) / TURNED * half;
}

/* Writes the rows of k and v that belong to the sequences. */
static ag_status write_rows(work *w, const ag_rotation *r, const ag_tensor *k, const ag_tensor *v) {
    const ag_kv_view *kv = &w->seqs[0].kv;
    const size_t heads = kv->n_kv_heads;
    const size_t first = w->seqs[0].row0 * heads * kv->head_dim * sizeof(float);
    AG_TRY(reserve_tables(w));
    for (size_t i = 0; i < w->n_seqs; i++) join_sequence(w, i);
    const ag_cl_kv_rows rows = {.blocks = w->blocks,
                                .key = kv->n_slots, /* attention's table has the key kv->blocks */
                                .n_rows = w->n_seqs * heads,
                                .per_row = w->n_blocks,
                                .n_blocks = w->n_blocks};
    const size_t wg = w->cl->is_gpu && w->cl->device.max_group >= MAX_WG ? MAX_WG : MIN_WG;
    char options[32];
    snprintf(options, sizeof options, "-DWG=%zu%s", wg, r ? " -DROTATES=1" : "");
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, w->cl, "kv_write.cl", "kv_write", options));
    ag_cl_arg_rows(&l, &rows);
    ag_cl_arg_u64(&l, kv->v_offset);
    ag_cl_arg_u64(&l, kv->p_offset);
    ag_cl_arg_at(&l, k->buffer, k->offset + first);
    ag_cl_arg_at(&l, v->buffer, v->offset + first);
    ag_cl_arg_staged(&l, w->positions, w->n_rows * sizeof *w->positions);
    ag_cl_arg_staged(&l, w->sequences, (w->n_rows + w->n_seqs * heads) * sizeof *w->sequences);
    AG_CL_ARG_U32S(&l, kv->k_type, kv->v_type, heads, kv->head_dim, w->n_rows);
    size_t items = w->n_rows * heads * max_pieces(kv), pairs = r ? arg_rotation(w, &l, r) : 0;
    if (pairs > items) items = pairs;
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(items, wg), r ? 3 : 2}, (size_t[]){wg, 1});
}

/* Writes the rows of all sequences. r NULL: keys have been rotated. */
static ag_status write_all(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                           const ag_rotation *r, const ag_tensor *k, const ag_tensor *v) {
    for (size_t i = 0, n; i < n_seqs; i += n) {
        const ag_kv_view *kv = &seqs[i].kv;
        const ag_dtype unknown = ag_cl_has_kernels(kv->k_type) ? kv->v_type : kv->k_type;
        size_t n_rows = seqs[i].n_rows, longest = n_rows;
        for (n = 1; i + n < n_seqs && ag_cl_are_joinable(&seqs[i + n - 1], &seqs[i + n]); n++) {
            n_rows += seqs[i + n].n_rows;
            if (seqs[i + n].n_rows > longest) longest = seqs[i + n].n_rows;
        }
        if (!n_rows || !kv->n_kv_heads) continue;
        if (!ag_cl_has_kernels(unknown)) return ag_cl_refuse_type(ag_cl_of(b), "a cache", unknown);
        if (!is_written_here(kv->k_type) || !is_written_here(kv->v_type)) {
            AG_TRY(ag_compose_kv_write(b, &seqs[i], n, k, v));
            continue;
        }
        work w = {.cl = ag_cl_of(b), .seqs = &seqs[i], .n_seqs = n, .n_rows = n_rows};
        w.n_blocks = ag_kv_blocks_for(AG_KV_BLOCK - 1 + (uint32_t)longest);
        AG_TRY(write_rows(&w, r, k, v));
    }
    return AG_OK;
}

ag_status ag_cl_kv_write(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                         const ag_tensor *k, const ag_tensor *v) {
    return write_all(b, seqs, n_seqs, NULL, k, v);
}

/* Rotates the rows of a sequence on their own. */
static ag_status rotate_rows(ag_backend *b, const ag_attention_seq *s, const ag_rotation *r,
                             const ag_tensor *k) {
    const size_t row0 = s->row0 * sizeof(float);
    ag_tensor q_rows = *r->q, k_rows = *k;
    q_rows.offset += row0 * q_rows.shape.dim[1] * q_rows.shape.dim[2];
    k_rows.offset += row0 * k_rows.shape.dim[1] * k_rows.shape.dim[2];
    q_rows.shape.dim[0] = k_rows.shape.dim[0] = s->n_rows;
    return ag_cl_rope_pair(b, &q_rows, &k_rows, s->visible_until, r->inv_freq, r->factor);
}

ag_status ag_cl_rope_kv_write(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                              const ag_rotation *r, const ag_tensor *k, const ag_tensor *v) {
    bool fuses = true;
    for (size_t i = 0; i < n_seqs; i++) {
        fuses = fuses && is_written_here(seqs[i].kv.k_type) && is_written_here(seqs[i].kv.v_type);
    }
    for (size_t i = 0; i < n_seqs && !fuses; i++) AG_TRY(rotate_rows(b, &seqs[i], r, k));
    return write_all(b, seqs, n_seqs, fuses ? r : NULL, k, v);
}
