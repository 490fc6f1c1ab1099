/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend_compose.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

static ag_status out_of_memory(ag_backend *be, size_t bytes) {
    return AG_FAIL(&be->err, NOMEM, "host scratch of %zu bytes", bytes);
}

ag_status ag_host_view_open(ag_backend *be, ag_host_view *view, const ag_tensor *t) {
    *view = (ag_host_view){.data = ag_tensor_data(t)};
    if (view->data) return AG_OK;
    size_t bytes = ag_tensor_bytes(t);
    view->copy = ag_malloc(bytes);
    if (!view->copy) return out_of_memory(be, bytes);
    view->data = view->copy;
    ag_status st = ag_buffer_download(view->copy, t->buffer, t->offset, bytes, &be->err);
    if (st == AG_OK) return AG_OK;
    ag_free(view->copy);
    *view = (ag_host_view){0};
    return st;
}

ag_status ag_host_view_close(ag_backend *be, ag_host_view *view, const ag_tensor *t, bool write) {
    ag_status st = AG_OK;
    if (view->copy) {
        size_t bytes = ag_tensor_bytes(t);
        if (write) st = ag_buffer_upload(t->buffer, t->offset, view->copy, bytes, &be->err);
        ag_free(view->copy);
    } else if (view->data) {
        ag_buffer_unmap(t->buffer);
    }
    *view = (ag_host_view){0};
    return st;
}

/* ---- copies ---- */

enum { COPY_CHUNK = 1 << 20 };

/* Copies through a chunk on the host. Inside one buffer a copy to a higher offset runs from the
 * end, so that no byte is overwritten before it is read. */
static ag_status copy_in_chunks(ag_backend *be, ag_buffer *dst, size_t to, ag_buffer *src,
                                size_t from, size_t n) {
    size_t chunk = n < COPY_CHUNK ? n : COPY_CHUNK;
    void *bytes = ag_malloc(chunk);
    if (!bytes) return out_of_memory(be, chunk);
    bool backwards = dst == src && to > from;
    ag_status st = AG_OK;
    for (size_t done = 0; done < n && st == AG_OK;) {
        size_t len = n - done < chunk ? n - done : chunk;
        size_t at = backwards ? n - done - len : done;
        st = ag_buffer_download(bytes, src, from + at, len, &be->err);
        if (st == AG_OK) st = ag_buffer_upload(dst, to + at, bytes, len, &be->err);
        done += len;
    }
    ag_free(bytes);
    return st;
}

ag_status ag_compose_copy_bytes(ag_backend *be, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                                size_t src_offset, size_t n) {
    AG_TRY(ag_sync(be));
    AG_TRY(ag_buffer_sync(src, &be->err));
    const unsigned char *p = ag_buffer_map(src);
    if (!p) return copy_in_chunks(be, dst, dst_offset, src, src_offset, n);
    ag_status st = ag_buffer_upload(dst, dst_offset, p + src_offset, n, &be->err);
    if (dst != src) ag_buffer_unmap(src);
    return st;
}

/* ---- weights ---- */

typedef struct row_rounding {
    ag_backend *be;
    const ag_tensor *src;
    const unsigned char *bytes; /* bytes of src, on the host */
    ag_tensor w;
    float *values; /* one row */
    void *packed;
} row_rounding;

static ag_status report_bad_value(ag_backend *be, float v, ag_dtype want, size_t row, size_t col) {
    if (isfinite(v)) {
        return AG_FAIL(&be->err, FORMAT, "value %zu of row %zu is %g, too large for %s", col, row,
                       (double)v, ag_dtype_name(want));
    }
    return AG_FAIL(&be->err, FORMAT, "value %zu of row %zu is %s", col, row,
                   isnan(v) ? "NaN" : "infinite");
}

