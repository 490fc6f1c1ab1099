/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend_check.h"

#include "core/fail.h"

typedef struct shape_text {
    char s[AG_SHAPE_TEXT];
} shape_text;

/* Returns by value: the text lives until the end of the full expression. */
static shape_text text_of(const ag_tensor *t) {
    shape_text text;
    ag_shape_format(&t->shape, text.s, sizeof text.s);
    return text;
}

static bool holds_floats(ag_dtype dtype) { return ag_dtype_may_be(dtype, AG_DTYPE_FLOATS); }

static ag_status check_layout(ag_backend *be, const ag_tensor *t, const char *name) {
    if (t->layout == 0) return AG_OK;
    return AG_FAIL(&be->err, INVALID, "%s is a prepared weight (layout %u), not plain rows", name,
                   (unsigned)t->layout);
}

ag_status ag_check_f32(ag_backend *be, const ag_tensor *t, const char *name) {
    if (t->dtype != AG_F32) {
        return AG_FAIL(&be->err, DTYPE, "%s is %s, not f32", name, ag_dtype_name(t->dtype));
    }
    return check_layout(be, t, name);
}

ag_status ag_check_floats(ag_backend *be, const ag_tensor *t, const char *name) {
    if (!holds_floats(t->dtype)) {
        return AG_FAIL(&be->err, DTYPE, "%s is %s, which is not a type of floats", name,
                       ag_dtype_name(t->dtype));
    }
    return check_layout(be, t, name);
}

ag_status ag_check_same_shape(ag_backend *be, const ag_tensor *a, const char *a_name,
                              const ag_tensor *b, const char *b_name) {
    if (ag_shape_rows(&a->shape) == ag_shape_rows(&b->shape) &&
        ag_shape_cols(&a->shape) == ag_shape_cols(&b->shape)) {
        return AG_OK;
    }
    return AG_FAIL(&be->err, SHAPE, "%s is %s but %s is %s", a_name, text_of(a).s, b_name,
                   text_of(b).s);
}

ag_status ag_check_vector(ag_backend *be, const ag_tensor *t, const char *name, size_t n) {
    AG_TRY(ag_check_f32(be, t, name));
    if (ag_shape_numel(&t->shape) == n) return AG_OK;
    return AG_FAIL(&be->err, SHAPE, "%s is %s, not [%zu]", name, text_of(t).s, n);
}

ag_status ag_check_no_overlap(ag_backend *be, const ag_tensor *a, const char *a_name,
                              const ag_tensor *b, const char *b_name) {
    if (a->buffer != b->buffer || a->offset >= b->offset + ag_tensor_bytes(b) ||
        b->offset >= a->offset + ag_tensor_bytes(a)) {
        return AG_OK;
    }
    return AG_FAIL(&be->err, INVALID, "%s at byte %zu and %s at byte %zu of one buffer overlap",
                   a_name, a->offset, b_name, b->offset);
}

ag_status ag_check_matmul_rows(ag_backend *be, const ag_tensor *y, const ag_tensor *x,
                               const ag_tensor *w, size_t row0) {
    AG_TRY(ag_check_f32(be, y, "y"));
    AG_TRY(ag_check_f32(be, x, "x"));
    if (!holds_floats(w->dtype)) {
        return AG_FAIL(&be->err, DTYPE, "w is %s, which is not a type of weights",
                       ag_dtype_name(w->dtype));
    }
    size_t rows = ag_shape_rows(&w->shape), n = ag_shape_cols(&y->shape);
    if (ag_shape_cols(&x->shape) != ag_shape_cols(&w->shape)) {
        return AG_FAIL(&be->err, SHAPE, "x is %s but w is %s: rows of %zu and %zu", text_of(x).s,
                       text_of(w).s, ag_shape_cols(&x->shape), ag_shape_cols(&w->shape));
    }
    if (row0 > rows || n > rows - row0) {
        return AG_FAIL(&be->err, SHAPE, "y is %s: %zu rows from row %zu of w, which is %s",
                       text_of(y).s, n, row0, text_of(w).s);
    }
    if (ag_shape_rows(&y->shape) != ag_shape_rows(&x->shape)) {
        return AG_FAIL(&be->err, SHAPE, "y is %s but x is %s: %zu and %zu rows", text_of(y).s,
                       text_of(x).s, ag_shape_rows(&y->shape), ag_shape_rows(&x->shape));
    }
    return ag_check_no_overlap(be, y, "y", x, "x");
}

