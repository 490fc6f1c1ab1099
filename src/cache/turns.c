/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/turns.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

void ag_turns_release(ag_turns *t) {
    ag_free(t->first);
    *t = (ag_turns){0};
}

static ag_status reserve_turns(ag_turns *t, size_t n, ag_error *err) {
    if (n <= t->cap) return AG_OK;
    const size_t cap = n < 16 ? 16 : 2 * n;
    uint32_t *grown =
        cap <= SIZE_MAX / sizeof *grown ? ag_realloc(t->first, cap * sizeof *grown) : NULL;
    if (!grown) return AG_FAIL(err, NOMEM, "starts of %zu turns", n);
    t->first = grown;
    t->cap = cap;
    return AG_OK;
}

ag_status ag_turns_add(ag_turns *t, uint32_t position, ag_error *err) {
    const uint32_t last = t->n ? t->first[t->n - 1] : 0;
    if (position < last) {
        return AG_FAIL(err, INVALID,
                       "cannot begin a turn at position %u: the last one begins at %u", position,
                       last);
    }
    if (t->n && position == last) return AG_OK;
    AG_TRY(reserve_turns(t, t->n + 1, err));
    t->first[t->n++] = position;
    return AG_OK;
}

void ag_turns_truncate(ag_turns *t, uint32_t position) {
    while (t->n && t->first[t->n - 1] >= position) t->n--;
}

ag_status ag_turns_copy(ag_turns *to, const ag_turns *from, ag_error *err) {
    AG_TRY(reserve_turns(to, from->n, err));
    if (from->n) memcpy(to->first, from->first, from->n * sizeof *from->first);
    to->n = from->n;
    return AG_OK;
}
