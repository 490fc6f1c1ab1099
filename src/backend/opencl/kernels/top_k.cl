/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the best of each row of logits, in descending order; of equal values the lower id comes
 * first. A row has up to MAX_PARTS parts. The k-th largest of their maxima is a bound that at least
 * k values reach, and few more. Only parts whose maximum reaches it are searched. Dimension 1 is
 * the rows.
 *
 * With MASK, a value counts as -Inf unless bit id % 32 of word id / 32 of the row's mask is set.
 * The mask follows the row's n_ids ids. */

#include "arrays.cl"
#include "candidate.cl"

#ifndef WG
#define WG 256
#define PART 64 /* values: a multiple of TEAM */
#endif
/* TEAM work-items find the maximum of a part. A search has EACH loads of a work-item in flight. */
enum { TEAM = 8, MAX_PARTS = 2048, LISTED = 1024, EACH = 32 };
enum { DIGITS = 8, BASE = 16 }; /* digits of an order */
#define BAD 0xffffffffu
#ifndef MASK
#define MASK 0
#endif

#define UNROLL _Pragma("unroll")

/* Returns the order of a value in its part: BAD for NaN and +Inf, 0 for -Inf. Does not branch, so
 * that the loads of several values are in flight together. */
static inline uint order_in_part(float v) {
    const uint order = order_of(v), other = v == -INFINITY ? 0 : BAD;
    return isfinite(v) ? order : other;
}

/* Returns the ids of row r, which its mask follows. */
static inline __global const uint *ids_of(__global const uint *ids, ulong r, uint n, uint n_ids) {
    return ids + r * (n_ids + (MASK ? (n + 31) / 32 : 0));
}

static inline bool is_allowed(__global const uint *mask, uint id) {
    return !MASK || mask[id / 32] >> id % 32 & 1;
}

/* Writes for each part of a row [n] the order of its maximum, or BAD if it has such a value. The
 * last work-group of a row copies the values of the row's n_ids ids into its result. */
WG_KERNEL find_maxima(ARRAY(maxima), ARRAY(out), CONST_ARRAY(rows), uint n, CONST_ARRAY(of_rows),
                      uint n_ids, uint k) {
    __local uint orders[WG];
    const uint lid = get_local_id(0), n_parts = (n + PART - 1) / PART;
    const ulong r = get_group_id(1);
    __global const float *row = CONST_FLOATS(rows) + r * n;
    __global const uint *ids = ids_of(CONST_UINTS(of_rows), r, n, n_ids), *mask = ids + n_ids;
    if (get_group_id(0) + 1 == get_num_groups(0)) {
        __global float *at = FLOATS(out) + r * (2 + n_ids + 2 * k) + 2;
        for (uint i = lid; i < n_ids; i += WG) at[i] = row[ids[i]];
        return;
    }
    const uint first = get_group_id(0) * (WG / TEAM);
    const uint begin = (first + lid / TEAM) * PART + lid % TEAM;
    uint mine = 0, largest = 0;
    _Pragma("unroll 16") for (uint i = 0; i < PART; i += TEAM) {
        const uint id = min(begin + i, n - 1), order = order_in_part(row[id]);
        mine = max(mine, is_allowed(mask, id) ? order : 0);
    }
    orders[lid] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid >= WG / TEAM || first + lid >= n_parts) return;
    for (uint i = 0; i < TEAM; i++) largest = max(largest, orders[lid * TEAM + i]);
    ((__global uint *)(maxima + maxima_at))[r * n_parts + first + lid] = largest;
}

/* Returns the k-th largest order of all work-items, of which each has MAX_PARTS / WG; BAD counts
 * as 0. counts: zeros. All work-items must call it. */
