/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of a cache to floats. Include a vec.h first. */
#ifndef AG_BACKEND_CPU_SIMD_CACHE_ROWS_H
#define AG_BACKEND_CPU_SIMD_CACHE_ROWS_H

#include "backend/cpu/kernels.h"
#include "core/kv_view.h"
#include "quant/quant.h"

#include <string.h>

typedef struct cache_rows {
    ag_dtype type;
    size_t n_values, width; /* values of a row; width: padded with zeros to complete vectors */
    size_t row_bytes;
} cache_rows;

INLINE cache_rows cache_rows_of(ag_dtype type, size_t head_dim) {
    return (cache_rows){type, head_dim, ag_cpu_value_stride(head_dim),
                        ag_dtype_row_bytes(type, head_dim)};
}

INLINE void expand_f16(float *dst, const unsigned char *src, size_t n) {
    for (size_t i = 0; i < n; i += LANES) v_store(dst + i, v_load_f16(src + 2 * i));
}

/* Converts blocks to floats, or to integers as floats if !scaled. */
INLINE void expand_q8_0(float *dst, const unsigned char *src, size_t n, const bool scaled) {
    for (size_t i = 0; i < n; i += AG_QK, src += sizeof(ag_block_q8_0)) {
        uint16_t d;
        memcpy(&d, src, sizeof d);
        const vec scale = v_set(half_to_float(d));
        const unsigned char *q = src + offsetof(ag_block_q8_0, qs);
        for (size_t at = 0; at < AG_QK; at += LANES) {
            const vec levels = v_load_q8(q, at);
            v_store(dst + i + at, scaled ? v_mul(levels, scale) : levels);
        }
    }
}

INLINE void expand_q4_0(float *dst, const unsigned char *src, size_t n, const bool scaled) {
    for (size_t i = 0; i < n; i += AG_QK, src += sizeof(ag_block_q4_0)) {
        uint16_t d;
        memcpy(&d, src, sizeof d);
        const vec scale = v_set(half_to_float(d));
        const unsigned char *q = src + offsetof(ag_block_q4_0, qs);
        for (size_t at = 0; at < AG_QK; at += LANES) {
            const vec levels = v_load_q4(q, at);
            v_store(dst + i + at, scaled ? v_mul(levels, scale) : levels);
        }
    }
}

/* Converts rows that need padding, and types without a function of their own. */
static inline void expand_rows(float *dst, const unsigned char *src, size_t n,
                               const cache_rows *rows) {
    for (size_t i = 0; i < n; i++, dst += rows->width, src += rows->row_bytes) {
        ag_dequantize_row(rows->type, dst, src, rows->n_values);
        memset(dst + rows->n_values, 0, (rows->width - rows->n_values) * sizeof *dst);
    }
}

/* Returns the n rows at src as floats, `width` apart: in place, or converted. */
INLINE const float *load_rows(float *converted, const unsigned char *src, size_t n,
                              const cache_rows *rows) {
    const size_t n_floats = n * rows->width;
    if (rows->n_values != rows->width) expand_rows(converted, src, n, rows);
    else if (rows->type == AG_F32) return (const float *)(const void *)src;
    else if (rows->type == AG_F16) expand_f16(converted, src, n_floats);
    else if (rows->type == AG_Q8_0) expand_q8_0(converted, src, n_floats, true);
    else if (rows->type == AG_Q4_0) expand_q4_0(converted, src, n_floats, true);
    else expand_rows(converted, src, n, rows);
    return converted;
}

/* Returns whether rows of a type can be read as integers with separate scales. */
INLINE bool has_scales(ag_dtype type) { return type == AG_Q8_0 || type == AG_Q4_0; }

/* Returns the n rows without the scales of such types. */
INLINE const float *load_levels(float *converted, const unsigned char *src, size_t n,
                                const cache_rows *rows) {
    if (rows->type == AG_Q8_0) expand_q8_0(converted, src, n * rows->width, false);
    else if (rows->type == AG_Q4_0) expand_q4_0(converted, src, n * rows->width, false);
    else return load_rows(converted, src, n, rows);
    return converted;
}

/* ---- a row at a time ---- */

