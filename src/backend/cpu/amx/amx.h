/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AMX with bfloat16 tiles, on top of AVX-512, for calls of many rows. Quantised weights
 * are converted to tiles inside the product; activations are packed as tiles. Both are rounded to 8
 * bits of mantissa and summed in float, so results differ from AVX-512's in the last digits. */
#ifndef AG_BACKEND_CPU_AMX_H
#define AG_BACKEND_CPU_AMX_H

#include "backend/cpu/avx512/avx512.h"

/* Packs a panel: a tile [16 rows][32 columns] for each 16 rows and each block of columns. Packing
 * the last row fills missing rows of its tile with zeros. */
ag_row_bytes_fn ag_packed_bytes_tiles__amx;
ag_pack_fn ag_pack_tiles__amx;

ag_row_bytes_fn ag_scratch_bytes_tiles__amx;
#define DECLARE(NAME, name) ag_matmul_fn ag_matmul_##name##_x16__amx;
AG_X16_MAP(DECLARE)
#undef DECLARE

/* Minimum queries for which converting the span to tiles pays off. */
enum { AG_ATTENTION_TILE_QUERIES = 32 };
/* Calls the AVX-512 kernel for few queries or a float cache. */
ag_attention_fn ag_attention__amx;
/* Also calls the AVX-512 kernel for mean weights; computes only the largest weights itself. */
ag_attention_scores_fn ag_attention_scores__amx;
ag_attention_scratch_bytes_fn ag_attention_scratch_bytes__amx;

#endif