static ag_status round_one_row(row_rounding *r, size_t row) {
    size_t cols = ag_shape_cols(&r->src->shape), bad = 0;
    size_t src_bytes = ag_dtype_row_bytes(r->src->dtype, cols);
    size_t w_bytes = ag_dtype_row_bytes(r->w.dtype, cols);
    if (ag_convert_row(r->w.dtype, r->packed, r->src->dtype, r->bytes + row * src_bytes, r->values,
                       cols, AG_ROUND_WEIGHT, &bad) != AG_OK) {
        return report_bad_value(r->be, r->values[bad], r->w.dtype, row, bad);
    }
    return ag_buffer_upload(r->w.buffer, row * w_bytes, r->packed, w_bytes, &r->be->err);
}

ag_status ag_compose_prepare_weight(ag_backend *be, ag_tensor *w, ag_buffer **owner,
                                    const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                    void *user) {
    size_t rows = ag_shape_rows(&src->shape), cols = ag_shape_cols(&src->shape);
    row_rounding r = {.be = be, .src = src, .bytes = ag_tensor_data(src)};
    ag_status st = ag_tensor_alloc(&r.w, owner, ag_backend_memory(be), AG_USAGE_WEIGHTS, want,
                                   ag_shape_2d(rows, cols), &be->err);
    if (st != AG_OK) goto done;
    r.values = ag_calloc(cols, sizeof *r.values);
    r.packed = ag_malloc(ag_dtype_row_bytes(want, cols));
    if (!r.values || !r.packed) {
        st = out_of_memory(be, cols * sizeof *r.values);
        goto done;
    }
    for (size_t row = 0; row < rows && st == AG_OK; row++) {
        st = round_one_row(&r, row);
        if (st == AG_OK && consumed && !consumed(user, row, 1)) {
            st = AG_FAIL(&be->err, CANCELLED, "cancelled after row %zu of %zu", row + 1, rows);
        }
    }
    if (st == AG_OK) *w = r.w;
done:
    if (st != AG_OK) ag_buffer_release(owner);
    ag_free(r.packed);
    ag_free(r.values);
    return st;
}

/* ---- rows ---- */

/* Changes n values of x in place. y: the m values of the other operand, repeated as needed; NULL if
 * the operation has one operand. */
typedef void (*values_fn)(float *x, size_t n, const float *y, size_t m, float v);

/* Runs fn on the values of x and y, which may be NULL. */
static ag_status on_host(ag_backend *be, values_fn fn, ag_tensor *x, const ag_tensor *y, float v) {
    AG_TRY(ag_sync(be));
    ag_host_view xs = {0}, ys = {0};
    ag_status st = ag_host_view_open(be, &xs, x);
    if (st == AG_OK && y) st = ag_host_view_open(be, &ys, y);
    if (st == AG_OK) {
        fn(xs.data, ag_shape_numel(&x->shape), ys.data, y ? ag_shape_numel(&y->shape) : 0, v);
    }
    ag_host_view_close(be, &ys, y, false);
    ag_status closed = ag_host_view_close(be, &xs, x, st == AG_OK);
    return st == AG_OK ? closed : st;
}

static void add_bias(float *x, size_t n, const float *bias, size_t m, float unused) {
    (void)unused;
    for (size_t i = 0; i < n; i++) x[i] += bias[i % m];
}

static void gelu_mul(float *a, size_t n, const float *x, size_t m, float unused) {
    (void)m, (void)unused;
    const double root = 0.79788456080286535588; /* sqrt(2 / pi) */
    for (size_t i = 0; i < n; i++) {
        const double v = a[i];
        a[i] = (float)(0.5 * v * (1 + tanh(root * (v + 0.044715 * v * v * v))) * x[i]);
    }
}

static void softcap(float *x, size_t n, const float *none, size_t m, float cap) {
    (void)none, (void)m;
    for (size_t i = 0; i < n; i++) x[i] = (float)(cap * tanh((double)x[i] / cap));
}

static void mul(float *a, size_t n, const float *x, size_t m, float unused) {
    (void)m, (void)unused;
    for (size_t i = 0; i < n; i++) a[i] *= x[i];
}

