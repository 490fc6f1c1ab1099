/* SPDX-License-Identifier: Apache-2.0 */
#include "support/plain_backend.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

typedef struct plain_memory {
    ag_memory base;
    bool host_visible;
    size_t in_use;
} plain_memory;

typedef struct plain_backend {
    ag_backend base;
    plain_memory memory;
} plain_backend;

typedef struct plain_buffer {
    ag_buffer base;
    plain_memory *memory;
    unsigned char *data;
} plain_buffer;

static unsigned char *bytes_of(const ag_buffer *buf) { return ((const plain_buffer *)buf)->data; }

static void buffer_destroy(ag_buffer *buf) {
    ((plain_buffer *)buf)->memory->in_use -= buf->size;
    ag_free(bytes_of(buf));
    ag_free(buf);
}

static void *buffer_map(ag_buffer *buf) { return bytes_of(buf); }

static ag_status buffer_upload(ag_buffer *dst, size_t offset, const void *src, size_t n,
                               ag_error *err) {
    (void)err;
    memcpy(bytes_of(dst) + offset, src, n);
    return AG_OK;
}

static ag_status buffer_download(void *dst, ag_buffer *src, size_t offset, size_t n,
                                 ag_error *err) {
    (void)err;
    memcpy(dst, bytes_of(src) + offset, n);
    return AG_OK;
}

static const ag_buffer_ops host_ops = {.destroy = buffer_destroy, .map = buffer_map};
static const ag_buffer_ops device_ops = {
    .destroy = buffer_destroy,
    .upload = buffer_upload,
    .download = buffer_download,
};

static ag_status memory_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                              ag_error *err) {
    (void)usage;
    plain_memory *m = (plain_memory *)mem;
    plain_buffer *b = ag_malloc(sizeof *b);
    unsigned char *data = b ? ag_calloc(bytes, 1) : NULL;
    if (!data) {
        ag_free(b);
        return AG_FAIL(err, NOMEM, "buffer of %zu bytes", bytes);
    }
    b->memory = m;
    b->data = data;
    m->in_use += bytes;
    ag_buffer_init(&b->base, m->host_visible ? &host_ops : &device_ops, bytes);
    *out = &b->base;
    return AG_OK;
}

static size_t memory_in_use(const ag_memory *mem) { return ((const plain_memory *)mem)->in_use; }

static const ag_memory_ops host_memory_ops = {
    .alloc = memory_alloc,
    .bytes_in_use = memory_in_use,
};
static const ag_memory_ops device_memory_ops = {
    .alloc = memory_alloc,
    .bytes_in_use = memory_in_use,
    .commits_at_once = true,
};

/* ---- operations ---- */

static float *floats(const ag_tensor *t) {
    return (float *)(void *)(bytes_of(t->buffer) + t->offset);
}

static size_t rows_of(const ag_tensor *t) { return ag_shape_rows(&t->shape); }
static size_t cols_of(const ag_tensor *t) { return ag_shape_cols(&t->shape); }

static void plain_destroy(ag_backend *b) { ag_free(b); }

static ag_memory *plain_get_memory(ag_backend *b) { return &((plain_backend *)b)->memory.base; }

static ag_status plain_matmul(ag_backend *b, ag_tensor *y, const ag_tensor *a, const ag_tensor *x) {
    (void)b;
    size_t n = cols_of(y), k = cols_of(a);
    for (size_t i = 0; i < rows_of(y); i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t c = 0; c < k; c++) {
                sum += (double)floats(a)[i * k + c] * floats(x)[c * n + j];
            }
            floats(y)[i * n + j] = (float)sum;
        }
    }
    return AG_OK;
}

static ag_status plain_matmul_transposed(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                         const ag_tensor *w) {
    size_t n = cols_of(y), k = cols_of(x), row_bytes = ag_dtype_row_bytes(w->dtype, k);
    float *row = ag_calloc(k, sizeof *row);
    if (!row) return AG_FAIL(&b->err, NOMEM, "row of %zu floats", k);
    for (size_t j = 0; j < n; j++) {
        ag_dequantize_row(w->dtype, row, bytes_of(w->buffer) + w->offset + j * row_bytes, k);
        for (size_t i = 0; i < rows_of(y); i++) {
            double sum = 0;
            for (size_t c = 0; c < k; c++) sum += (double)floats(x)[i * k + c] * row[c];
            floats(y)[i * n + j] = (float)sum;
        }
    }
    ag_free(row);
    return AG_OK;
}

