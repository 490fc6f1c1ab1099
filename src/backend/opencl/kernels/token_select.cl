/* SPDX-License-Identifier: Apache-2.0 */
/* The last stage of token.cl: selects the best logits. Each group has sent the largest values of
 * parts of its rows. The k-th largest of them is a bound that at least k logits, and few more,
 * reach. Logits that reach it are listed in any order, and the host sorts them. */
#ifndef TOKEN_SELECT
#define TOKEN_SELECT

#include "candidate.cl"
#include "token_product.cl"

typedef ag_cl_token_request request;
typedef ag_cl_token_result result;

/* Sends the largest values of `parts` parts of the group's rows as packets. */
static inline void send_maxima(const found *f, __local float *of_warps, ulong mailbox, uint parts,
                               ulong result_at, uint tag, uint group, uint item) {
    if (item % WARP == 0) of_warps[item / WARP] = f->largest;
    if (item % WARP == 0 && f->bad != ~0u)
        atomic_min(&((volatile __global result *)result_at)->bad, f->bad);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item >= parts) return;
    float largest = -INFINITY;
    for (uint w = item; w < WARPS; w += parts) largest = fmax(largest, of_warps[w]);
    put(mailbox, group * parts + item, as_uint(largest), tag);
}

/* Returns the k-th largest of n values, n even; -INFINITY if k exceeds n. */
static inline float find_bound(__local float *maxima, __local float *bound, ulong mailbox, uint n,
                               uint k, uint tag, uint item, volatile __global uint *aborted) {
    for (uint i = item; i < n / 2; i += LOCAL) {
        const uint at = 2 * i;
        ulong2 v = peek2(mailbox, at);
        await_pairs(&v, 1, mailbox, &at, tag, aborted);
        maxima[at] = packet_float(v.x);
        maxima[at + 1] = packet_float(v.y);
    }
    if (item == 0) *bound = -INFINITY;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = item; i < n; i += LOCAL) {
        const float mine = maxima[i];
        uint before = 0;
        for (uint j = 0; j < n; j++) before += maxima[j] > mine || (maxima[j] == mine && j < i);
        if (before + 1 == k) *bound = mine;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *bound;
}

/* Runs a SELECT stage: `rows` is the number of logits, `k` the parts of a group, `in` the mailbox
 * of maxima, `out` the logits. A group searches the rows that it has computed. */
static inline void choose_best(__local const stage *st, __local float *maxima, __local float *bound,
                               uint in_tag, uint group, uint n_groups, uint item,
                               volatile __global uint *aborted) {
    __global const request *wanted = (__global const request *)st->extra[0];
    __global result *to = (__global result *)st->extra[1];
    __global const float *logits = (__global const float *)st->out;
    const float least =
        find_bound(maxima, bound, st->in, n_groups * st->k, wanted->k, in_tag, item, aborted);
    for (uint row = group + n_groups * item; row < st->rows; row += n_groups * LOCAL) {
        const float v = logits[row];
        if (!(v >= least) || !isfinite(v)) continue;
        const uint i = atomic_inc((volatile __global uint *)&to->n_listed);
        if (i < AG_CL_TOKEN_LISTED) to->listed[i] = candidate(v, row);
    }
    for (uint i = item; i < wanted->n_ids; i += LOCAL) {
        const uint row = (uint)wanted->ids[i];
        if (row % n_groups == group) to->at[i] = logits[row];
    }
}

#endif
