/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/interner.h"

#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { INSERTION_SORT_MAX = 24 };

void ag_interner_free(ag_interner *t) {
    ag_free(t->pool);
    ag_free(t->starts);
    ag_free(t->slots);
    *t = (ag_interner){0};
}

static int compare_numbers(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void ag_interner_sort(uint32_t *list, size_t n) {
    if (n > INSERTION_SORT_MAX) {
        qsort(list, n, sizeof *list, compare_numbers);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        const uint32_t x = list[i];
        size_t k = i;
        for (; k > 0 && list[k - 1] > x; k--) list[k] = list[k - 1];
        list[k] = x;
    }
}

static uint64_t hash_list(const uint32_t *list, size_t n) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ list[i]) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    return h;
}

static bool is_list(const ag_interner *t, uint32_t id, const uint32_t *list, size_t n) {
    size_t have;
    const uint32_t *other = ag_interner_list(t, id, &have);
    return have == n && (!n || !memcmp(other, list, n * sizeof *list));
}

static size_t find_slot(const ag_interner *t, const uint32_t *list, size_t n) {
    size_t at = hash_list(list, n) & (t->n_slots - 1);
    while (t->slots[at] && !is_list(t, t->slots[at] - 1, list, n)) at = (at + 1) & (t->n_slots - 1);
    return at;
}

static ag_status grow_slots(ag_interner *t, ag_error *err) {
    const size_t n_slots = t->n_slots ? 2 * t->n_slots : 64;
    uint32_t *slots = ag_calloc(n_slots, sizeof *slots);
    if (!slots) return AG_FAIL(err, NOMEM, "table of %zu states", n_slots);
    ag_free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (uint32_t id = 0; id < t->n; id++) {
        size_t n;
        const uint32_t *list = ag_interner_list(t, id, &n);
        t->slots[find_slot(t, list, n)] = id + 1;
    }
    return AG_OK;
}

ag_status ag_interner_add(ag_interner *t, const uint32_t *list, size_t n, size_t max,
                          const char *what, uint32_t *id, ag_error *err) {
    AG_TRY(ag_compile_steps(1 + n / 16, err));
    if (2 * (t->n + 1) > t->n_slots) AG_TRY(grow_slots(t, err));
    const size_t slot = find_slot(t, list, n);
    if (t->slots[slot]) {
        *id = t->slots[slot] - 1;
        return AG_OK;
    }
    if (t->n >= max) return AG_FAIL(err, LIMIT, "%s: more than %zu states", what, max);
    if (n > AG_INTERNER_NUMBERS - t->n_pool) {
        return AG_FAIL(err, LIMIT, "%s: states of more than %d numbers", what, AG_INTERNER_NUMBERS);
    }
    AG_TRY(AG_GROW(t->starts, &t->starts_cap, t->n + 2, err));
    AG_TRY(AG_GROW(t->pool, &t->pool_cap, t->n_pool + n + 1, err));
    t->starts[t->n] = (uint32_t)t->n_pool;
    if (n) memcpy(t->pool + t->n_pool, list, n * sizeof *list);
    t->n_pool += n;
    *id = (uint32_t)t->n++;
    t->starts[t->n] = (uint32_t)t->n_pool;
    t->slots[slot] = *id + 1;
    return AG_OK;
}