static ag_status plain_rms_norm(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                                float eps) {
    (void)b;
    size_t n = cols_of(x);
    for (size_t r = 0; r < rows_of(x); r++) {
        const float *in = floats(x) + r * n;
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += (double)in[i] * in[i];
        double scale = 1 / sqrt(sum / (double)n + eps);
        for (size_t i = 0; i < n; i++) {
            floats(y)[r * n + i] = (float)(in[i] * scale * floats(w)[i]);
        }
    }
    return AG_OK;
}

static ag_status plain_softmax(ag_backend *b, ag_tensor *x) {
    (void)b;
    size_t n = cols_of(x);
    for (size_t r = 0; r < rows_of(x); r++) {
        float *row = floats(x) + r * n, highest = -INFINITY;
        double sum = 0;
        for (size_t i = 0; i < n; i++) highest = fmaxf(highest, row[i]);
        for (size_t i = 0; i < n; i++) {
            row[i] = highest == -INFINITY ? 0 : expf(row[i] - highest);
            sum += row[i];
        }
        for (size_t i = 0; i < n && sum > 0; i++) row[i] = (float)(row[i] / sum);
    }
    return AG_OK;
}

static ag_status plain_rope(ag_backend *b, ag_tensor *x, const uint32_t *positions,
                            const ag_tensor *inv_freq, float factor) {
    (void)b;
    size_t heads = x->shape.dim[1], d = x->shape.dim[2];
    size_t half = ag_shape_numel(&inv_freq->shape);
    const float *freq = ag_tensor_f32(inv_freq);
    for (size_t r = 0; r < x->shape.dim[0] * heads; r++) {
        float *v = floats(x) + r * d;
        for (size_t i = 0; i < half; i++) {
            double angle = (double)positions[r / heads] * freq[i], c = cos(angle) * factor,
                   s = sin(angle) * factor;
            float lo = v[i], hi = v[i + half];
            v[i] = (float)(lo * c - hi * s);
            v[i + half] = (float)(hi * c + lo * s);
        }
    }
    return AG_OK;
}

static ag_status plain_silu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    (void)b;
    for (size_t i = 0; i < ag_shape_numel(&a->shape); i++) {
        float v = floats(a)[i];
        floats(a)[i] = v / (1 + expf(-v)) * floats(x)[i];
    }
    return AG_OK;
}

static ag_status plain_add_assign(ag_backend *b, ag_tensor *x, const ag_tensor *y) {
    (void)b;
    for (size_t i = 0; i < ag_shape_numel(&x->shape); i++) floats(x)[i] += floats(y)[i];
    return AG_OK;
}

static ag_status plain_scale(ag_backend *b, ag_tensor *x, float v) {
    (void)b;
    for (size_t i = 0; i < ag_shape_numel(&x->shape); i++) floats(x)[i] *= v;
    return AG_OK;
}

static ag_status plain_cast(ag_backend *b, ag_tensor *dst, const ag_tensor *src) {
    size_t n = ag_shape_numel(&src->shape);
    float *values = ag_calloc(n, sizeof *values);
    if (!values) return AG_FAIL(&b->err, NOMEM, "%zu floats", n);
    ag_dequantize_row(src->dtype, values, bytes_of(src->buffer) + src->offset, n);
    ag_status st = ag_quantize_row(dst->dtype, bytes_of(dst->buffer) + dst->offset, values, n,
                                   AG_ROUND_REFERENCE, NULL);
    ag_free(values);
    return st == AG_OK ? st : AG_FAIL(&b->err, FORMAT, "a value does not fit");
}

static const ag_backend_ops plain_ops = {
    .name = "plain",
    .destroy = plain_destroy,
    .memory = plain_get_memory,
    .matmul = plain_matmul,
    .matmul_transposed = plain_matmul_transposed,
    .rms_norm = plain_rms_norm,
    .softmax = plain_softmax,
    .rope = plain_rope,
    .silu_mul = plain_silu_mul,
    .add_assign = plain_add_assign,
    .scale = plain_scale,
    .cast = plain_cast,
};

ag_backend *plain_backend_create(bool host_visible) {
    plain_backend *b = ag_calloc(1, sizeof *b);
    if (!b) return NULL;
    b->base.ops = &plain_ops;
    b->memory = (plain_memory){.base.ops = host_visible ? &host_memory_ops : &device_memory_ops,
                               .host_visible = host_visible};
    return &b->base;
}
