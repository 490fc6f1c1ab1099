/* SPDX-License-Identifier: Apache-2.0 */
/* Public operations: each checks its arguments, then calls the backend's function or, if the
 * backend has none, the composition of backend_compose.h. */
#include "core/backend_check.h"
#include "core/backend_compose.h"
#include "core/block_pool.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- the backend itself ---- */

void ag_backend_destroy(ag_backend *b) {
    if (!b) return;
    ag_block_pools_release(b);
    b->ops->destroy(b);
}

const char *ag_backend_name(const ag_backend *b) { return b->ops->name; }

const char *ag_backend_describe(ag_backend *b) {
    return b->ops->describe ? b->ops->describe(b) : b->ops->name;
}

uint32_t ag_backend_threads(const ag_backend *b) {
    return b->ops->n_threads ? b->ops->n_threads(b) : 1;
}

ag_memory *ag_backend_memory(ag_backend *b) { return b->ops->memory(b); }

const ag_error *ag_backend_error(const ag_backend *b) { return &b->err; }

bool ag_backend_has_loader(const ag_backend *b) { return b->ops->open_loader != NULL; }

ag_status ag_backend_open_loader(ag_backend *b, ag_backend **out, ag_error *err) {
    *out = NULL;
    AG_TRY(b->ops->open_loader(b, out, err));
    (*out)->log = b->log;
    (*out)->log_user = b->log_user;
    return AG_OK;
}

void ag_backend_log(const ag_backend *be, ag_log_level level, const char *fmt, ...) {
    if (!be->log) return;
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    be->log(be->log_user, level, msg);
}

ag_status ag_sync(ag_backend *be) { return be->ops->sync ? be->ops->sync(be) : AG_OK; }

ag_status ag_backend_read_rate(ag_backend *be, double *bytes_per_s) {
    *bytes_per_s = 0;
    return be->ops->read_rate ? be->ops->read_rate(be, bytes_per_s) : AG_OK;
}

ag_status ag_backend_launches(ag_backend *be, ag_launch_info *out, size_t cap, size_t *n) {
    *n = 0;
    if (be->ops->launches) return be->ops->launches(be, out, cap, n);
    return AG_FAIL(&be->err, UNSUPPORTED, "launches of the backend %s: it has no device",
                   be->ops->name);
}

/* ---- matrices ---- */

ag_status ag_matmul(ag_backend *be, ag_tensor *y, const ag_tensor *a, const ag_tensor *b) {
    AG_TRY(ag_check_f32(be, y, "y"));
    AG_TRY(ag_check_f32(be, a, "a"));
    AG_TRY(ag_check_f32(be, b, "b"));
    size_t m = ag_shape_rows(&a->shape), k = ag_shape_cols(&a->shape);
    size_t n = ag_shape_cols(&b->shape);
    if (ag_shape_rows(&b->shape) != k) {
        return AG_FAIL(&be->err, SHAPE, "a has rows of %zu, but b has %zu rows", k,
                       ag_shape_rows(&b->shape));
    }
    if (ag_shape_rows(&y->shape) != m || ag_shape_cols(&y->shape) != n) {
        return AG_FAIL(&be->err, SHAPE, "y is [%zu,%zu], but a * b is [%zu,%zu]",
                       ag_shape_rows(&y->shape), ag_shape_cols(&y->shape), m, n);
    }
    AG_TRY(ag_check_no_overlap(be, y, "y", a, "a"));
    AG_TRY(ag_check_no_overlap(be, y, "y", b, "b"));
    return be->ops->matmul(be, y, a, b);
}

/* Checks y = x * w^T: y needs one column for every row of w. */
static ag_status check_transposed(ag_backend *be, const ag_tensor *y, const ag_tensor *x,
                                  const ag_tensor *w) {
    AG_TRY(ag_check_matmul_rows(be, y, x, w, 0));
    size_t n = ag_shape_cols(&y->shape), rows = ag_shape_rows(&w->shape);
    if (n == rows) return AG_OK;
    return AG_FAIL(&be->err, SHAPE, "y has rows of %zu, but w has %zu rows", n, rows);
}

ag_status ag_matmul_transposed(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                               const ag_tensor *w) {
    AG_TRY(check_transposed(be, y, x, w));
    if (be->observe) be->observe(be->observe_user, x, 0, ag_shape_rows(&x->shape), w);
    return be->ops->matmul_transposed(be, y, x, w);
}

