/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/turns.h"

#include "core/alloc.h"
#include "core/fail.h"

void ag_turns_release(ag_turns *t) {
    ag_free(t->first);
    *t = (ag_turns){0};
}

ag_status ag_turns_add(ag_turns *t, uint32_t position, ag_error *err) {
    const uint32_t last = t->n ? t->first[t->n - 1] : 0;
    if (position < last) {
        return AG_FAIL(err, INVALID,
                       "cannot begin a turn at position %u: the last one begins at %u", position,
                       last);
    }
    if (t->n && position == last) return AG_OK;
    AG_TRY(AG_GROW(t->first, &t->cap, t->n + 1, err));
    t->first[t->n++] = position;
    return AG_OK;
}

void ag_turns_truncate(ag_turns *t, uint32_t position) {
    while (t->n && t->first[t->n - 1] >= position) t->n--;
}

ag_status ag_turns_copy(ag_turns *to, const ag_turns *from, ag_error *err) {
    AG_TRY(AG_ASSIGN(to->first, &to->cap, from->first, from->n, err));
    to->n = from->n;
    return AG_OK;
}
