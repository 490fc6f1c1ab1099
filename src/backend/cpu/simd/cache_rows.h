/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a cache as floats, for whoever has included a vec.h. */
#ifndef AG_BACKEND_CPU_SIMD_CACHE_ROWS_H
#define AG_BACKEND_CPU_SIMD_CACHE_ROWS_H

#include "quant/quant.h"

#include <string.h>

typedef struct cache_rows {
    ag_dtype type;
    size_t n_values, width; /* of a row; as floats padded with zeros to `width`, in whole vectors */
    size_t row_bytes;
} cache_rows;

INLINE cache_rows cache_rows_of(ag_dtype type, size_t head_dim) {
    return (cache_rows){type, head_dim, ag_cpu_value_stride(head_dim),
                        ag_dtype_row_bytes(type, head_dim)};
}

INLINE void expand_f16(float *dst, const unsigned char *src, size_t n) {
    for (size_t i = 0; i < n; i += LANES) v_store(dst + i, v_load_f16(src + 2 * i));
}

INLINE void expand_q8_0(float *dst, const unsigned char *src, size_t n) {
    for (size_t i = 0; i < n; i += AG_QK, src += sizeof(ag_block_q8_0)) {
        uint16_t d;
        memcpy(&d, src, sizeof d);
        v_expand_q8(dst + i, src + offsetof(ag_block_q8_0, qs), half_to_float(d));
    }
}

INLINE void expand_q4_0(float *dst, const unsigned char *src, size_t n) {
    for (size_t i = 0; i < n; i += AG_QK, src += sizeof(ag_block_q4_0)) {
        uint16_t d;
        memcpy(&d, src, sizeof d);
        v_expand_q4(dst + i, src + offsetof(ag_block_q4_0, qs), half_to_float(d));
    }
}

/* Rows that need padding, and types that are not meant for a cache. */
static void expand_rows(float *dst, const unsigned char *src, size_t n, const cache_rows *rows) {
    for (size_t i = 0; i < n; i++, dst += rows->width, src += rows->row_bytes) {
        ag_dequantize_row(rows->type, dst, src, rows->n_values);
        memset(dst + rows->n_values, 0, (rows->width - rows->n_values) * sizeof *dst);
    }
}

/* The n rows at src, `width` apart: where they lie, or in `room`. */
INLINE const float *load_rows(float *room, const unsigned char *src, size_t n,
                              const cache_rows *rows) {
    const size_t n_floats = n * rows->width;
    if (rows->n_values != rows->width) expand_rows(room, src, n, rows);
    else if (rows->type == AG_F32) return (const float *)(const void *)src;
    else if (rows->type == AG_F16) expand_f16(room, src, n_floats);
    else if (rows->type == AG_Q8_0) expand_q8_0(room, src, n_floats);
    else if (rows->type == AG_Q4_0) expand_q4_0(room, src, n_floats);
    else expand_rows(room, src, n, rows);
    return room;
}

/* ---- fetching ----
 * Few queries compute less than a row takes to arrive: what is wanted next is fetched meanwhile,
 * row by row and not all at once, or the fetches would wait for each other. From memory into the
 * second level, which has more lines under way at a time than the first; from there into the first
 * shortly before they are read. */

typedef struct stream {
    const unsigned char *rows; /* NULL: nothing */
    size_t row_bytes;
    size_t part_bytes; /* row_bytes over the quads of a row, rounded up */
} stream;

typedef struct ahead {
    stream soon, later;
} ahead;

static const stream NOTHING = {0};

INLINE stream stream_of(const unsigned char *rows, const cache_rows *r) {
    return (stream){rows, r->row_bytes, (r->row_bytes * 4 + r->width - 1) / r->width};
}

INLINE stream stream_from(stream s, size_t row) {
    if (s.rows) s.rows += row * s.row_bytes;
    return s;
}

/* While rows [row, row + n) of `here` are worked on, of which there are `end`. */
INLINE ahead ahead_of(stream here, stream next, size_t row, size_t n, size_t end) {
    return (ahead){row + n < end ? stream_from(here, row + n) : next, stream_from(next, row)};
}

INLINE ahead ahead_from(const ahead *a, size_t row) {
    return (ahead){stream_from(a->soon, row), stream_from(a->later, row)};
}

INLINE void fetch_soon(const unsigned char *p, size_t bytes) {
    __builtin_prefetch(p, 0, 3);
    for (size_t i = 64; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 3);
}

INLINE void fetch_later(const unsigned char *p, size_t bytes) {
    __builtin_prefetch(p, 0, 2);
    for (size_t i = 64; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

INLINE void fetch_row(const ahead *a, size_t row) {
    const stream *s = &a->soon, *l = &a->later;
    if (s->rows) fetch_soon(s->rows + row * s->row_bytes, s->row_bytes);
    if (l->rows) fetch_later(l->rows + row * l->row_bytes, l->row_bytes);
}

/* The share of quad i in fetching n rows. */
INLINE void fetch_part(const ahead *a, size_t n, size_t i) {
    const stream *s = &a->soon, *l = &a->later;
    if (s->rows) fetch_soon(s->rows + i * n * s->part_bytes, n * s->part_bytes);
    if (l->rows) fetch_later(l->rows + i * n * l->part_bytes, n * l->part_bytes);
}

#endif
