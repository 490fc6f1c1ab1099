/* SPDX-License-Identifier: Apache-2.0 */
/* Reference attention: for each query all scores, their softmax, then the weighted sum of values,
 * in double precision. Tests compare faster kernels with it. */
#include "core/alloc.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

/* State of one KV head. Rows of a block are downloaded to `packed`. */
typedef struct head_work {
    ag_backend *be;
    const ag_kv_view *kv;
    const ag_attention_params *params;
    uint32_t head, n_queries; /* query heads of the group */
    const float *sinks;       /* [n_heads]; NULL: none */
    size_t first, end;        /* slots that the current row sees */
    double *weights;          /* [n_queries][n_slots] */
    double *sums;             /* [n_queries][head_dim] */
    float *row;               /* [head_dim] */
    void *packed;             /* rows of one block and head */
    uint32_t positions[AG_KV_BLOCK];
} head_work;

static size_t slots_in_block(const head_work *w, size_t block) {
    size_t remaining = w->kv->n_slots[w->head] - block * AG_KV_BLOCK;
    return remaining < AG_KV_BLOCK ? remaining : AG_KV_BLOCK;
}

static size_t n_blocks_of(size_t n_slots) { return (n_slots + AG_KV_BLOCK - 1) / AG_KV_BLOCK; }

/* Downloads the first `rows` rows of one section of a block to scratch. */
static ag_status fetch(head_work *w, size_t block, size_t section_offset, size_t row_bytes,
                       size_t rows, void *scratch) {
    const ag_kv_block *b = ag_kv_view_block(w->kv, w->head, block);
    return ag_buffer_download(scratch, b->buffer, b->offset + section_offset, rows * row_bytes,
                              &w->be->err);
}

static double dot(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* Sets [first, end), the slots that a row sees. Slots are in order of position, so this is one
 * range. */
static ag_status find_visible(head_work *w, const ag_attention_seq *seq, size_t row) {
    const uint32_t from = seq->visible_from ? seq->visible_from[row] : 0;
    w->first = w->end = 0;
    for (size_t b = 0; b < n_blocks_of(w->kv->n_slots[w->head]); b++) {
        size_t n = slots_in_block(w, b);
        AG_TRY(fetch(w, b, w->kv->p_offset, sizeof(uint32_t), n, w->positions));
        for (size_t i = 0; i < n; i++) {
            w->first += w->positions[i] < from;
            w->end += w->positions[i] <= seq->visible_until[row];
        }
    }
    if (w->first > w->end) w->first = w->end;
    return AG_OK;
}

static double score_of(const head_work *w, const float *q) {
    const double score = dot(q, w->row, w->kv->head_dim) * w->params->scale;
    const double cap = w->params->softcap;
    return cap > 0 ? cap * tanh(score / cap) : score;
}

/* Sets weights[g][s] to the score of q_g and k_s for the visible slots. */
static ag_status score_keys(head_work *w, const float *q) {
    const ag_kv_view *kv = w->kv;
    size_t d = kv->head_dim, n_slots = kv->n_slots[w->head];
    size_t row_bytes = ag_dtype_row_bytes(kv->k_type, d);
    for (size_t b = w->first / AG_KV_BLOCK; b < n_blocks_of(w->end); b++) {
        size_t n = slots_in_block(w, b);
        AG_TRY(fetch(w, b, 0, row_bytes, n, w->packed));
        for (size_t i = 0; i < n; i++) {
            const size_t slot = b * AG_KV_BLOCK + i;
            if (slot < w->first || slot >= w->end) continue;
            ag_dequantize_row(kv->k_type, w->row, (unsigned char *)w->packed + i * row_bytes, d);
            for (uint32_t g = 0; g < w->n_queries; g++) {
                w->weights[g * n_slots + slot] = score_of(w, q + g * d);
            }
        }
    }
    return AG_OK;
}

/* Works in place. A row in which all values are -INFINITY becomes 0. sink: another logit, without a
 * value; NULL: none. */
static void softmax(double *x, size_t n, const float *sink) {
    double highest = sink ? (double)*sink : -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) highest = fmax(highest, x[i]);
    if (highest == -INFINITY) {
        for (size_t i = 0; i < n; i++) x[i] = 0;
        return;
    }
    if (sink) sum = exp((double)*sink - highest);
    for (size_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - highest);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
}

