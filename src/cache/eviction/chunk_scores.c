/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/chunk_scores.h"

#include "cache/eviction/policies.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"

#include <assert.h>

/* Stored queries of an unfinished chunk in one layer. */
typedef struct pending_rows {
    ag_tensor q;      /* [AG_CHUNK, n_heads, head_dim] */
    ag_buffer *owner; /* NULL: not allocated */
} pending_rows;

struct ag_chunk_scores {
    ag_backend *be; /* borrowed */
    uint32_t n_layers;
    float query_scale; /* 0: use the model's */
    /* The current chunk; positions [first, first + n_pending) are stored. */
    uint32_t first, n_pending;
    pending_rows *pending; /* owned; [n_layers], allocated while a chunk is unfinished */
    pending_rows out;      /* scratch for attention outputs, which are ignored */
    /* The pass. Rows [0, until_row) end the current chunk. Rows [until_row, n_closed) are chunks
     * that begin and end in the pass. Rows [n_closed, n_last) begin a chunk that is stored. */
    uint32_t position;
    size_t n_rows, until_row, n_closed, n_last;
    uint32_t next_first;    /* first position of the current chunk after the pass */
    uint32_t *from, *until; /* owned; [n_bounds] positions that each row sees */
    size_t n_bounds;
};

static size_t bounds_of(const ag_kv_params *kv) {
    const size_t rows = kv->step_rows ? kv->step_rows : kv->max_slots;
    return rows > AG_CHUNK ? rows : AG_CHUNK;
}

ag_status ag_chunk_scores_create(const ag_eviction_params *p, const ag_kv_cache *cache,
                                 ag_chunk_scores **out, ag_error *err) {
    *out = NULL;
    if (!ag_importance_traits_of(p->policy)->in_chunks) return AG_OK;
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    ag_chunk_scores *c = ag_calloc(1, sizeof *c);
    if (!c) return AG_FAIL(err, NOMEM, "chunk scores");
    c->be = ag_kv_cache_backend(cache);
    c->n_layers = kv->n_layers;
    c->query_scale = ag_compactor_query_scale(p);
    c->n_bounds = bounds_of(kv);
    c->pending = ag_calloc(c->n_layers, sizeof *c->pending);
    c->from = ag_calloc(c->n_bounds, sizeof *c->from);
    c->until = ag_calloc(c->n_bounds, sizeof *c->until);
    if (c->pending && c->from && c->until) {
        *out = c;
        return AG_OK;
    }
    ag_chunk_scores_destroy(c);
    return AG_FAIL(err, NOMEM, "chunk scores of passes of %zu rows", bounds_of(kv));
}

/* Frees the rows until the next unfinished chunk. */
static void release_rows(ag_chunk_scores *c) {
    for (uint32_t l = 0; c->pending && l < c->n_layers; l++)
        ag_buffer_release(&c->pending[l].owner);
    ag_buffer_release(&c->out.owner);
}

void ag_chunk_scores_destroy(ag_chunk_scores *c) {
    if (!c) return;
    release_rows(c);
    ag_free(c->pending);
    ag_free(c->from);
    ag_free(c->until);
    ag_free(c);
}

size_t ag_chunk_scores_bytes(const ag_eviction_params *p, const ag_kv_params *kv,
                             size_t query_values) {
    if (!ag_importance_traits_of(p->policy)->in_chunks) return 0;
    return sizeof(ag_chunk_scores) + kv->n_layers * sizeof(pending_rows) +
           2 * bounds_of(kv) * sizeof(uint32_t) + AG_CHUNK * query_values * sizeof(float);
}

/* ---- where chunks begin and end ---- */

/* Returns the end of the chunk of a position >= AG_CHUNK_FIRST. */
static uint64_t chunk_end(uint32_t position) {
    return (uint64_t)AG_CHUNK_FIRST +
           ((uint64_t)(position - AG_CHUNK_FIRST) / AG_CHUNK + 1) * AG_CHUNK;
}

