/* SPDX-License-Identifier: Apache-2.0 */
#include "text/select.h"

#include <math.h>
#include <stdbool.h>

static bool better(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restores the heap below i, with the best or the worst on top. */
static void sift(const float *logits, int32_t *ids, size_t n, size_t i, bool best_on_top) {
    int32_t x = ids[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(logits, ids[child + 1], ids[child]) == best_on_top) child++;
        if (better(logits, x, ids[child]) == best_on_top) break;
        ids[i] = ids[child];
    }
    ids[i] = x;
}

static void heapify(const float *logits, int32_t *ids, size_t n, bool best_on_top) {
    for (size_t i = n / 2; i-- > 0;) sift(logits, ids, n, i, best_on_top);
}

static int32_t pop(const float *logits, int32_t *ids, size_t n, bool best_on_top) {
    int32_t top = ids[0];
    ids[0] = ids[n - 1];
    ids[n - 1] = top;
    if (n > 1) sift(logits, ids, n - 1, 0, best_on_top);
    return top;
}

void ag_select_heapify(const float *logits, int32_t *ids, size_t n) {
    heapify(logits, ids, n, true);
}

int32_t ag_select_pop(const float *logits, int32_t *ids, size_t n) {
    return pop(logits, ids, n, true);
}

size_t ag_select_top(const float *logits, size_t n, size_t k, int32_t *ids) {
    size_t n_selected = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t id = (int32_t)i;
        if (n_selected < k) {
            if (logits[i] == -INFINITY) continue;
            ids[n_selected++] = id;
            if (n_selected == k) heapify(logits, ids, k, false);
        } else if (logits[i] > logits[ids[0]]) { /* an equal logit has a higher id, so is worse */
            ids[0] = id;
            sift(logits, ids, k, 0, false);
        }
    }
    if (n_selected < k) heapify(logits, ids, n_selected, false);
    for (size_t remaining = n_selected; remaining > 1; remaining--)
        pop(logits, ids, remaining, false);
    return n_selected;
}
