/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and the one place that knows their sizes. */
#ifndef ANTIGRAVITY_DTYPE_H
#define ANTIGRAVITY_DTYPE_H

#include <antigravity/dtype_table.h>
#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a type may be used for; a mask. */
typedef enum ag_dtype_role {
    AG_DTYPE_FLOATS = 1, /* it holds real numbers: ids and bytes do not */
    AG_DTYPE_WEIGHT = 2, /* weights may be kept in it (ag_model_params) */
    AG_DTYPE_CACHE = 4,  /* so may keys and values (ag_kv_params, ag_session_params) */
} ag_dtype_role;

typedef enum ag_dtype {
#define AG_DTYPE_ENUM(name, text, block, bytes, halves, roles) AG_##name,
    AG_DTYPE_MAP(AG_DTYPE_ENUM)
#undef AG_DTYPE_ENUM
        AG_DTYPE_COUNT
} ag_dtype;

/* "q4_0"; "?" for a value that is no dtype. Static. */
AG_API const char *ag_dtype_name(ag_dtype dtype);
/* The other way round, ignoring case; false (and *out untouched) for an unknown name. */
AG_API bool ag_dtype_parse(const char *name, ag_dtype *out);

/* Elements in a block: 1, or 32 or 256 for the quantised types. */
AG_API size_t ag_dtype_block(ag_dtype dtype);
AG_API size_t ag_dtype_block_bytes(ag_dtype dtype);
AG_API bool ag_dtype_is_quantized(ag_dtype dtype);

/* Halves at the start of a block: none, d, or d and m. */
AG_API size_t ag_dtype_scales(ag_dtype dtype);

/* Does the type have all of these roles (ag_dtype_role, or'd)? False for a value that is no dtype.
 */
AG_API bool ag_dtype_may_be(ag_dtype dtype, unsigned roles);
enum { AG_DTYPE_LIST = 128 }; /* bytes for any list */
/* "f32, f16, q8_0": the types that have all of these roles, cut off at `cap` bytes. Returns buf. */
AG_API const char *ag_dtype_list(unsigned roles, char *buf, size_t cap);

/* Bytes of n consecutive elements. 0 when n is not a multiple of the block or the size overflows;
 * there is no "bytes per element", since block types have none. */
AG_API size_t ag_dtype_row_bytes(ag_dtype dtype, size_t n);

#ifdef __cplusplus
}
#endif
#endif
