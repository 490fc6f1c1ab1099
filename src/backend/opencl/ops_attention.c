/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/attention.cl. The slots of a sequence are divided into spans that are
 * computed in parallel. Scratch memory has the results of the spans until they are joined: joined
 * [rows * heads] pairs      stats   [rows * heads][spans] pairs values  [rows * heads][spans][dim]
 *   sums    [kv heads][slots] attention weights, if requested */
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/backend_compose.h"
#include "core/fail.h"

#include <math.h>
#include <stdio.h>

static const char file[] = "attention.cl", mma_file[] = "attention_mma.cl";
enum { MMA_WARPS = 4, MMA_QUERIES = 16 * MMA_WARPS, MMA_WG = 32 * MMA_WARPS };
/* Minima of a span, if there are groups for all compute units or few blocks. */
enum { MMA_MIN_BLOCKS = 8, MANY_MIN_BLOCKS = 4 };
enum { CPU_WG = 64, MOST_DIM = 256 };
enum { FEW_QUERIES = 4 }; /* queries of a work-group for one row, and on processors */
enum { CPU_SPAN = 512, VALUES_BYTES = 64 << 20, PAIR = 2 * sizeof(float) };

/* One sequence of a call, or several of one row each. */
typedef struct work {
    ag_cl_backend *cl;
    const ag_attention_seq *seq;
    const ag_kv_view *kv;
    const ag_tensor *out, *q;
    const ag_attention_params *params;
    size_t heads, group, dim; /* query heads; query heads of a KV head */
    bool many;                /* kv has the KV heads of each row's sequence */
    uint32_t kv_heads;        /* KV heads of one sequence */
    const void *key;          /* identifies the table of blocks */
    uint32_t n_slots;         /* slots of the longest KV head */
    uint32_t n_blocks, span, n_spans;
    size_t queries, wg; /* queries and work-items of a work-group */
    size_t pass;        /* rows computed at a time */
    bool mma;           /* on tensor cores */
    cl_mem scratch;
    size_t stats_at, values_at, sums_at, bytes;
} work;

static size_t pages(size_t bytes) { return ag_cl_items(bytes, 256); }

/* Returns the groups of queries of a KV head. */
static size_t count_chunks(const work *w, size_t n_rows) {
    if (w->many) return n_rows * ((w->group + w->queries - 1) / w->queries);
    return (n_rows * w->group + w->queries - 1) / w->queries;
}

/* Returns the slots of a span: small enough to keep the device busy. It is constant on processors,
 * so that a row's result does not depend on other rows. */
static uint32_t span_of(const work *w) {
    if (!w->cl->is_gpu) return CPU_SPAN;
    const size_t groups = w->kv_heads * count_chunks(w, w->seq->n_rows);
    const size_t units = w->cl->device.compute_units;
    const bool is_busy = w->mma && groups >= 3 * units; /* joining would cost more */
    const size_t wanted = is_busy ? 1 : 4 * units / (groups ? groups : 1) + 1;
    size_t blocks = (w->n_blocks + wanted - 1) / wanted;
    if (w->mma && groups >= units && blocks < MMA_MIN_BLOCKS) blocks = MMA_MIN_BLOCKS;
    const bool is_full = groups >= units || w->n_blocks <= MANY_MIN_BLOCKS;
    if (w->many && is_full && blocks < MANY_MIN_BLOCKS) blocks = MANY_MIN_BLOCKS;
    return (uint32_t)(blocks ? blocks : 1) * AG_KV_BLOCK;
}

static void layout_work(work *w) {
    const size_t each = w->heads * w->n_spans, row_values = each * w->dim * sizeof(float);
    const size_t rows = w->seq->n_rows, most = VALUES_BYTES / row_values + 1;
    w->pass = w->n_spans == 1 || rows < most ? rows : most;
    w->stats_at = pages(rows * w->heads * PAIR);
    w->values_at = w->stats_at + (w->n_spans > 1 ? pages(w->pass * each * PAIR) : 0);
    w->sums_at = w->values_at + (w->n_spans > 1 ? pages(w->pass * row_values) : 0);
    w->bytes = w->sums_at;
    if (w->seq->scores) w->bytes += pages(w->kv->n_kv_heads * w->n_slots * sizeof(float) + 1);
}