static void sigmoid_mul(float *a, size_t n, const float *x, size_t m, float unused) {
    (void)m, (void)unused;
    for (size_t i = 0; i < n; i++) a[i] = (float)(x[i] / (1 + exp(-(double)a[i])));
}

static void swiglu_clamped(float *a, size_t n, const float *x, size_t m, float limit) {
    (void)m;
    for (size_t i = 0; i < n; i++) {
        const double g = fmin((double)a[i], limit), u = fmax(fmin((double)x[i], limit), -limit);
        a[i] = (float)((u + 1) * g / (1 + exp(-1.702 * g)));
    }
}

ag_status ag_compose_add_bias(ag_backend *be, ag_tensor *x, const ag_tensor *bias) {
    return on_host(be, add_bias, x, bias, 0);
}

ag_status ag_compose_gelu_mul(ag_backend *be, ag_tensor *a, const ag_tensor *x) {
    return on_host(be, gelu_mul, a, x, 0);
}

ag_status ag_compose_softcap(ag_backend *be, ag_tensor *x, float cap) {
    return on_host(be, softcap, x, NULL, cap);
}

ag_status ag_compose_mul(ag_backend *be, ag_tensor *a, const ag_tensor *x) {
    return on_host(be, mul, a, x, 0);
}

ag_status ag_compose_sigmoid_mul(ag_backend *be, ag_tensor *a, const ag_tensor *x) {
    return on_host(be, sigmoid_mul, a, x, 0);
}

ag_status ag_compose_swiglu_clamped(ag_backend *be, ag_tensor *a, const ag_tensor *x, float limit) {
    return on_host(be, swiglu_clamped, a, x, limit);
}

ag_status ag_compose_gather(ag_backend *be, ag_tensor *dst, const ag_tensor *table,
                            const int32_t *ids, size_t n) {
    AG_TRY(ag_sync(be));
    size_t cols = ag_shape_cols(&table->shape);
    size_t row_bytes = ag_dtype_row_bytes(table->dtype, cols), dst_bytes = cols * sizeof(float);
    float *values = ag_malloc(dst_bytes);
    void *packed = ag_malloc(row_bytes);
    ag_status st = values && packed ? AG_OK : out_of_memory(be, dst_bytes + row_bytes);
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        st = ag_buffer_download(packed, table->buffer, table->offset + (size_t)ids[i] * row_bytes,
                                row_bytes, &be->err);
        if (st != AG_OK) break;
        ag_dequantize_row(table->dtype, values, packed, cols);
        st =
            ag_buffer_upload(dst->buffer, dst->offset + i * dst_bytes, values, dst_bytes, &be->err);
    }
    ag_free(packed);
    ag_free(values);
    return st;
}

/* ---- the cache ---- */

/* Rounds one token's row of one head into its slot. section_offset: offset of K or V in a block. */
static ag_status write_slot(ag_backend *be, const ag_kv_view *kv, ag_dtype dtype,
                            size_t section_offset, uint32_t head, size_t slot, const float *values,
                            void *packed) {
    const ag_kv_block *block = ag_kv_view_block(kv, head, slot / AG_KV_BLOCK);
    size_t row_bytes = ag_dtype_row_bytes(dtype, kv->head_dim), bad = 0;
    size_t row = slot % AG_KV_BLOCK;
    if (ag_quantize_row(dtype, packed, values, kv->head_dim, AG_ROUND_KV, &bad) != AG_OK) {
        return AG_FAIL(&be->err, FORMAT, "slot %zu of KV head %u: value %zu, %g, does not fit %s",
                       slot, (unsigned)head, bad, (double)values[bad], ag_dtype_name(dtype));
    }
    return ag_buffer_upload(block->buffer, block->offset + section_offset + row * row_bytes, packed,
                            row_bytes, &be->err);
}