static inline uint find_bound(const uint *orders, uint k, __local uint (*counts)[BASE]) {
    uint bound = 0;
    for (uint d = 0; d < DIGITS; d++) {
        const uint shift = 4 * (DIGITS - 1 - d);
        UNROLL for (uint i = 0; i < MAX_PARTS / WG; i++) {
            const uint order = orders[i] == BAD ? 0 : orders[i];
            if ((order ^ bound) >> shift < BASE)
                atomic_inc(&counts[d][order >> shift & (BASE - 1)]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint digit = 0, sum = 0, larger = 0;
        UNROLL for (uint i = BASE - 1; i > 0; i--) {
            sum += counts[d][i];
            if (sum >= k) digit++;
            else larger = sum;
        }
        bound |= digit << shift;
        k -= larger;
        if (counts[d][digit] == k) break; /* all with these digits reach the bound */
    }
    return bound;
}

/* Lists the candidates of n_values values of chosen parts that reach the bound, at most LISTED of
 * them in any order. Returns the number of all, and lowers first_bad. */
static inline uint list_candidates(__local ulong *list, __local uint *n_listed,
                                   __local uint *first_bad, __global const float *row,
                                   __global const uint *mask, uint n, __local const ushort *chosen,
                                   uint n_values, ulong bound) {
    const uint lid = get_local_id(0);
    if (lid == 0) *n_listed = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint begin = 0; begin < n_values; begin += EACH * WG) {
        float v[EACH];
        UNROLL for (uint i = 0; i < EACH; i++) {
            /* Loads without a condition are in flight together. */
            const uint at = min(begin + i * WG + lid, n_values - 1);
            v[i] = row[min(chosen[at / PART] * PART + at % PART, n - 1)];
        }
        UNROLL for (uint i = 0; i < EACH; i++) {
            const uint order = order_in_part(v[i]), at = begin + i * WG + lid;
            if (order < (uint)(bound >> 32) || at >= n_values) continue;
            const uint id = chosen[at / PART] * PART + at % PART;
            if (id >= n || !is_allowed(mask, id)) continue;
            const ulong found = candidate(v[i], id);
            if (order == BAD) {
                atomic_min(first_bad, id);
            } else if (found >= bound) {
                const uint to = atomic_inc(n_listed);
                if (to < LISTED) list[to] = found;
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *n_listed;
}

/* Sorts list[0..n), n a power of two, in descending order. All work-items must call it. */
static inline void sort_list(__local ulong *list, uint n) {
    for (uint run = 2; run <= n; run *= 2) {
        for (uint stride = run / 2; stride > 0; stride /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint p = get_local_id(0); p < n / 2; p += WG) {
                const uint i = 2 * p - (p & (stride - 1)), j = i + stride;
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

/* Writes a row's result for the host: out[0] is the first id whose value is NaN or +Inf, else ~0;
 * out[1] is unused; then come the values that find_maxima copied, an even number, then the k best.
 * One work-group for each row; k is less than LISTED. */
WG_KERNEL take_best(CONST_ARRAY(maxima), ARRAY(results), CONST_ARRAY(rows), uint n,
                    CONST_ARRAY(of_rows), uint n_ids, uint k) {
    __local ulong list[LISTED];
    __local ushort chosen[MAX_PARTS];
    __local uint counts[DIGITS][BASE];
    __local uint n_chosen, n_listed, first_bad;
    const uint lid = get_local_id(0), n_parts = (n + PART - 1) / PART;
    const ulong r = get_group_id(1);
    __global const float *row = CONST_FLOATS(rows) + r * n;
    __global const uint *mask = ids_of(CONST_UINTS(of_rows), r, n, n_ids) + n_ids;
    __global uint *out = (__global uint *)FLOATS(results) + r * (2 + n_ids + 2 * k);
    __global const uint *of_parts = CONST_UINTS(maxima) + r * n_parts;
    uint orders[MAX_PARTS / WG];
    UNROLL for (uint i = 0; i < MAX_PARTS / WG; i++) {
        const uint part = i * WG + lid;
        const uint order = of_parts[min(part, n_parts - 1)];
        orders[i] = part < n_parts ? order : 0;
    }
    for (uint i = lid; i < DIGITS * BASE; i += WG) counts[i / BASE][i % BASE] = 0;
    if (lid == 0) {
        n_chosen = 0;
        first_bad = ~0u;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const uint least = max(find_bound(orders, k, counts), 1u);
    UNROLL for (uint i = 0; i < MAX_PARTS / WG; i++) {
        if (orders[i] >= least) chosen[atomic_inc(&n_chosen)] = i * WG + lid;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    ulong bound = (ulong)least << 32;
    const uint n_values = n_chosen * PART;
    uint found;
    do {
        found = list_candidates(list, &n_listed, &first_bad, row, mask, n, chosen, n_values, bound);
        uint size = 1;
        while (size < LISTED && (size < found || size < k)) size *= 2;
        for (uint i = found + lid; i < size; i += WG) list[i] = 0;
        sort_list(list, size);
        /* If more reached the bound, those listed give a higher one: all candidates differ. */
        bound = list[k - 1];
    } while (found > LISTED);
    __global ulong *best = (__global ulong *)(out + 2 + n_ids);
    for (uint i = lid; i < k; i += WG) best[i] = list[i];
    if (lid == 0) out[0] = first_bad;
}
