/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

size_t ag_scratch_bytes_tiles__amx(size_t k) {
    const size_t n_blocks = ag_x16_steps(k) * 2;
    size_t n_tiles = SLAB_ROWS / AG_X16 * (n_blocks < SLAB_BLOCKS ? n_blocks : SLAB_BLOCKS);
    if (n_tiles < RING) n_tiles = RING;
    return sizeof(workspace) + n_tiles * TILE * sizeof(bf16);
}

/* Few rows stream through the weights; for many rows a slab of weights stays in L2. */
static size_t call_rows(size_t m) { return m <= FEW_TILES * AG_X16 ? 4 * AG_X16 : SLAB_ROWS; }

/* Tiles pay off from 16 rows on: unpacking a tile takes as long as AVX-512's product with 12 rows.
 */
enum { MANY_ROWS = AG_CPU_BATCH_INVARIANT_ROWS + 1, PANEL_BYTES = 16 << 20 };
enum { ATTENTION_QUERIES = 256 }; /* queries that share the conversion of a span */

#define PRODUCT(NAME, name)                                                                  \
    static const ag_cpu_matmul tiles_##name = {.packed_bytes = ag_packed_bytes_tiles__amx,   \
                                               .scratch_bytes = ag_scratch_bytes_tiles__amx, \
                                               .pack = ag_pack_tiles__amx,                   \
                                               .rows = ag_matmul_##name##_x16__amx,          \
                                               .layout = &ag_layout_##name##_x16,            \
                                               .panel_bytes = PANEL_BYTES,                   \
                                               .call_rows = call_rows};                      \
    static const ag_cpu_matmul matmul_##name = {                                             \
        AG_MATMUL_X16(name, ag_pack_x16__avx512, ag_matmul_##name##_x16__avx512),            \
        .scratch_bytes = ag_scratch_bytes_x16__avx512,                                       \
        .many = &tiles_##name,                                                               \
        .many_rows = MANY_ROWS,                                                              \
    };
AG_X16_MAP(PRODUCT)

void ag_cpu_kernels_amx(ag_cpu_kernels *t) {
#define PREPARED(NAME, name) t->prepared[AG_##NAME] = &matmul_##name;
    AG_X16_MAP(PREPARED)
    t->attention = ag_attention__amx;
    t->attention_scores = ag_attention_scores__amx;
    t->kept_floats = NULL; /* computing scores again is faster than storing them */
    t->attention_scratch_bytes = ag_attention_scratch_bytes__amx;
    t->attention_queries = ATTENTION_QUERIES;
    t->attention_few = AG_ATTENTION_TILE_QUERIES - 1;
}