static ag_status write_position(ag_backend *be, const ag_kv_view *kv, uint32_t head, size_t slot,
                                uint32_t position) {
    const ag_kv_block *block = ag_kv_view_block(kv, head, slot / AG_KV_BLOCK);
    size_t entry = slot % AG_KV_BLOCK;
    return ag_buffer_upload(block->buffer, block->offset + kv->p_offset + entry * sizeof position,
                            &position, sizeof position, &be->err);
}

/* Writes the rows of one sequence. k and v have all rows. */
static ag_status write_sequence(ag_backend *be, const ag_attention_seq *s, const float *k,
                                const float *v, void *packed) {
    const ag_kv_view *kv = &s->kv;
    for (size_t i = 0; i < s->n_rows; i++) {
        for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
            const size_t slot = kv->n_slots[h] + i;
            const size_t at = ((s->row0 + i) * kv->n_kv_heads + h) * kv->head_dim;
            AG_TRY(write_slot(be, kv, kv->k_type, 0, h, slot, k + at, packed));
            AG_TRY(write_slot(be, kv, kv->v_type, kv->v_offset, h, slot, v + at, packed));
            AG_TRY(write_position(be, kv, h, slot, s->visible_until[i]));
        }
    }
    return AG_OK;
}

ag_status ag_compose_kv_write(ag_backend *be, const ag_attention_seq *seqs, size_t n_seqs,
                              const ag_tensor *k, const ag_tensor *v) {
    AG_TRY(ag_sync(be));
    ag_host_view ks = {0}, vs = {0};
    const size_t row_bytes = k->shape.dim[2] * sizeof(float); /* no type has longer rows */
    void *packed = ag_malloc(row_bytes);
    ag_status st = packed ? AG_OK : out_of_memory(be, row_bytes);
    if (st == AG_OK) st = ag_host_view_open(be, &ks, k);
    if (st == AG_OK) st = ag_host_view_open(be, &vs, v);
    for (size_t i = 0; i < n_seqs && st == AG_OK; i++) {
        st = write_sequence(be, &seqs[i], ks.data, vs.data, packed);
    }
    ag_host_view_close(be, &vs, v, false);
    ag_host_view_close(be, &ks, k, false);
    ag_free(packed);
    return st;
}

/* Moves slots [from, from + n) of one head to `to`. Each range is inside one block. */
static ag_status move_slots(ag_backend *be, const ag_kv_view *kv, uint32_t head, uint32_t to,
                            uint32_t from, uint32_t n) {
    const ag_kv_block *dst = ag_kv_view_block(kv, head, to / AG_KV_BLOCK);
    const ag_kv_block *src = ag_kv_view_block(kv, head, from / AG_KV_BLOCK);
    const struct {
        size_t offset, bytes;
    } sections[] = {
        {0, ag_dtype_row_bytes(kv->k_type, kv->head_dim)},
        {kv->v_offset, ag_dtype_row_bytes(kv->v_type, kv->head_dim)},
        {kv->p_offset, sizeof(uint32_t)},
    };
    for (int i = 0; i < 3; i++) {
        size_t bytes = sections[i].bytes;
        AG_TRY((be->ops->copy_bytes ? be->ops->copy_bytes : ag_compose_copy_bytes)(
            be, dst->buffer, dst->offset + sections[i].offset + to % AG_KV_BLOCK * bytes,
            src->buffer, src->offset + sections[i].offset + from % AG_KV_BLOCK * bytes, n * bytes));
    }
    return AG_OK;
}

ag_status ag_compose_kv_compact(ag_backend *be, const ag_kv_view *kv, uint32_t head,
                                const uint32_t *keep, uint32_t n_keep) {
    for (uint32_t i = 0, run; i < n_keep; i += run) {
        uint32_t max_run =
            AG_KV_BLOCK - (i % AG_KV_BLOCK > keep[i] % AG_KV_BLOCK ? i : keep[i]) % AG_KV_BLOCK;
        run = 1;
        while (run < max_run && i + run < n_keep && keep[i + run] == keep[i] + run) run++;
        if (keep[i] != i) AG_TRY(move_slots(be, kv, head, i, keep[i], run));
    }
    return AG_OK;
}