static uint32_t at_least_first(uint32_t position) {
    return position > AG_CHUNK_FIRST ? position : AG_CHUNK_FIRST;
}

size_t ag_chunk_scores_cut(const ag_chunk_scores *c, uint32_t position, size_t n) {
    if (!c || !n) return n;
    const uint64_t last = (uint64_t)position + n;
    if (last <= AG_CHUNK_FIRST) return n;
    const uint64_t end = last - (last - AG_CHUNK_FIRST) % AG_CHUNK;
    return end > position && end > AG_CHUNK_FIRST ? (size_t)(end - position) : n;
}

bool ag_chunk_scores_begin(ag_chunk_scores *c, uint32_t position, size_t n, size_t n_remaining,
                           bool close) {
    if (!c) return false;
    const uint64_t pass_end = (uint64_t)position + n;
    uint64_t end = pass_end + n_remaining; /* end of the positions that belong to chunks */
    end -= end > AG_CHUNK_LAST ? AG_CHUNK_LAST : end;
    if (c->first + (uint64_t)c->n_pending != position) {
        c->first = position;
        c->n_pending = 0;
    }
    if (!c->n_pending) c->first = at_least_first(c->first);
    c->position = position;
    c->n_rows = n;
    uint64_t at = c->first;
    c->until_row = c->n_closed = c->n_last = 0;
    assert(n <= c->n_bounds);
    while (at < end && at < pass_end) {
        uint64_t stop = chunk_end((uint32_t)at);
        if (stop > end) stop = end;
        const bool closes = close && stop > pass_end;
        if (closes) stop = pass_end;
        if (stop > pass_end) break;
        const size_t row0 = at > position ? (size_t)(at - position) : 0;
        const size_t row1 = stop > position ? (size_t)(stop - position) : 0;
        for (size_t r = row0; r < row1; r++) {
            c->from[r] = (uint32_t)at;
            c->until[r] = (uint32_t)(stop - 1);
        }
        if (at < position) c->until_row = row1;
        c->n_closed = row1;
        at = stop;
    }
    const uint64_t seen = pass_end < end ? pass_end : end;
    c->n_last = seen > at ? (size_t)(seen - position) : c->n_closed;
    c->next_first = (uint32_t)at;
    return c->n_closed > 0;
}

/* ---- in a layer ---- */

static ag_status alloc_rows(const ag_chunk_scores *c, pending_rows *rows, const ag_tensor *q,
                            ag_error *err) {
    if (rows->owner) return AG_OK;
    return ag_tensor_alloc(&rows->q, &rows->owner, ag_backend_memory(c->be), AG_USAGE_SCRATCH,
                           AG_F32, ag_shape_3d(AG_CHUNK, q->shape.dim[1], q->shape.dim[2]), err);
}

/* Copies rows [row0, row1) of the pass to rows `to` and following of the stored chunk. */
static ag_status append_rows(const ag_chunk_scores *c, pending_rows *pending, size_t to,
                             const ag_tensor *q, size_t row0, size_t row1, ag_error *err) {
    const size_t row = q->shape.dim[1] * q->shape.dim[2];
    if (row0 >= row1) return AG_OK;
    AG_TRY(alloc_rows(c, pending, q, err));
    return ag_take_error(
        c->be, ag_copy_slice(c->be, &pending->q, to * row, q, row0 * row, (row1 - row0) * row),
        err);
}

/* Adds attention weights to the sums. Sets seq->scored, so that the next call adds to them. */
static ag_status add_attention(const ag_chunk_scores *c, ag_tensor *out, const ag_tensor *q,
                               ag_attention_seq *seq, const ag_attention_params *params,
                               ag_error *err) {
    ag_attention_params own = *params;
    if (c->query_scale != 0) own.scale = c->query_scale;
    seq->score_row0 = 0;
    seq->score_only = true;
    AG_TRY(ag_take_error(c->be, ag_attention(c->be, out, q, seq, 1, &own), err));
    seq->scored = seq->kv.n_slots;
    return AG_OK;
}

