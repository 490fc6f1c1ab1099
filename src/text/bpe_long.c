/* SPDX-License-Identifier: Apache-2.0 */
/* Merges a word of any length in O(n log n), with a linked list of symbols and a queue of possible
 * merges, the lowest rank first, then the leftmost. */
#include "text/bpe.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"

#include <string.h>

typedef struct ag_bpe_link {
    uint32_t prev, next; /* NONE at the ends */
} link;

#define NONE UINT32_MAX
#define DEAD INT32_MIN /* symbol merged into its left neighbour */

/* Restores a binary min-heap of rank << 32 | position. */
static void sift_down(uint64_t *q, size_t n, size_t i) {
    uint64_t x = q[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && q[child + 1] < q[child]) child++;
        if (q[child] >= x) break;
        q[i] = q[child];
    }
    q[i] = x;
}

static void sift_up(uint64_t *q, size_t i) {
    uint64_t x = q[i];
    for (; i > 0 && q[(i - 1) / 2] > x; i = (i - 1) / 2) q[i] = q[(i - 1) / 2];
    q[i] = x;
}

static uint64_t queue_entry(const ag_bpe *bpe, const int32_t *sym, uint32_t at, uint32_t next) {
    ag_joined j = ag_bpe_join(bpe, sym[at], sym[next]);
    return j.id >= 0 ? (uint64_t)j.rank << 32 | at : UINT64_MAX;
}

static void push_pair(uint64_t *q, size_t *n, uint64_t entry) {
    if (entry == UINT64_MAX) return;
    q[*n] = entry;
    sift_up(q, (*n)++);
}

/* Reserves n links and 2 n queue entries: the queue starts with n - 1 pairs, and each of at most n
 * - 1 merges removes one and adds at most two. */
static ag_status grow_scratch(ag_bpe_scratch *s, size_t n, ag_error *err) {
    if (n >= NONE / 2)
        return AG_FAIL(err, LIMIT, "a word has %zu symbols, more than the merge queue supports", n);
    AG_TRY(AG_GROW(s->links, &s->links_cap, n, err));
    return AG_GROW(s->queue, &s->queue_cap, 2 * n, err);
}

static size_t fill_queue(const ag_bpe *bpe, const int32_t *sym, size_t n, link *links,
                         uint64_t *q) {
    size_t n_queue = 0;
    for (uint32_t i = 0; i < n; i++) {
        links[i] = (link){i ? i - 1 : NONE, i + 1 < n ? i + 1 : NONE};
        uint64_t entry = i + 1 < n ? queue_entry(bpe, sym, i, i + 1) : UINT64_MAX;
        if (entry != UINT64_MAX) q[n_queue++] = entry;
    }
    for (size_t i = n_queue / 2; i-- > 0;) sift_down(q, n_queue, i);
    return n_queue;
}

ag_status ag_bpe_merge_long(const ag_bpe *bpe, ag_bpe_scratch *s, int32_t *sym, size_t *n,
                            ag_error *err) {
    AG_TRY(grow_scratch(s, *n, err));
    link *links = s->links;
    uint64_t *q = s->queue;
    size_t n_queue = fill_queue(bpe, sym, *n, links, q);
    for (size_t step = 0; n_queue; step++) {
        if (ag_interrupted_at(step)) return AG_FAIL(err, CANCELLED, "merging a word: interrupted");
        uint64_t top = q[0];
        q[0] = q[--n_queue];
        if (n_queue) sift_down(q, n_queue, 0);
        uint32_t at = (uint32_t)top, next;
        if (sym[at] == DEAD || (next = links[at].next) == NONE) continue;
        ag_joined j = ag_bpe_join(bpe, sym[at], sym[next]);
        if (j.id < 0 || j.rank != top >> 32) continue; /* a symbol of the pair has changed */
        sym[at] = j.id;
        sym[next] = DEAD;
        links[at].next = links[next].next;
        if (links[at].next != NONE) {
            links[links[at].next].prev = at;
            push_pair(q, &n_queue, queue_entry(bpe, sym, at, links[at].next));
        }
        if (links[at].prev != NONE) {
            push_pair(q, &n_queue, queue_entry(bpe, sym, links[at].prev, at));
        }
    }
    size_t left = 0;
    for (size_t i = 0; i < *n; i++) {
        if (sym[i] != DEAD) sym[left++] = sym[i];
    }
    *n = left;
    return AG_OK;
}
