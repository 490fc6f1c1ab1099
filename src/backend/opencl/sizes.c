/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/sizes.h"

#include "core/fail.h"

/* Minimum limits of a device. Several kernels need work-groups of 64. */
enum { MIN_GROUP = 64, MIN_LOCAL = 16 << 10 };
/* Equal to the constants of attention.cl, matmul_tile.cl and top_k.cl. */
enum { MAX_DIM = 256, KV_BLOCK = 128, BLOCK = 32, TILE_PAD = 4, TILE_EACH = 4 };
enum { TOP_WG = 256 };
enum { FLOAT = sizeof(float) };

static size_t group_of(const ag_cl_device *d) {
    const size_t items = d->max_item_sizes[0];
    return items && items < d->max_group ? items : d->max_group;
}

static size_t attention_bytes(size_t wg, size_t queries) {
    return ((MAX_DIM + KV_BLOCK + 4) * queries + 4 * wg) * FLOAT;
}

static size_t tile_bytes(size_t m, size_t n) { return (m + n + 2 * TILE_PAD) * BLOCK * FLOAT; }

static void choose_tile(size_t group, size_t local, ag_cl_sizes *out) {
    static const unsigned tiles[][2] = {{64, 64}, {32, 64}, {32, 32}};
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        out->tile_m = tiles[i][0];
        out->tile_n = tiles[i][1];
        out->tile_wg = out->tile_m / TILE_EACH * (out->tile_n / TILE_EACH);
        if (out->tile_wg <= group && tile_bytes(out->tile_m, out->tile_n) <= local) return;
    }
}

ag_status ag_cl_sizes_for(const ag_cl_device *d, ag_cl_sizes *out, ag_error *err) {
    const size_t group = group_of(d), local = (size_t)d->local_bytes;
    if (group < MIN_GROUP || local < MIN_LOCAL) {
        return AG_FAIL(err, UNSUPPORTED,
                       "OpenCL: %s has work-groups of %zu and %zu bytes of local memory; kernels "
                       "need %d and %d",
                       d->name, group, local, MIN_GROUP, MIN_LOCAL);
    }
    *out = (ag_cl_sizes){.matvec_teams = 4, .matvec_rows = 2, .attention_wg = 128};
    if (group < 128) *out = (ag_cl_sizes){.matvec_teams = 2, .matvec_rows = 4, .attention_wg = 64};
    out->matvec_lanes = 32;
    choose_tile(group, local, out);
    out->attention_queries = attention_bytes(out->attention_wg, 16) <= local ? 16 : 8;
    out->top_wg = group < TOP_WG ? out->attention_wg : TOP_WG;
    return AG_OK;
}