/* Scores a chunk whose first rows are stored from earlier passes. */
static ag_status end_pending_chunk(ag_chunk_scores *c, uint32_t layer, const ag_tensor *q,
                                   ag_attention_seq *seq, const ag_attention_params *params,
                                   ag_error *err) {
    uint32_t from[AG_CHUNK], until[AG_CHUNK];
    pending_rows *pending = &c->pending[layer];
    const size_t n = c->n_pending + c->until_row;
    AG_TRY(append_rows(c, pending, c->n_pending, q, 0, c->until_row, err));
    /* Layers may differ in their heads. */
    if (c->out.owner && !ag_shape_equal(&c->out.q.shape, &pending->q.shape))
        ag_buffer_release(&c->out.owner);
    AG_TRY(alloc_rows(c, &c->out, q, err));
    for (size_t r = 0; r < n; r++) {
        from[r] = c->from[0];
        until[r] = c->until[0];
    }
    seq->row0 = 0;
    seq->n_rows = n;
    seq->visible_from = from;
    seq->visible_until = until;
    return add_attention(c, &c->out.q, &pending->q, seq, params, err);
}

ag_status ag_chunk_scores_add(ag_chunk_scores *c, uint32_t layer, const ag_tensor *q,
                              ag_tensor *out, ag_attention_seq *seq,
                              const ag_attention_params *params, ag_error *err) {
    if (!c) return AG_OK;
    const size_t first = at_least_first(c->position) - (size_t)c->position;
    const size_t first_closed = c->until_row ? c->until_row : first;
    if (c->until_row) AG_TRY(end_pending_chunk(c, layer, q, seq, params, err));
    if (c->n_closed > first_closed) {
        seq->row0 = first_closed;
        seq->n_rows = c->n_closed - first_closed;
        seq->visible_from = c->from + first_closed;
        seq->visible_until = c->until + first_closed;
        AG_TRY(add_attention(c, out, q, seq, params, err));
    }
    const size_t row0 = c->n_closed > first ? c->n_closed : first;
    const size_t to = c->n_closed ? 0 : c->n_pending;
    return append_rows(c, &c->pending[layer], to, q, row0, c->n_last, err);
}

/* ---- around a pass ---- */

void ag_chunk_scores_end(ag_chunk_scores *c) {
    if (!c || !c->n_rows) return;
    const size_t seen = c->position + c->n_last;
    c->first = c->next_first;
    c->n_pending = seen > c->first ? (uint32_t)(seen - c->first) : 0;
    c->n_rows = 0;
    if (!c->n_pending) release_rows(c);
}

void ag_chunk_scores_truncate(ag_chunk_scores *c, uint32_t position) {
    if (!c) return;
    /* Layers of a failed pass may have added already: drop the chunk, so that no row is added
     * twice. */
    if (c->n_rows || position < c->first) c->n_pending = 0;
    else if (position - c->first < c->n_pending) c->n_pending = position - c->first;
    c->n_rows = 0;
    if (!c->n_pending) release_rows(c);
}

static ag_status copy_rows(const ag_chunk_scores *from, const pending_rows *src, pending_rows *dst,
                           ag_error *err) {
    if (!src->owner) return AG_OK;
    AG_TRY(alloc_rows(from, dst, &src->q, err));
    const size_t n = (size_t)from->n_pending * src->q.shape.dim[1] * src->q.shape.dim[2];
    return ag_take_error(from->be, ag_copy_slice(from->be, &dst->q, 0, &src->q, 0, n), err);
}

ag_status ag_chunk_scores_copy(ag_chunk_scores *to, const ag_chunk_scores *from, ag_error *err) {
    if (!to || !from) return AG_OK;
    to->first = from->first;
    to->n_pending = 0;
    for (uint32_t l = 0; from->n_pending && l < from->n_layers; l++)
        AG_TRY(copy_rows(from, &from->pending[l], &to->pending[l], err));
    to->n_pending = from->n_pending;
    return AG_OK;
}
