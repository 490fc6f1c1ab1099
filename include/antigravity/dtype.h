/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, their names, sizes and roles. */
#ifndef ANTIGRAVITY_DTYPE_H
#define ANTIGRAVITY_DTYPE_H

#include <antigravity/dtype_table.h>
#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Uses of a type; a bit mask. */
typedef enum ag_dtype_role {
    AG_DTYPE_FLOATS = 1, /* represents real numbers, unlike ids and bytes */
    AG_DTYPE_WEIGHT = 2, /* can store weights (ag_model_params) */
    AG_DTYPE_CACHE = 4,  /* can store keys and values (ag_kv_params, ag_session_params) */
} ag_dtype_role;

typedef enum ag_dtype {
#define AG_DTYPE_ENUM(name, text, block, bytes, halves, roles) AG_##name,
    AG_DTYPE_MAP(AG_DTYPE_ENUM)
#undef AG_DTYPE_ENUM
        AG_DTYPE_COUNT
} ag_dtype;

/* Returns the name ("q4_0"), "?" for a value outside the enumeration. Static. */
AG_API const char *ag_dtype_name(ag_dtype dtype);
/* Writes the type of this name, ignoring case. Returns false, and leaves *out unchanged, for an
 * unknown name. */
AG_API bool ag_dtype_parse(const char *name, ag_dtype *out);

/* Returns the elements of a block: 1, or 32 or 256 for quantised types. */
AG_API size_t ag_dtype_block(ag_dtype dtype);
AG_API size_t ag_dtype_block_bytes(ag_dtype dtype);
AG_API bool ag_dtype_is_quantized(ag_dtype dtype);

/* Returns the number of F16 values at the start of a block: 0, 1 (d) or 2 (d and m). */
AG_API size_t ag_dtype_scales(ag_dtype dtype);

/* Returns whether the type has all of these roles (ag_dtype_role bits). False for a value outside
 * the enumeration. */
AG_API bool ag_dtype_may_be(ag_dtype dtype, unsigned roles);
enum { AG_DTYPE_LIST = 128 }; /* bytes that any list fits in */
/* Writes the names of the types that have all of these roles ("f32, f16, q8_0"), truncated to `cap`
 * bytes. Returns buf. */
AG_API const char *ag_dtype_list(unsigned roles, char *buf, size_t cap);

/* Returns the bytes of n consecutive elements; 0 if n is not a multiple of the block or the size
 * overflows. Block types have no size per element. */
AG_API size_t ag_dtype_row_bytes(ag_dtype dtype, size_t n);

#ifdef __cplusplus
}
#endif
#endif