ag_status ag_matmul_slice(ag_backend *be, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                          size_t row0) {
    AG_TRY(ag_check_floats(be, w, "w"));
    AG_TRY(ag_check_matmul_rows(be, y, x, w, row0));
    if (be->ops->matmul_slice) return be->ops->matmul_slice(be, y, x, w, row0);
    ag_tensor rows;
    AG_TRY(ag_tensor_rows(&rows, w, row0, ag_shape_cols(&y->shape), &be->err));
    return be->ops->matmul_transposed(be, y, x, &rows);
}

/* Checks the products of a group and shows their rows to the observer. */
static ag_status begin_group(ag_backend *be, ag_tensor *const y[], const ag_tensor *x,
                             const ag_tensor *const w[], size_t n) {
    for (size_t i = 0; i < n; i++) {
        AG_TRY(check_transposed(be, y[i], x, w[i]));
        for (size_t j = 0; j < i; j++) AG_TRY(ag_check_no_overlap(be, y[i], "y[i]", y[j], "y[j]"));
    }
    for (size_t i = 0; i < n && be->observe; i++)
        be->observe(be->observe_user, x, 0, ag_shape_rows(&x->shape), w[i]);
    return AG_OK;
}

ag_status ag_matmul_group(ag_backend *be, ag_tensor *const y[], const ag_tensor *x,
                          const ag_tensor *const w[], size_t n) {
    if (n == 0 || n > AG_MATMUL_GROUP_MAX) {
        return AG_FAIL(&be->err, INVALID, "a group has %zu products; it may have 1 to %d", n,
                       AG_MATMUL_GROUP_MAX);
    }
    AG_TRY(begin_group(be, y, x, w, n));
    if (be->ops->matmul_group) return be->ops->matmul_group(be, y, x, w, n);
    for (size_t i = 0; i < n; i++) AG_TRY(be->ops->matmul_transposed(be, y[i], x, w[i]));
    return AG_OK;
}

/* Checks a weight to be prepared, and replaces a type that its rows do not fit. */
static ag_status check_weight(ag_backend *be, const ag_tensor *src, ag_dtype *want) {
    AG_TRY(ag_check_floats(be, src, "the weight"));
    if (!ag_dtype_may_be(*want, AG_DTYPE_WEIGHT)) {
        return AG_FAIL(&be->err, DTYPE, "weights cannot be %s", ag_dtype_name(*want));
    }
    if (ag_dtype_is_quantized(src->dtype) && ag_dtype_is_quantized(*want) && src->dtype != *want) {
        return AG_FAIL(&be->err, DTYPE,
                       "the weight is already rounded to %s; it cannot be rounded to %s",
                       ag_dtype_name(src->dtype), ag_dtype_name(*want));
    }
    if (!ag_tensor_data(src)) {
        return AG_FAIL(&be->err, INVALID, "the weight's %zu bytes are not in host memory",
                       ag_tensor_bytes(src));
    }
    if (ag_shape_cols(&src->shape) % ag_dtype_block(*want) != 0) *want = src->dtype;
    return AG_OK;
}

ag_status ag_prepare_weight(ag_backend *be, ag_tensor *w, ag_buffer **owner, const ag_tensor *src,
                            ag_dtype want, ag_consumed_fn consumed, void *user) {
    *owner = NULL;
    AG_TRY(check_weight(be, src, &want));
    return (be->ops->prepare_weight ? be->ops->prepare_weight : ag_compose_prepare_weight)(
        be, w, owner, src, want, consumed, user);
}

bool ag_has_prepare_weight_at(const ag_backend *be) { return be->ops->prepare_weight_at != NULL; }

ag_status ag_prepare_weight_at(ag_backend *be, ag_tensor *w, ag_buffer *buffer, size_t offset,
                               const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                               void *user) {
    AG_TRY(check_weight(be, src, &want));
    const size_t bytes =
        ag_prepared_bytes(be, want, ag_shape_rows(&src->shape), ag_shape_cols(&src->shape));
    if (!be->ops->prepare_weight_at || !bytes || offset > ag_buffer_size(buffer) ||
        bytes > ag_buffer_size(buffer) - offset) {
        return AG_FAIL(&be->err, INVALID, "%zu bytes of a weight at byte %zu of a buffer of %zu",
                       bytes, offset, ag_buffer_size(buffer));
    }
    return be->ops->prepare_weight_at(be, w, buffer, offset, src, want, consumed, user);
}

