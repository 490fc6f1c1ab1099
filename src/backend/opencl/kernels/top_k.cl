/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the best of each row of logits, in descending order; of equal values the lower id comes
 * first. The best of each chunk of a row are sorted as candidates. Then JOINED sorted lists at a
 * time are merged until one is left. Dimension 1 is the rows. */

#include "candidate.cl"

#ifndef WG
#define WG 256
#endif
#ifndef RETAINED
#define RETAINED 128 /* candidates of a list: a power of two up to 512 */
#endif
enum { CHUNK = 2048, JOINED = 8, EACH = CHUNK / WG };

/* Sorts list[0..n), n a power of two, in descending order. Runs of `sorted` values are already
 * sorted, up and down in turn. All work-items must call it. */
static inline void sort_from(__local ulong *list, uint n, uint sorted) {
    for (uint run = 2 * sorted; run <= n; run *= 2) {
        for (uint apart = run / 2; apart > 0; apart /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint p = get_local_id(0); p < n / 2; p += WG) {
                const uint i = p / apart * 2 * apart + p % apart, j = i + apart;
                const ulong a = list[i], b = list[j];
                const bool down = (i & run) == 0;
                if (down ? a < b : a > b) {
                    list[i] = b;
                    list[j] = a;
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Puts the candidates that may be among the best RETAINED into list, and zeros after them. Returns
 * the size of the list, a power of two. mine: the candidates of a work-item. */
static inline uint list_best(__local ulong *list, __local uint *n, const ulong *mine) {
    const uint lid = get_local_id(0);
    ulong bound = 1;
#if RETAINED <= WG
    /* RETAINED work-items have a candidate that reaches this bound. */
    ulong best = 0;
    for (uint i = 0; i < EACH; i++) best = max(best, mine[i]);
    list[lid] = best;
    sort_from(list, WG, 1);
    bound = max(list[RETAINED - 1], bound);
#endif
    if (lid == 0) *n = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < EACH; i++) {
        if (mine[i] >= bound) list[atomic_inc(n)] = mine[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint size = RETAINED;
    while (size < *n) size *= 2;
    for (uint i = *n + lid; i < size; i += WG) list[i] = 0;
    return size;
}

/* Sorts the best of each work-group's CHUNK of a row [n] to list [row][group]. bad[row][group]: the
 * first id whose value is NaN or +Inf, else ~0. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
sort_chunks(__global uchar *lists, ulong lists_at, __global uchar *bad, ulong bad_at,
            __global const uchar *rows, ulong rows_at, uint n) {
    __local ulong list[CHUNK];
    __local uint first_bad, n_best;
    const uint begin = get_group_id(0) * CHUNK, lid = get_local_id(0);
    const ulong number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
    __global const float *row = (__global const float *)(rows + rows_at) + get_group_id(1) * n;
    if (lid == 0) first_bad = ~0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    ulong mine[EACH];
    for (uint i = 0; i < EACH; i++) {
        const uint id = begin + i * WG + lid;
        const float v = id < n ? row[id] : -INFINITY;
        if (isnan(v) || v == INFINITY) atomic_min(&first_bad, id);
        mine[i] = isfinite(v) ? candidate(v, id) : 0;
    }
    sort_from(list, list_best(list, &n_best, mine), 1);
    __global ulong *to = (__global ulong *)(lists + lists_at) + number * RETAINED;
    for (uint i = lid; i < RETAINED; i += WG) to[i] = list[i];
    if (lid == 0) ((__global uint *)(bad + bad_at))[number] = first_bad;
}

/* Merges JOINED lists of a row into the first of them. `apart` is the stride of the lists. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
join_lists(__global uchar *lists_base, ulong lists_at, uint n_lists, uint apart) {
    __global ulong *lists =
        (__global ulong *)(lists_base + lists_at) + get_group_id(1) * n_lists * RETAINED;
    __local ulong list[JOINED * RETAINED];
    const uint first = get_group_id(0) * JOINED * apart;
    for (uint i = get_local_id(0); i < JOINED * RETAINED; i += WG) {
        const uint from = first + i / RETAINED * apart;
        /* Reverses every other list: up and down in turn. */
        const uint at = i / RETAINED % 2 ? RETAINED - 1 - i % RETAINED : i % RETAINED;
        list[i] = from < n_lists ? lists[(ulong)from * RETAINED + at] : 0;
    }
    sort_from(list, JOINED * RETAINED, RETAINED);
    for (uint i = get_local_id(0); i < RETAINED; i += WG)
        lists[(ulong)first * RETAINED + i] = list[i];
}

/* Writes a row's result for the host: out[0] is the first bad id, out[1] is unused, then come the
 * values of the row's n_ids ids, an even number, then the k best. One work-group for each row. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
take_best(__global uchar *out_base, ulong out_at, __global const uchar *lists, ulong lists_at,
          __global const uchar *bad, ulong bad_at, uint n_lists, __global const uchar *rows,
          ulong rows_at, uint n, __global const uchar *ids, ulong ids_at, uint n_ids, uint k) {
    const ulong r = get_group_id(1);
    __global uint *out = (__global uint *)(out_base + out_at) + r * (2 + n_ids + 2 * k);
    __global const uint *row = (__global const uint *)(rows + rows_at) + r * n;
    __local uint first_bad;
    if (get_local_id(0) == 0) first_bad = ~0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_local_id(0); i < n_lists; i += WG) {
        atomic_min(&first_bad, ((__global const uint *)(bad + bad_at))[r * n_lists + i]);
    }
    for (uint i = get_local_id(0); i < n_ids; i += WG) {
        out[2 + i] = row[((__global const uint *)(ids + ids_at))[r * n_ids + i]];
    }
    __global ulong *best = (__global ulong *)(out + 2 + n_ids);
    for (uint i = get_local_id(0); i < k; i += WG) {
        best[i] = ((__global const ulong *)(lists + lists_at))[r * n_lists * RETAINED + i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) out[0] = first_bad;
}
