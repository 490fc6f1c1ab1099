/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and the one place that knows their sizes. */
#ifndef ANTIGRAVITY_DTYPE_H
#define ANTIGRAVITY_DTYPE_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, "name", elements in a block, bytes of a block); little-endian.
 *   Q4_0  f16 d, 16 bytes: byte i holds element i (low nibble) and i + 16 (high); (nibble - 8) * d
 *   Q4_1  f16 d, f16 m, the same nibbles; nibble * d + m
 *   Q8_0  f16 d, 32 int8; q * d
 * Source of the block types: the GGML format family. */
#define AG_DTYPE_MAP(X)     \
    X(F32, "f32", 1, 4)     \
    X(F16, "f16", 1, 2)     \
    X(BF16, "bf16", 1, 2)   \
    X(I32, "i32", 1, 4)     \
    X(U8, "u8", 1, 1)       \
    X(Q4_0, "q4_0", 32, 18) \
    X(Q4_1, "q4_1", 32, 20) \
    X(Q8_0, "q8_0", 32, 34)

typedef enum ag_dtype {
#define AG_DTYPE_ENUM(name, text, block, bytes) AG_##name,
    AG_DTYPE_MAP(AG_DTYPE_ENUM)
#undef AG_DTYPE_ENUM
        AG_DTYPE_COUNT
} ag_dtype;

/* "q4_0"; "?" for a value that is no dtype. Static. */
AG_API const char *ag_dtype_name(ag_dtype dtype);
/* The other way round, ignoring case; false (and *out untouched) for an unknown name. */
AG_API bool ag_dtype_parse(const char *name, ag_dtype *out);

/* Elements in a block: 1, or 32 for the quantised types. */
AG_API size_t ag_dtype_block(ag_dtype dtype);
AG_API size_t ag_dtype_block_bytes(ag_dtype dtype);
AG_API bool ag_dtype_is_quantized(ag_dtype dtype);

/* Bytes of n consecutive elements. 0 when n is not a multiple of the block or the size overflows;
 * there is no "bytes per element", since block types have none. */
AG_API size_t ag_dtype_row_bytes(ag_dtype dtype, size_t n);

#ifdef __cplusplus
}
#endif
#endif