static ag_status sum_values(head_work *w, float *out) {
    const ag_kv_view *kv = w->kv;
    size_t d = kv->head_dim, n_slots = kv->n_slots[w->head];
    size_t row_bytes = ag_dtype_row_bytes(kv->v_type, d), n_sums = w->n_queries * d;
    memset(w->sums, 0, n_sums * sizeof *w->sums);
    for (size_t b = w->first / AG_KV_BLOCK; b < n_blocks_of(w->end); b++) {
        size_t n = slots_in_block(w, b);
        AG_TRY(fetch(w, b, kv->v_offset, row_bytes, n, w->packed));
        for (size_t i = 0; i < n; i++) {
            const size_t slot = b * AG_KV_BLOCK + i;
            if (slot < w->first || slot >= w->end) continue;
            ag_dequantize_row(kv->v_type, w->row, (unsigned char *)w->packed + i * row_bytes, d);
            for (uint32_t g = 0; g < w->n_queries; g++) {
                double weight = w->weights[g * n_slots + slot];
                if (weight == 0) continue; /* the value may be Inf, and 0 * Inf is NaN */
                for (size_t c = 0; c < d; c++) w->sums[g * d + c] += weight * w->row[c];
            }
        }
    }
    for (size_t i = 0; i < n_sums; i++) out[i] = (float)w->sums[i];
    return AG_OK;
}

static void add_scores(const head_work *w, const ag_attention_seq *seq) {
    const size_t n_slots = w->kv->n_slots[w->head];
    float *scores = seq->scores + w->head * seq->score_stride;
    for (size_t s = w->first; s < w->end; s++) {
        double sum = 0, max = 0;
        for (uint32_t g = 0; g < w->n_queries; g++) {
            sum += w->weights[g * n_slots + s];
            max = fmax(max, w->weights[g * n_slots + s]);
        }
        if (seq->score_max) scores[s] = fmaxf(scores[s], (float)max);
        else scores[s] += (float)(sum / w->n_queries);
    }
}

/* q and out point to the first row of the sequence. row_size: n_heads * head_dim. */
static ag_status attend_head(head_work *w, const ag_attention_seq *seq, float *out, const float *q,
                             size_t row_size) {
    size_t n_slots = w->kv->n_slots[w->head], first = (size_t)w->head * w->n_queries;
    size_t at = first * w->kv->head_dim;
    for (size_t r = 0; r < seq->n_rows; r++, at += row_size) {
        AG_TRY(find_visible(w, seq, r));
        AG_TRY(score_keys(w, q + at));
        for (uint32_t g = 0; g < w->n_queries; g++) {
            softmax(w->weights + g * n_slots + w->first, w->end - w->first,
                    w->sinks ? w->sinks + first + g : NULL);
        }
        AG_TRY(sum_values(w, out + at));
        if (seq->scores && r >= seq->score_row0) add_scores(w, seq);
    }
    return AG_OK;
}

static ag_status attend_sequence(ag_backend *be, const ag_attention_seq *seq, float *out,
                                 const float *q, size_t n_heads, const ag_attention_params *params,
                                 const float *sinks) {
    const ag_kv_view *kv = &seq->kv;
    size_t d = kv->head_dim, group = n_heads / kv->n_kv_heads;
    size_t max = (size_t)ag_kv_view_max_slots(kv) + 1; /* at least 1 */
    head_work w = {
        .be = be, .kv = kv, .params = params, .n_queries = (uint32_t)group, .sinks = sinks};
    w.weights = ag_calloc(group * max, sizeof *w.weights);
    w.sums = ag_calloc(group * d, sizeof *w.sums);
    w.row = ag_calloc(d, sizeof *w.row);
    w.packed = ag_calloc(AG_KV_BLOCK * d, sizeof(float)); /* no type's rows are longer */
    ag_status st = AG_OK;
    if (!w.weights || !w.sums || !w.row || !w.packed) {
        st = AG_FAIL(&be->err, NOMEM, "attention weights of %zu bytes",
                     group * max * sizeof *w.weights);
    }
    for (; w.head < kv->n_kv_heads && st == AG_OK; w.head++) {
        st = attend_head(&w, seq, out, q, n_heads * d);
    }
    ag_free(w.packed);
    ag_free(w.row);
    ag_free(w.sums);
    ag_free(w.weights);
    return st;
}

ag_status ag_compose_attention(ag_backend *be, ag_tensor *out, const ag_tensor *q,
                               const ag_attention_seq *seqs, size_t n_seqs,
                               const ag_attention_params *params) {
    AG_TRY(ag_sync(be));
    ag_host_view qs = {0}, outs = {0}, sinks = {0};
    size_t n_heads = q->shape.dim[1], row_size = n_heads * q->shape.dim[2];
    ag_status st = ag_host_view_open(be, &qs, q);
    if (st == AG_OK) st = ag_host_view_open(be, &outs, out);
    if (st == AG_OK && params->sinks) st = ag_host_view_open(be, &sinks, params->sinks);
    for (size_t i = 0; i < n_seqs && st == AG_OK; i++) {
        size_t at = seqs[i].row0 * row_size;
        st = attend_sequence(be, &seqs[i], outs.data + at, qs.data + at, n_heads, params,
                             sinks.data);
    }
    if (params->sinks) ag_host_view_close(be, &sinks, params->sinks, false);
    ag_status closed = ag_host_view_close(be, &outs, out, st == AG_OK);
    ag_host_view_close(be, &qs, q, false);
    return st == AG_OK ? closed : st;
}