ag_status ag_check_ids(ag_backend *be, const ag_tensor *table, const int32_t *ids, size_t n) {
    size_t rows = ag_shape_rows(&table->shape);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && (size_t)ids[i] < rows) continue;
        return AG_FAIL(&be->err, INVALID, "id %d (number %zu) is outside the table of %zu rows",
                       (int)ids[i], i, rows);
    }
    return AG_OK;
}

/* Returns the number of slots of a head that have memory. The blocks before `block` must have it.
 */
static size_t capacity_from(const ag_kv_view *kv, size_t head, size_t block) {
    if (block > kv->blocks_per_head) block = kv->blocks_per_head;
    while (block < kv->blocks_per_head && ag_kv_view_block(kv, head, block)->buffer) block++;
    return block * AG_KV_BLOCK;
}

static ag_status check_kv_view(ag_backend *be, const ag_kv_view *kv, size_t n_new) {
    const ag_dtype types[] = {kv->k_type, kv->v_type};
    for (int i = 0; i < 2; i++) {
        if (!holds_floats(types[i])) {
            return AG_FAIL(&be->err, DTYPE, "the cache is %s, which is not a type of floats",
                           ag_dtype_name(types[i]));
        }
        if (kv->head_dim == 0 || ag_dtype_row_bytes(types[i], kv->head_dim) == 0) {
            return AG_FAIL(
                &be->err, SHAPE, "head_dim %u is not a multiple of the block of %s, which is %zu",
                (unsigned)kv->head_dim, ag_dtype_name(types[i]), ag_dtype_block(types[i]));
        }
    }
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        const uint32_t n_blocks = ag_kv_blocks_for(kv->n_slots[h]);
        const size_t capacity = capacity_from(kv, h, n_blocks ? n_blocks - 1 : 0);
        if (kv->n_slots[h] <= capacity && n_new <= capacity - kv->n_slots[h]) continue;
        return AG_FAIL(&be->err, SHAPE,
                       "KV head %u: %u slots and %zu new ones exceed its memory, which is for %zu",
                       (unsigned)h, (unsigned)kv->n_slots[h], n_new, capacity);
    }
    return AG_OK;
}

/* Checks for [rows, heads, head_dim]. */
static ag_status check_heads(ag_backend *be, const ag_tensor *t, const char *name,
                             size_t head_dim) {
    AG_TRY(ag_check_f32(be, t, name));
    if (t->shape.n_dims == 3 && t->shape.dim[2] == head_dim) return AG_OK;
    return AG_FAIL(&be->err, SHAPE, "%s is %s, not [rows,heads,%zu]", name, text_of(t).s, head_dim);
}

ag_status ag_check_kv_write(ag_backend *be, const ag_attention_seq *s, const ag_tensor *k,
                            const ag_tensor *v) {
    const ag_kv_view *kv = &s->kv;
    const size_t rows = k->shape.dim[0];
    AG_TRY(check_heads(be, k, "k", kv->head_dim));
    AG_TRY(check_heads(be, v, "v", kv->head_dim));
    if (k->shape.dim[1] != kv->n_kv_heads) {
        return AG_FAIL(&be->err, SHAPE, "k is %s, but the cache has %u KV heads", text_of(k).s,
                       (unsigned)kv->n_kv_heads);
    }
    if (!ag_shape_equal(&k->shape, &v->shape)) {
        return AG_FAIL(&be->err, SHAPE, "k is %s but v is %s", text_of(k).s, text_of(v).s);
    }
    if (s->row0 > rows || s->n_rows > rows - s->row0) {
        return AG_FAIL(&be->err, SHAPE, "%zu rows from row %zu of k, which is %s", s->n_rows,
                       s->row0, text_of(k).s);
    }
    return check_kv_view(be, kv, s->n_rows);
}