size_t ag_prepared_bytes(const ag_backend *be, ag_dtype type, size_t rows, size_t cols) {
    if (be && be->ops->prepared_bytes) return be->ops->prepared_bytes(be, type, rows, cols);
    const size_t row = ag_dtype_row_bytes(type, cols);
    return row && rows <= SIZE_MAX / row ? rows * row : 0;
}

/* ---- rows ---- */

/* Checks that two F32 tensors are the same [rows, columns]. */
static ag_status check_pair(ag_backend *be, const ag_tensor *a, const char *a_name,
                            const ag_tensor *b, const char *b_name) {
    AG_TRY(ag_check_f32(be, a, a_name));
    AG_TRY(ag_check_f32(be, b, b_name));
    return ag_check_same_shape(be, a, a_name, b, b_name);
}

ag_status ag_rms_norm(ag_backend *be, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                      float eps) {
    AG_TRY(check_pair(be, y, "y", x, "x"));
    AG_TRY(ag_check_vector(be, w, "w", ag_shape_cols(&x->shape)));
    return be->ops->rms_norm(be, y, x, w, eps);
}

ag_status ag_add_rms_norm(ag_backend *be, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                          const ag_tensor *w, float eps) {
    AG_TRY(check_pair(be, y, "y", x, "x"));
    AG_TRY(check_pair(be, x, "x", add, "add"));
    AG_TRY(ag_check_vector(be, w, "w", ag_shape_cols(&x->shape)));
    AG_TRY(ag_check_no_overlap(be, y, "y", x, "x"));
    AG_TRY(ag_check_no_overlap(be, y, "y", add, "add"));
    AG_TRY(ag_check_no_overlap(be, x, "x", add, "add"));
    if (be->ops->add_rms_norm) return be->ops->add_rms_norm(be, y, x, add, w, eps);
    AG_TRY(be->ops->add_assign(be, x, add));
    return be->ops->rms_norm(be, y, x, w, eps);
}

ag_status ag_softmax(ag_backend *be, ag_tensor *x) {
    AG_TRY(ag_check_f32(be, x, "x"));
    return be->ops->softmax(be, x);
}

ag_status ag_add_assign(ag_backend *be, ag_tensor *x, const ag_tensor *y) {
    AG_TRY(check_pair(be, x, "x", y, "y"));
    return be->ops->add_assign(be, x, y);
}

ag_status ag_add_bias(ag_backend *be, ag_tensor *x, const ag_tensor *bias) {
    AG_TRY(ag_check_f32(be, x, "x"));
    AG_TRY(ag_check_vector(be, bias, "bias", ag_shape_cols(&x->shape)));
    return (be->ops->add_bias ? be->ops->add_bias : ag_compose_add_bias)(be, x, bias);
}

ag_status ag_scale(ag_backend *be, ag_tensor *x, float v) {
    AG_TRY(ag_check_f32(be, x, "x"));
    return be->ops->scale(be, x, v);
}

ag_status ag_silu_mul(ag_backend *be, ag_tensor *a, const ag_tensor *b) {
    AG_TRY(check_pair(be, a, "a", b, "b"));
    return be->ops->silu_mul(be, a, b);
}

ag_status ag_gelu_mul(ag_backend *be, ag_tensor *a, const ag_tensor *b) {
    AG_TRY(check_pair(be, a, "a", b, "b"));
    return (be->ops->gelu_mul ? be->ops->gelu_mul : ag_compose_gelu_mul)(be, a, b);
}

ag_status ag_matmul_gated(ag_backend *be, ag_gate_kind kind, ag_tensor *const y[2],
                          const ag_tensor *x, const ag_tensor *const w[2]) {
    if (be->ops->matmul_gated) {
        AG_TRY(begin_group(be, y, x, w, 2));
        AG_TRY(check_pair(be, y[0], "y[0]", y[1], "y[1]"));
        return be->ops->matmul_gated(be, kind, y, x, w);
    }
    AG_TRY(ag_matmul_group(be, y, x, w, 2));
    return (kind == AG_GATE_SILU ? ag_silu_mul : ag_gelu_mul)(be, y[0], y[1]);
}

ag_status ag_mul(ag_backend *be, ag_tensor *a, const ag_tensor *b) {
    AG_TRY(check_pair(be, a, "a", b, "b"));
    return (be->ops->mul ? be->ops->mul : ag_compose_mul)(be, a, b);
}

ag_status ag_sigmoid_mul(ag_backend *be, ag_tensor *a, const ag_tensor *b) {
    AG_TRY(check_pair(be, a, "a", b, "b"));
    return (be->ops->sigmoid_mul ? be->ops->sigmoid_mul : ag_compose_sigmoid_mul)(be, a, b);
}