/* Returns whether tensor cores are used: for enough queries, if there are no sinks, and if no
 * attention weights are needed, which would be computed from scores that were rounded otherwise. */
static bool fits_mma(const work *w) {
    const bool is_scored = w->seq->scores || w->seq->device_scores;
    return w->cl->mma && !w->many && w->cl->device.max_group >= MMA_WG && !is_scored &&
           !w->params->sinks && w->q->offset % 16 == 0 && w->out->offset % 8 == 0 &&
           w->seq->n_rows * w->group >= MMA_QUERIES / 2 && ag_cl_cache_fits_warps(w->kv, w->dim);
}

static ag_status choose_sizes(work *w) {
    w->n_slots = ag_kv_view_max_slots(w->kv);
    w->n_blocks = ag_kv_blocks_for(w->n_slots);
    const ag_cl_sizes *sizes = &w->cl->sizes;
    const bool has_many_queries = w->cl->is_gpu && w->seq->n_rows > 1 && !w->many;
    w->queries = has_many_queries ? sizes->attention_queries : FEW_QUERIES;
    w->wg = w->cl->is_gpu ? sizes->attention_wg : CPU_WG;
    w->mma = fits_mma(w);
    if (w->mma) w->queries = MMA_QUERIES;
    w->span = span_of(w);
    w->n_spans = w->n_blocks ? (w->n_blocks * AG_KV_BLOCK + w->span - 1) / w->span : 1;
    layout_work(w);
    return ag_cl_need_scratch(w->cl, w->bytes, &w->scratch);
}

/* ---- arguments ---- */

static void arg_rows(const work *w, ag_cl_launch *l, const ag_tensor *t, size_t row) {
    const size_t at = (w->seq->row0 + row) * w->heads * w->dim * sizeof(float);
    ag_cl_arg_at(l, t->buffer, t->offset + at);
}

/* Sets CACHE_PARAMS of attention.cl for rows [row, row + n_rows). */
static void arg_cache(const work *w, ag_cl_launch *l, size_t row, size_t n_rows) {
    const ag_kv_view *kv = w->kv;
    ag_cl_arg_view(l, kv, w->key, w->n_blocks);
    ag_cl_arg_u64(l, kv->p_offset);
    ag_cl_arg_staged(l, kv->n_slots, kv->n_kv_heads * sizeof *kv->n_slots);
    AG_CL_ARG_U32S(l, w->kv_heads, w->group, w->dim, n_rows);
    const uint32_t *until = w->seq->visible_until + row;
    ag_cl_arg_staged(l, until, n_rows * sizeof *until);
    ag_cl_arg_staged(l, w->seq->visible_from ? w->seq->visible_from + row : until,
                     n_rows * sizeof *until);
    ag_cl_arg_f32(l, w->params->softcap);
    ag_cl_arg_u32(l, (uint32_t)kv->k_type);
}

/* Sets SINK_PARAMS. */
static void arg_sinks(const work *w, ag_cl_launch *l) {
    if (!w->params->sinks) return;
    ag_cl_arg_tensor(l, w->params->sinks);
    ag_cl_arg_u32(l, (uint32_t)w->heads);
}

/* ---- launches ---- */

/* Begins a launch, with the options of the model if it computes scores. */
static ag_status begin_kernel(const work *w, ag_cl_launch *l, const char *kernel, size_t queries,
                              bool scores) {
    char options[176], many[64] = "";
    if (scores && w->many) {
        snprintf(many, sizeof many, " -DMANY=1 -DDIM=%zu -DK_TYPE=%d -DV_TYPE=%d", w->dim,
                 (int)w->kv->k_type, (int)w->kv->v_type);
    }
    snprintf(options, sizeof options, "-DQUERIES=%zu -DWG=%zu%s%s%s%s%s", queries, w->wg, many,
             scores && w->seq->visible_from ? " -DWINDOW=1" : "",
             scores && w->params->softcap > 0 ? " -DSOFTCAP=1" : "",
             w->params->sinks ? " -DSINKS=1" : "", ag_cl_vendor_sums(&w->cl->vendor));
    return ag_cl_begin(l, w->cl, file, kernel, options);
}

