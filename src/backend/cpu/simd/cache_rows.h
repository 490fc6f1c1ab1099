/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a cache as floats, for whoever has included a vec.h. */
#ifndef AG_BACKEND_CPU_SIMD_CACHE_ROWS_H
#define AG_BACKEND_CPU_SIMD_CACHE_ROWS_H

#include "backend/cpu/kernels.h"
#include "core/kv_view.h"
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
        const vec scale = v_set(half_to_float(d));
        const unsigned char *q = src + offsetof(ag_block_q8_0, qs);
        for (size_t at = 0; at < AG_QK; at += LANES) {
            v_store(dst + i + at, v_mul(v_load_q8(q, at), scale));
        }
    }
}

INLINE void expand_q4_0(float *dst, const unsigned char *src, size_t n) {
    for (size_t i = 0; i < n; i += AG_QK, src += sizeof(ag_block_q4_0)) {
        uint16_t d;
        memcpy(&d, src, sizeof d);
        const vec scale = v_set(half_to_float(d));
        const unsigned char *q = src + offsetof(ag_block_q4_0, qs);
        for (size_t at = 0; at < AG_QK; at += LANES) {
            v_store(dst + i + at, v_mul(v_load_q4(q, at), scale));
        }
    }
}

/* Rows that need padding, and types that are not meant for a cache. */
static inline void expand_rows(float *dst, const unsigned char *src, size_t n,
                               const cache_rows *rows) {
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

/* ---- a row at a time ---- */

INLINE bool is_loaded_directly(ag_dtype type) {
    return type == AG_F32 || type == AG_F16 || type == AG_Q8_0 || type == AG_Q4_0;
}

/* The scales of n quantised rows as [blocks of 32][AG_KV_BLOCK]; NULL for other types. */
static inline const float *load_scales(float *scales, const unsigned char *src, size_t n,
                                       const cache_rows *rows) {
    uint16_t halves[AG_KV_BLOCK];
    if (!ag_dtype_is_quantized(rows->type)) return NULL;
    const size_t n_blocks = rows->n_values / AG_QK, block_bytes = rows->row_bytes / n_blocks;
    for (size_t b = 0; b < n_blocks; b++, src += block_bytes) {
        for (size_t s = 0; s < n; s++) {
            memcpy(&halves[s], src + s * rows->row_bytes, sizeof halves[s]);
        }
        for (size_t s = 0; s < n; s += LANES) {
            v_store(scales + b * AG_KV_BLOCK + s, v_load_f16(halves + s));
        }
    }
    return scales;
}

/* NV vectors of a row from value i on; scales: of its blocks, AG_KV_BLOCK apart. */
INLINE void load_values(const ag_dtype type, const int NV, vec *values, const unsigned char *row,
                        size_t i, const float *scales) {
    for (int v = 0; v < NV; v++) {
        const size_t at = i + (size_t)(v * LANES), b = at / AG_QK;
        if (type == AG_F32) {
            values[v] = v_load((const float *)(const void *)row + at);
        } else if (type == AG_F16) {
            values[v] = v_load_f16(row + 2 * at);
        } else if (type == AG_Q8_0) {
            const unsigned char *q = row + b * sizeof(ag_block_q8_0) + offsetof(ag_block_q8_0, qs);
            values[v] = v_mul(v_load_q8(q, at % AG_QK), v_set(scales[b * AG_KV_BLOCK]));
        } else {
            const unsigned char *q = row + b * sizeof(ag_block_q4_0) + offsetof(ag_block_q4_0, qs);
            values[v] = v_mul(v_load_q4(q, at % AG_QK), v_set(scales[b * AG_KV_BLOCK]));
        }
    }
}

/* ---- fetching ----
 * Few queries compute less than a row takes to arrive: while the rows of one part of a block are
 * worked on, those that are wanted next are fetched into the second level, line by line and not all
 * at once, or the fetches would wait for each other. Lines come from four places of the part in
 * turn, which lie in different pages, so that the processor's own fetching sees several streams. */

typedef struct stream {
    const unsigned char *rows; /* NULL: nothing */
    size_t row_bytes;
} stream;

/* What is fetched while rows from `row` on are worked on: those of the same numbers. */
typedef struct ahead {
    stream next;
    size_t row;
} ahead;

static const stream NOTHING = {0};

INLINE stream stream_of(const unsigned char *rows, const cache_rows *r) {
    return (stream){rows, r->row_bytes};
}

INLINE const unsigned char *row_of(const stream *s, size_t row) {
    return s->rows + row * s->row_bytes;
}

INLINE ahead ahead_from(const ahead *a, size_t row) { return (ahead){a->next, a->row + row}; }

INLINE size_t lines_before(const stream *s, size_t row) { return row * s->row_bytes / 64; }

INLINE void fetch_line(const stream *s, size_t line) {
    enum { PLACES = 4 };
    const size_t apart = lines_before(s, AG_KV_BLOCK / PLACES);
    __builtin_prefetch(s->rows + (line % PLACES * apart + line / PLACES) * 64, 0, 2);
}

INLINE void fetch_row(const ahead *a, size_t row) {
    if (!a->next.rows) return;
    const size_t end = lines_before(&a->next, a->row + row + 1);
    for (size_t line = lines_before(&a->next, a->row + row); line < end; line++) {
        fetch_line(&a->next, line);
    }
}

/* The fetching for some rows in even steps. */
typedef struct fetcher {
    stream next;
    size_t line, end, each; /* each: lines of a step, at most */
} fetcher;

INLINE fetcher fetcher_of(const ahead *a, size_t n_rows, size_t n_steps) {
    if (!a->next.rows) return (fetcher){0};
    const size_t line = lines_before(&a->next, a->row);
    const size_t end = lines_before(&a->next, a->row + n_rows);
    return (fetcher){a->next, line, end, (end - line + n_steps - 1) / n_steps};
}

INLINE void fetch_step(fetcher *f) {
    for (size_t i = 0; i < f->each && f->line < f->end; i++) fetch_line(&f->next, f->line++);
}

#endif