ag_status ag_softcap(ag_backend *be, ag_tensor *x, float cap) {
    AG_TRY(ag_check_f32(be, x, "x"));
    if (!(cap > 0)) {
        return AG_FAIL(&be->err, INVALID, "softcap is %g; it must be above 0", (double)cap);
    }
    return (be->ops->softcap ? be->ops->softcap : ag_compose_softcap)(be, x, cap);
}

static ag_status check_rope(ag_backend *be, const ag_tensor *x, const char *name,
                            const ag_tensor *inv_freq) {
    AG_TRY(ag_check_f32(be, x, name));
    if (x->shape.n_dims != 3) {
        return AG_FAIL(&be->err, SHAPE, "%s has %d dims, not 3: [n,heads,d]", name,
                       x->shape.n_dims);
    }
    size_t d = x->shape.dim[2], pairs = ag_shape_numel(&inv_freq->shape);
    AG_TRY(ag_check_vector(be, inv_freq, "inv_freq", pairs));
    if (pairs > d / 2) {
        return AG_FAIL(&be->err, SHAPE, "heads have %zu values, too few for %zu pairs", d, pairs);
    }
    if (ag_tensor_f32(inv_freq)) return AG_OK;
    return AG_FAIL(&be->err, INVALID, "inv_freq's %zu values are not in host memory", pairs);
}

ag_status ag_rope(ag_backend *be, ag_tensor *x, const uint32_t *positions,
                  const ag_tensor *inv_freq) {
    AG_TRY(check_rope(be, x, "x", inv_freq));
    return be->ops->rope(be, x, positions, inv_freq, 1);
}

ag_status ag_rope_pair(ag_backend *be, ag_tensor *q, ag_tensor *k, const uint32_t *positions,
                       const ag_tensor *inv_freq, float factor) {
    AG_TRY(check_rope(be, q, "q", inv_freq));
    AG_TRY(check_rope(be, k, "k", inv_freq));
    if (q->shape.dim[0] != k->shape.dim[0]) {
        return AG_FAIL(&be->err, SHAPE, "q has %zu rows but k has %zu", q->shape.dim[0],
                       k->shape.dim[0]);
    }
    if (be->ops->rope_pair) return be->ops->rope_pair(be, q, k, positions, inv_freq, factor);
    AG_TRY(be->ops->rope(be, q, positions, inv_freq, factor));
    return be->ops->rope(be, k, positions, inv_freq, factor);
}

/* ---- moving data ---- */

ag_status ag_gather(ag_backend *be, ag_tensor *dst, const ag_tensor *table, const int32_t *ids,
                    size_t n) {
    AG_TRY(ag_check_f32(be, dst, "dst"));
    AG_TRY(ag_check_floats(be, table, "table"));
    size_t rows = ag_shape_rows(&dst->shape), cols = ag_shape_cols(&dst->shape);
    if (rows != n) { return AG_FAIL(&be->err, SHAPE, "dst has %zu rows for %zu ids", rows, n); }
    if (cols != ag_shape_cols(&table->shape)) {
        return AG_FAIL(&be->err, SHAPE, "dst has rows of %zu, the table of %zu", cols,
                       ag_shape_cols(&table->shape));
    }
    AG_TRY(ag_check_ids(be, table, ids, n));
    return (be->ops->gather ? be->ops->gather : ag_compose_gather)(be, dst, table, ids, n);
}

static ag_status copy_bytes(ag_backend *be, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                            size_t src_offset, size_t n) {
    return (be->ops->copy_bytes ? be->ops->copy_bytes : ag_compose_copy_bytes)(be, dst, dst_offset,
                                                                               src, src_offset, n);
}

ag_status ag_cast(ag_backend *be, ag_tensor *dst, const ag_tensor *src) {
    AG_TRY(ag_check_floats(be, dst, "dst"));
    AG_TRY(ag_check_floats(be, src, "src"));
    AG_TRY(ag_check_same_shape(be, dst, "dst", src, "src"));
    if (dst->dtype == src->dtype) {
        return copy_bytes(be, dst->buffer, dst->offset, src->buffer, src->offset,
                          ag_tensor_bytes(src));
    }
    AG_TRY(ag_check_no_overlap(be, dst, "dst", src, "src"));
    return be->ops->cast(be, dst, src);
}