/* Begins a launch of the kernel `attend`. */
static ag_status begin_attend(const work *w, ag_cl_launch *l) {
    if (!w->mma) return begin_kernel(w, l, "attend", w->queries, true);
    char options[144];
    snprintf(options, sizeof options, "-DDIM=%zu -DWARPS=%d -DK_TYPE=%d -DV_TYPE=%d%s%s", w->dim,
             (int)MMA_WARPS, (int)w->kv->k_type, (int)w->kv->v_type,
             w->seq->visible_from ? " -DWINDOW=1" : "",
             w->params->softcap > 0 ? " -DSOFTCAP=1" : "");
    return ag_cl_begin(l, w->cl, mma_file, "attend", options);
}

static ag_status attend_spans(const work *w, size_t row, size_t n_rows) {
    const bool direct = w->n_spans == 1;
    const size_t chunks = count_chunks(w, n_rows);
    ag_cl_launch l;
    const size_t wg = w->mma ? MMA_WG : w->wg;
    AG_TRY(begin_attend(w, &l));
    if (direct) arg_rows(w, &l, w->out, row);
    else ag_cl_arg_part(&l, w->scratch, w->values_at);
    ag_cl_arg_part(&l, w->scratch, direct ? row * w->heads * PAIR : w->stats_at);
    arg_rows(w, &l, w->q, row);
    arg_cache(w, &l, row, n_rows);
    ag_cl_arg_u32(&l, (uint32_t)w->kv->v_type);
    ag_cl_arg_u64(&l, w->kv->v_offset);
    ag_cl_arg_f32(&l, w->params->scale);
    AG_CL_ARG_U32S(&l, w->span, w->n_spans);
    arg_sinks(w, &l);
    return ag_cl_enqueue(&l, 3, (size_t[]){w->n_spans * wg, w->kv_heads, chunks},
                         (size_t[]){wg, 1, 1});
}

static ag_status merge_rows(const work *w, size_t row, size_t n_rows) {
    ag_cl_launch l;
    AG_TRY(begin_kernel(w, &l, "merge", FEW_QUERIES, false));
    arg_rows(w, &l, w->out, row);
    ag_cl_arg_part(&l, w->scratch, row * w->heads * PAIR);
    ag_cl_arg_part(&l, w->scratch, w->stats_at);
    ag_cl_arg_part(&l, w->scratch, w->values_at);
    AG_CL_ARG_U32S(&l, w->n_spans, w->dim);
    arg_sinks(w, &l);
    return ag_cl_enqueue(&l, 1, (size_t[]){n_rows * w->heads * w->wg}, (size_t[]){w->wg});
}

static ag_status attend_rows(const work *w, size_t row, size_t n_rows) {
    AG_TRY(attend_spans(w, row, n_rows));
    return w->n_spans > 1 ? merge_rows(w, row, n_rows) : AG_OK;
}

/* ---- attention weights ---- */

static ag_status score_slots(const work *w) {
    ag_cl_launch l;
    const ag_kv_view *kv = w->kv;
    const bool on_device = w->seq->device_scores != NULL;
    AG_TRY(begin_kernel(w, &l, "attention_scores", FEW_QUERIES, true));
    if (on_device) ag_cl_arg_buffer(&l, w->seq->device_scores);
    else ag_cl_arg_mem(&l, w->scratch);
    ag_cl_arg_u64(&l, on_device ? w->seq->device_scores_at : w->sums_at);
    ag_cl_arg_u64(&l, on_device ? kv->n_kv_heads : 1);
    ag_cl_arg_u64(&l, on_device ? 1 : w->n_slots);
    AG_CL_ARG_U32S(&l, on_device, w->seq->score_max);
    ag_cl_arg_staged(&l, on_device ? w->seq->scored : kv->n_slots,
                     kv->n_kv_heads * sizeof *kv->n_slots);
    ag_cl_arg_part(&l, w->scratch, 0);
    arg_rows(w, &l, w->q, 0);
    arg_cache(w, &l, 0, w->seq->n_rows);
    ag_cl_arg_f32(&l, w->params->scale);
    ag_cl_arg_u32(&l, (uint32_t)w->seq->score_row0);
    return ag_cl_enqueue(&l, 2, (size_t[]){(size_t)w->n_blocks * AG_KV_BLOCK, kv->n_kv_heads},
                         (size_t[]){w->wg, 1});
}

