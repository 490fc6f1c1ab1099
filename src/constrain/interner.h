/* SPDX-License-Identifier: Apache-2.0 */
/* Interner: gives lists of numbers ids. Equal lists have the same id, counted from 0. */
#ifndef AG_CONSTRAIN_INTERNER_H
#define AG_CONSTRAIN_INTERNER_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* numbers of all lists of one interner: 128 MiB */
enum { AG_INTERNER_NUMBERS = 1 << 25 };

typedef struct ag_interner {
    uint32_t *pool; /* all lists, one after another */
    size_t n_pool, pool_cap;
    uint32_t *starts; /* [n + 1] offsets into pool */
    size_t n, starts_cap;
    uint32_t *slots; /* id + 1 by hash; 0: empty */
    size_t n_slots;  /* a power of two */
} ag_interner;

void ag_interner_free(ag_interner *t);
/* Sorts a list in place, so that equal sets become equal lists. */
void ag_interner_sort(uint32_t *list, size_t n);
/* Returns the list's id in *id, a new one if it is not known. Fails with AG_LIMIT beyond `max`
 * lists or AG_INTERNER_NUMBERS numbers; the message begins with `what`. AG_CANCELLED: see
 * interrupts.h. */
ag_status ag_interner_add(ag_interner *t, const uint32_t *list, size_t n, size_t max,
                          const char *what, uint32_t *id, ag_error *err);

static inline const uint32_t *ag_interner_list(const ag_interner *t, uint32_t id, size_t *n) {
    *n = t->starts[id + 1] - t->starts[id];
    return t->pool + t->starts[id];
}

#endif