/* Sets *begin to the byte of t's buffer where elements [offset, offset + count) begin. */
static ag_status slice_bytes(ag_backend *be, const ag_tensor *t, const char *name, size_t offset,
                             size_t count, size_t *begin) {
    size_t block = ag_dtype_block(t->dtype), all = ag_shape_numel(&t->shape);
    if (t->layout != 0) {
        return AG_FAIL(&be->err, INVALID, "%s is a prepared weight (layout %u), not plain rows",
                       name, (unsigned)t->layout);
    }
    if (offset % block != 0 || count % block != 0) {
        return AG_FAIL(&be->err, SHAPE,
                       "%s: %zu elements at %zu: not a multiple of the block of %s, which is %zu",
                       name, count, offset, ag_dtype_name(t->dtype), block);
    }
    if (offset > all || count > all - offset) {
        return AG_FAIL(&be->err, SHAPE, "%s: %zu elements at %zu: beyond the end, it has %zu", name,
                       count, offset, all);
    }
    *begin = t->offset + ag_dtype_row_bytes(t->dtype, offset);
    return AG_OK;
}

ag_status ag_copy_slice(ag_backend *be, ag_tensor *dst, size_t dst_offset, const ag_tensor *src,
                        size_t src_offset, size_t count) {
    if (dst->dtype != src->dtype) {
        return AG_FAIL(&be->err, DTYPE, "dst is %s but src is %s", ag_dtype_name(dst->dtype),
                       ag_dtype_name(src->dtype));
    }
    size_t to, from;
    AG_TRY(slice_bytes(be, dst, "dst", dst_offset, count, &to));
    AG_TRY(slice_bytes(be, src, "src", src_offset, count, &from));
    if (count == 0) return AG_OK;
    return copy_bytes(be, dst->buffer, to, src->buffer, from,
                      ag_dtype_row_bytes(src->dtype, count));
}

ag_status ag_copy_from(ag_backend *be, ag_tensor *out, ag_buffer **owner, const ag_tensor *t) {
    *owner = NULL;
    if (t->layout != 0) {
        return AG_FAIL(&be->err, INVALID,
                       "a prepared weight (layout %u) cannot be copied to another backend",
                       (unsigned)t->layout);
    }
    ag_tensor copy;
    AG_TRY(ag_tensor_alloc(&copy, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, t->dtype,
                           t->shape, &be->err));
    ag_status st = copy_bytes(be, *owner, 0, t->buffer, t->offset, ag_tensor_bytes(t));
    if (st == AG_OK) *out = copy;
    else ag_buffer_release(owner);
    return st;
}

ag_status ag_read(ag_backend *be, void *dst, const ag_tensor *t, size_t n_bytes) {
    size_t all = ag_tensor_bytes(t);
    if (t->layout != 0 || n_bytes > all) {
        return AG_FAIL(
            &be->err, INVALID,
            "cannot read %zu bytes of a tensor of %zu bytes, layout %u; the layout must be 0",
            n_bytes, all, (unsigned)t->layout);
    }
    AG_TRY(ag_sync(be));
    return ag_buffer_download(dst, t->buffer, t->offset, n_bytes, &be->err);
}

/* ---- the cache ---- */

ag_status ag_kv_write_all(ag_backend *be, const ag_attention_seq *seqs, size_t n_seqs,
                          const ag_tensor *k, const ag_tensor *v) {
    for (size_t i = 0; i < n_seqs; i++) AG_TRY(ag_check_kv_write(be, &seqs[i], k, v));
    return (be->ops->kv_write ? be->ops->kv_write : ag_compose_kv_write)(be, seqs, n_seqs, k, v);
}

bool ag_has_rope_kv_write(const ag_backend *be) { return be->ops->rope_kv_write != NULL; }

ag_status ag_rope_kv_write(ag_backend *be, const ag_attention_seq *seqs, size_t n_seqs,
                           const ag_rotation *r, const ag_tensor *k, const ag_tensor *v) {
    AG_TRY(check_rope(be, r->q, "q", r->inv_freq));
    AG_TRY(check_rope(be, k, "k", r->inv_freq));
    if (r->q->shape.dim[0] != k->shape.dim[0]) {
        return AG_FAIL(&be->err, SHAPE, "q has %zu rows, but k has %zu", r->q->shape.dim[0],
                       k->shape.dim[0]);
    }
    for (size_t i = 0; i < n_seqs; i++) AG_TRY(ag_check_kv_write(be, &seqs[i], k, v));
    return be->ops->rope_kv_write(be, seqs, n_seqs, r, k, v);
}