/* Reads the weights and adds them to the sums on the host. Waits for the queue. */
static ag_status add_scores(const work *w) {
    const ag_kv_view *kv = w->kv;
    const size_t bytes = (size_t)kv->n_kv_heads * w->n_slots * sizeof(float);
    ag_error *err = &w->cl->base.err;
    float *sums = ag_malloc(bytes);
    if (!sums) return AG_FAIL(err, NOMEM, "attention weights of %zu bytes", bytes);
    const ag_status st = ag_cl_read(w->cl, w->scratch, w->sums_at, bytes, sums, err);
    for (uint32_t h = 0; h < kv->n_kv_heads && st == AG_OK; h++) {
        float *to = w->seq->scores + h * w->seq->score_stride;
        const float *from = sums + h * (size_t)w->n_slots;
        for (uint32_t s = 0; s < kv->n_slots[h]; s++) {
            to[s] = w->seq->score_max ? fmaxf(to[s], from[s]) : to[s] + from[s];
        }
    }
    ag_free(sums);
    return st;
}

static ag_status attend_sequence(work *w) {
    AG_TRY(choose_sizes(w));
    for (size_t row = 0; row < w->seq->n_rows; row += w->pass) {
        const size_t rest = w->seq->n_rows - row;
        AG_TRY(attend_rows(w, row, rest < w->pass ? rest : w->pass));
    }
    const bool wanted = w->seq->scores || w->seq->device_scores;
    if (!wanted || !w->n_blocks || w->seq->score_row0 >= w->seq->n_rows) return AG_OK;
    AG_TRY(score_slots(w));
    return w->seq->scores ? add_scores(w) : AG_OK;
}

bool ag_cl_keeps_scores(const ag_backend *b, size_t head_dim) {
    const ag_cl_backend *cl = (const ag_cl_backend *)(const void *)b;
    return cl->gpu_attention && head_dim <= MOST_DIM;
}

static work work_of(ag_cl_backend *cl, ag_tensor *out, const ag_tensor *q,
                    const ag_attention_seq *seq, const ag_attention_params *params) {
    return (work){.cl = cl,
                  .seq = seq,
                  .kv = &seq->kv,
                  .key = seq->kv.blocks,
                  .out = out,
                  .q = q,
                  .params = params,
                  .heads = q->shape.dim[1],
                  .group = q->shape.dim[1] / seq->kv.n_kv_heads,
                  .kv_heads = seq->kv.n_kv_heads,
                  .dim = q->shape.dim[2]};
}

/* ---- several sequences of one row ---- */

/* Attends to n sequences of one row in one launch. *taken false: their results need too much
 * memory. */
static ag_status attend_many(work *w, const ag_attention_seq *seqs, size_t n, bool *taken) {
    ag_attention_seq seq;
    AG_TRY(ag_cl_join_sequences(w->cl, seqs, n, &seq));
    w->many = true;
    w->seq = &seq;
    w->kv = &seq.kv;
    AG_TRY(choose_sizes(w));
    *taken = w->pass == n;
    return *taken ? attend_rows(w, 0, n) : AG_OK;
}

ag_status ag_cl_attention(ag_backend *b, ag_tensor *out, const ag_tensor *q,
                          const ag_attention_seq *seqs, size_t n_seqs,
                          const ag_attention_params *params) {
    ag_cl_backend *cl = ag_cl_of(b);
    if (!cl->gpu_attention || q->shape.dim[2] > MOST_DIM) {
        return ag_compose_attention(b, out, q, seqs, n_seqs, params);
    }
    for (size_t i = 0, n; i < n_seqs && q->shape.dim[1]; i += n) {
        bool taken = false;
        const bool fits = ag_cl_fits_attend_rows(cl, out, q, &seqs[i], params);
        n = ag_cl_count_joinable(&seqs[i], n_seqs - i, fits);
        if (fits) {
            AG_TRY(ag_cl_attend_rows(cl, out, q, &seqs[i], n, params));
            continue;
        }
        work w = work_of(cl, out, q, &seqs[i], params);
        if (n > 1) AG_TRY(attend_many(&w, &seqs[i], n, &taken));
        for (size_t k = i; k < i + n && !taken; k++) {
            w = work_of(cl, out, q, &seqs[k], params);
            if (seqs[k].n_rows) AG_TRY(attend_sequence(&w));
        }
    }
    return AG_OK;
}