INLINE bool is_loaded_directly(ag_dtype type) {
    return type == AG_F32 || type == AG_F16 || type == AG_Q8_0 || type == AG_Q4_0;
}

/* Writes the scales of n rows as [blocks of 32][AG_KV_BLOCK], in complete vectors of rows. */
static inline void load_scales(float *scales, const unsigned char *src, size_t n,
                               const cache_rows *rows) {
    const size_t n_blocks = rows->n_values / AG_QK, block_bytes = rows->row_bytes / n_blocks;
    for (size_t b = 0; b < n_blocks; b++, src += block_bytes) {
        const unsigned char *row = src;
        for (size_t s = 0; s < n; s += LANES) {
            uint16_t halves[LANES];
            for (size_t i = 0; i < LANES; i++, row += rows->row_bytes) {
                memcpy(&halves[i], row, sizeof halves[i]);
            }
            v_store(scales + b * AG_KV_BLOCK + s, v_load_f16(halves));
        }
    }
}

/* Returns the offset in a row of value i, which starts a block if the type has blocks: of the
 * block's scale. */
INLINE size_t bytes_before(const ag_dtype type, size_t i) {
    if (type == AG_F32) return i * sizeof(float);
    if (type == AG_F16) return i * sizeof(uint16_t);
    return i / AG_QK * (type == AG_Q8_0 ? sizeof(ag_block_q8_0) : sizeof(ag_block_q4_0));
}

/* Loads NV vectors of a row from value `at` on, without scales. */
INLINE void load_values(const ag_dtype type, const int NV, vec *values, const unsigned char *row,
                        const size_t at) {
    for (int v = 0; v < NV; v++) {
        const size_t i = at + (size_t)v * LANES, in_block = i % AG_QK;
        const unsigned char *p = row + bytes_before(type, i - in_block);
        if (type == AG_F32) values[v] = v_load((const float *)(const void *)p + in_block);
        else if (type == AG_F16) values[v] = v_load_f16(p + 2 * in_block);
        else if (type == AG_Q8_0) values[v] = v_load_q8(p + offsetof(ag_block_q8_0, qs), in_block);
        else values[v] = v_load_q4(p + offsetof(ag_block_q4_0, qs), in_block);
    }
}

/* ---- prefetching ----
 * With few queries, computing is faster than loading a row. While one part of a block is processed,
 * the next rows are prefetched into L2, line by line: all at once would stall. Lines come from four
 * different pages of the part in turn, so that the hardware prefetcher detects several streams. */

typedef struct stream {
    const unsigned char *rows; /* NULL: no prefetch */
    size_t row_bytes;
} stream;

/* Rows to prefetch while the rows from `row` on are processed: the rows of the same index. */
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

enum { PLACES = 4 };

/* Prefetches the lines of several rows in even steps. */
typedef struct fetcher {
    const unsigned char *rows;
    size_t apart;           /* bytes between the four streams */
    size_t line, end, each; /* each: maximum lines of a step */
} fetcher;

INLINE fetcher fetcher_of(const ahead *a, size_t n_rows, size_t n_steps) {
    if (!a->next.rows) return (fetcher){0};
    const size_t line = lines_before(&a->next, a->row);
    const size_t end = lines_before(&a->next, a->row + n_rows);
    const size_t apart = lines_before(&a->next, AG_KV_BLOCK / PLACES) * 64;
    return (fetcher){a->next.rows, apart, line, end, (end - line + n_steps - 1) / n_steps};
}

/* Limits the fetcher to part `part` of n_parts of its lines, for n_steps steps. */
INLINE void keep_part(fetcher *f, size_t part, size_t n_parts, size_t n_steps) {
    const size_t n = f->end - f->line;
    f->end = f->line + n * (part + 1) / n_parts;
    f->line += n * part / n_parts;
    f->each = (f->end - f->line + n_steps - 1) / n_steps;
}

INLINE void fetch_step(fetcher *f) {
    for (size_t i = 0; i < f->each && f->line < f->end; i++, f->line++) {
        __builtin_prefetch(f->rows + f->line % PLACES * f->apart + f->line / PLACES * 64, 0, 2);
    }
}

#endif