ag_status ag_attention(ag_backend *be, ag_tensor *out, const ag_tensor *q,
                       const ag_attention_seq *seqs, size_t n_seqs,
                       const ag_attention_params *params) {
    AG_TRY(ag_check_attention(be, out, q, seqs, n_seqs));
    if (!(params->softcap >= 0)) {
        return AG_FAIL(&be->err, INVALID, "softcap is %g; it must be above 0, or 0 for none",
                       (double)params->softcap);
    }
    return (be->ops->attention ? be->ops->attention : ag_compose_attention)(be, out, q, seqs,
                                                                            n_seqs, params);
}

ag_status ag_attention_reserve(ag_backend *be, const ag_attention_limits *limits) {
    return be->ops->attention_reserve ? be->ops->attention_reserve(be, limits) : AG_OK;
}

ag_rows_times_fn *ag_rows_times_of(const ag_backend *be) {
    return be->ops->rows_times ? be->ops->rows_times(be) : ag_rows_times_reference;
}

uint32_t ag_batch_invariant_rows(const ag_backend *be) {
    return be->ops->batch_invariant_rows ? be->ops->batch_invariant_rows(be) : 1;
}

const ag_weight_rounding *ag_backend_rounding(const ag_backend *be) {
    return be->ops->rounding ? be->ops->rounding(be) : &ag_reference_rounding;
}

void ag_for_each(ag_backend *be, size_t n, ag_work_fn work, void *ctx) {
    if (be->ops->for_each) be->ops->for_each(be, n, work, ctx);
    else work(ctx, 0, n, 0);
}

void ag_unpack(ag_backend *be, ag_dtype type, float *dst, const void *src, size_t n) {
    if (be->ops->unpack) be->ops->unpack(be, type, dst, src, n);
    else ag_dequantize_row(type, dst, src, n);
}

ag_status ag_kv_compact(ag_backend *be, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                        uint32_t n_keep) {
    AG_TRY(ag_check_keep(be, kv, head, keep, n_keep));
    return (be->ops->kv_compact ? be->ops->kv_compact : ag_compose_kv_compact)(be, kv, head, keep,
                                                                               n_keep);
}

bool ag_has_kv_rerotate(const ag_backend *be) { return be->ops->kv_rerotate != NULL; }

ag_status ag_rerotate_keys(ag_backend *be, const ag_kv_rerotate *how) {
    if (be->ops->kv_rerotate) return be->ops->kv_rerotate(be, how);
    return AG_FAIL(&be->err, UNSUPPORTED, "backend %s cannot rerotate keys", be->ops->name);
}

bool ag_has_key_scores(const ag_backend *be) { return be->ops->key_scores != NULL; }

ag_status ag_score_keys(ag_backend *be, const ag_kv_view *kv, float *scores, size_t stride) {
    if (be->ops->key_scores) return be->ops->key_scores(be, kv, scores, stride);
    return AG_FAIL(&be->err, UNSUPPORTED, "backend %s cannot score keys", be->ops->name);
}

bool ag_keeps_scores(const ag_backend *be, size_t head_dim) {
    return be->ops->keeps_scores && be->ops->keeps_scores(be, head_dim);
}

/* ---- logits ---- */

bool ag_has_top_k(const ag_backend *be) { return be->ops->top_k != NULL; }

static ag_status check_top_k(ag_backend *be, const ag_top_k *top, size_t n) {
    if (!top->k || top->k > AG_TOP_K_MAX || top->n_ids > AG_TOP_K_IDS || !n || n > INT32_MAX) {
        return AG_FAIL(&be->err, INVALID, "top-k: k is %zu with %zu ids, in a row of %zu", top->k,
                       top->n_ids, n);
    }
    for (size_t i = 0; i < top->n_ids; i++) {
        if (top->ids[i] >= 0 && (size_t)top->ids[i] < n) continue;
        return AG_FAIL(&be->err, INVALID, "top-k: id %d is outside the row of %zu",
                       (int)top->ids[i], n);
    }
    return AG_OK;
}

ag_status ag_find_top_k(ag_backend *be, const ag_tensor *rows, ag_top_k *const tops[]) {
    AG_TRY(ag_check_f32(be, rows, "the rows"));
    for (size_t r = 0; r < ag_shape_rows(&rows->shape); r++) {
        if (tops[r]) AG_TRY(check_top_k(be, tops[r], ag_shape_cols(&rows->shape)));
    }
    if (be->ops->top_k) return be->ops->top_k(be, rows, tops);
    return AG_FAIL(&be->err, UNSUPPORTED, "backend %s cannot find the top k of a row",
                   be->ops->name);
}