ag_status ag_check_keep(ag_backend *be, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                        uint32_t n_keep) {
    AG_TRY(check_kv_view(be, kv, 0));
    if (head >= kv->n_kv_heads) {
        return AG_FAIL(&be->err, INVALID, "KV head %u does not exist: there are %u", (unsigned)head,
                       (unsigned)kv->n_kv_heads);
    }
    for (uint32_t i = 0; i < n_keep; i++) {
        if (keep[i] < kv->n_slots[head] && (!i || keep[i] > keep[i - 1])) continue;
        return AG_FAIL(&be->err, INVALID,
                       "slot %u to keep, number %u: it is beyond the %u slots or not ascending",
                       (unsigned)keep[i], (unsigned)i, (unsigned)kv->n_slots[head]);
    }
    return AG_OK;
}

static ag_status check_device_scores(ag_backend *be, const ag_attention_seq *s) {
    const ag_kv_view *kv = &s->kv;
    const size_t size = ag_buffer_size(s->device_scores), row = kv->n_kv_heads * sizeof(float);
    if (s->scores || !ag_keeps_scores(be, kv->head_dim)) {
        return AG_FAIL(&be->err, UNSUPPORTED,
                       "backend %s sums attention weights on the host, not in its own memory",
                       be->ops->name);
    }
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        if (s->device_scores_at <= size && kv->n_slots[h] <= (size - s->device_scores_at) / row)
            continue;
        return AG_FAIL(&be->err, SHAPE,
                       "KV head %u has %u slots, too many for device_scores of %zu bytes",
                       (unsigned)h, (unsigned)kv->n_slots[h], size);
    }
    return AG_OK;
}

static ag_status check_sequence(ag_backend *be, const ag_tensor *q, const ag_attention_seq *s) {
    const ag_kv_view *kv = &s->kv;
    size_t rows = q->shape.dim[0], heads = q->shape.dim[1];
    if (q->shape.dim[2] != kv->head_dim) {
        return AG_FAIL(&be->err, SHAPE, "q is %s, but the cache's heads have %u values",
                       text_of(q).s, (unsigned)kv->head_dim);
    }
    if (kv->n_kv_heads == 0 || heads % kv->n_kv_heads != 0) {
        return AG_FAIL(&be->err, SHAPE, "%zu heads are not a multiple of %u KV heads", heads,
                       (unsigned)kv->n_kv_heads);
    }
    if (s->row0 > rows || s->n_rows > rows - s->row0) {
        return AG_FAIL(&be->err, SHAPE, "%zu rows from row %zu of q, which is %s", s->n_rows,
                       s->row0, text_of(q).s);
    }
    AG_TRY(check_kv_view(be, kv, 0));
    if (s->device_scores) return check_device_scores(be, s);
    if (!s->scores) return AG_OK;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] <= s->score_stride) continue;
        return AG_FAIL(&be->err, SHAPE, "KV head %u has %u slots, but score_stride is %zu",
                       (unsigned)h, (unsigned)kv->n_slots[h], s->score_stride);
    }
    return AG_OK;
}

ag_status ag_check_attention(ag_backend *be, const ag_tensor *out, const ag_tensor *q,
                             const ag_attention_seq *seqs, size_t n_seqs) {
    size_t head_dim = q->shape.n_dims == 3 ? q->shape.dim[2] : 0;
    AG_TRY(check_heads(be, q, "q", head_dim));
    AG_TRY(check_heads(be, out, "out", head_dim));
    if (!ag_shape_equal(&out->shape, &q->shape)) {
        return AG_FAIL(&be->err, SHAPE, "out is %s but q is %s", text_of(out).s, text_of(q).s);
    }
    AG_TRY(ag_check_no_overlap(be, out, "out", q, "q"));
    for (size_t i = 0; i < n_seqs; i++) AG_TRY(check_sequence(be, q, &seqs[i]));
    return AG_OK;
}
