/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/regex/text_dfa.h"

#include "constrain/interner.h"
#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <string.h>

#define DEAD UINT32_MAX

ag_status ag_text_limits_spend(const ag_text_limits *limits, size_t steps, ag_error *err) {
    if (!limits->spent) return AG_OK;
    *limits->spent += steps;
    if (*limits->spent / AG_TEXT_TOTAL_FACTOR <= limits->work) return AG_OK;
    return AG_FAIL(err, LIMIT,
                   "the patterns are too expensive: together more than %d times %zu steps",
                   AG_TEXT_TOTAL_FACTOR, limits->work);
}

void ag_text_dfa_free(ag_text_dfa *d) {
    ag_free(d->edges);
    ag_free(d->starts);
    ag_free(d->accepts);
    *d = (ag_text_dfa){0};
}

ag_status ag_text_dfa_add_state(ag_text_dfa *d, bool accepts, ag_error *err) {
    size_t cap = d->states_cap;
    AG_TRY(ag_compile_steps(1, err));
    AG_TRY(AG_GROW(d->starts, &cap, d->n_states + 2, err));
    cap = d->states_cap;
    AG_TRY(AG_GROW(d->accepts, &cap, d->n_states + 2, err));
    d->states_cap = cap;
    d->accepts[d->n_states] = accepts;
    d->starts[d->n_states++] = (uint32_t)d->n_edges;
    d->starts[d->n_states] = (uint32_t)d->n_edges;
    return AG_OK;
}

ag_status ag_text_dfa_add_edge(ag_text_dfa *d, uint32_t lo, uint32_t hi, uint32_t state,
                               ag_error *err) {
    if (d->n_edges > d->starts[d->n_states - 1]) {
        ag_text_edge *last = &d->edges[d->n_edges - 1];
        if (last->state == state && last->hi + 1 == lo) {
            last->hi = hi;
            return AG_OK;
        }
    }
    AG_TRY(AG_GROW(d->edges, &d->edges_cap, d->n_edges + 1, err));
    d->edges[d->n_edges++] = (ag_text_edge){lo, hi, state};
    d->starts[d->n_states] = (uint32_t)d->n_edges;
    return AG_OK;
}

/* Sets live[s] if s reaches an accepting state. Walks all edges backwards. */
static ag_status find_live(const ag_text_dfa *d, bool *live, ag_error *err) {
    const size_t n = d->n_states;
    uint32_t *first = ag_calloc(n + 1, sizeof *first);
    uint32_t *from = ag_calloc(d->n_edges, sizeof *from);
    uint32_t *queue = ag_calloc(n, sizeof *queue);
    ag_status st = AG_OK;
    if (!first || !from || !queue) {
        st = AG_FAIL(err, NOMEM, "automaton of %zu states", n);
        goto done;
    }
    for (size_t e = 0; e < d->n_edges; e++) first[d->edges[e].state + 1]++;
    for (size_t s = 0; s < n; s++) first[s + 1] += first[s];
    for (uint32_t s = 0; s < n; s++) {
        for (size_t e = d->starts[s]; e < d->starts[s + 1]; e++) {
            from[first[d->edges[e].state]++] = s;
        }
    }
    size_t n_queue = 0;
    for (uint32_t s = 0; s < n; s++) {
        live[s] = d->accepts[s];
        if (live[s]) queue[n_queue++] = s;
    }
    while (n_queue) {
        const uint32_t s = queue[--n_queue];
        for (size_t e = s ? first[s - 1] : 0; e < first[s]; e++) {
            if (!live[from[e]]) queue[n_queue++] = from[e];
            live[from[e]] = true;
        }
    }
done:
    ag_free(first);
    ag_free(from);
    ag_free(queue);
    return st;
}

ag_status ag_text_dfa_trim(ag_text_dfa *d, ag_error *err) {
    const size_t n = d->n_states;
    if (!n) return AG_OK;
    bool *live = ag_calloc(n, sizeof *live);
    uint32_t *new_ids = ag_calloc(n, sizeof *new_ids);
    ag_status st = AG_OK;
    if (!live || !new_ids) st = AG_FAIL(err, NOMEM, "automaton of %zu states", n);
    if (st == AG_OK) st = find_live(d, live, err);
    if (st == AG_OK) {
        uint32_t n_live = 0;
        for (size_t s = 0; s < n; s++) new_ids[s] = live[s] ? n_live++ : DEAD;
        size_t n_edges = 0, at = 0;
        for (size_t s = 0, end; s < n; s++, at = end) {
            end = d->starts[s + 1];
            if (!live[s]) continue;
            d->accepts[new_ids[s]] = d->accepts[s];
            const size_t begin = n_edges;
            for (size_t e = at; e < end; e++) {
                ag_text_edge edge = d->edges[e];
                if (!live[edge.state]) continue;
                edge.state = new_ids[edge.state];
                d->edges[n_edges++] = edge;
            }
            d->starts[new_ids[s]] = (uint32_t)begin;
        }
        d->starts[n_live] = (uint32_t)n_edges;
        d->n_edges = n_edges;
        d->n_states = live[0] ? n_live : 0;
    }
    ag_free(live);
    ag_free(new_ids);
    return st;
}

/* ---- intersection, difference ---- */

typedef struct product {
    const ag_text_dfa *a, *b;
    ag_text_dfa *out;
    ag_interner pairs;
    ag_text_combine how;
    const ag_text_limits *limits;
    size_t work;
    ag_error *err;
} product;

static ag_status add_pair_edge(product *p, uint32_t lo, uint32_t hi, uint32_t a, uint32_t b) {
    const uint32_t pair[2] = {a, b};
    uint32_t id;
    if (++p->work > p->limits->work) {
        return AG_FAIL(p->err, LIMIT, "too expensive: more than %zu steps", p->limits->work);
    }
    AG_TRY(ag_interner_add(&p->pairs, pair, 2, p->limits->states, "combined pattern", &id, p->err));
    return ag_text_dfa_add_edge(p->out, lo, hi, id, p->err);
}

static ag_status expand_pair(product *p, uint32_t a, uint32_t b) {
    const ag_text_dfa *A = p->a, *B = p->b;
    size_t j = b == DEAD ? 0 : B->starts[b];
    const size_t end = b == DEAD ? 0 : B->starts[b + 1];
    for (size_t i = A->starts[a]; i < A->starts[a + 1]; i++) {
        const ag_text_edge *x = &A->edges[i];
        uint32_t at = x->lo;
        while (j < end && B->edges[j].hi < at) j++;
        for (size_t k = j; k < end && B->edges[k].lo <= x->hi; k++) {
            const ag_text_edge *y = &B->edges[k];
            const uint32_t lo = y->lo > at ? y->lo : at, hi = y->hi < x->hi ? y->hi : x->hi;
            if (lo > at && p->how == AG_TEXT_EXCEPT) {
                AG_TRY(add_pair_edge(p, at, lo - 1, x->state, DEAD));
            }
            AG_TRY(add_pair_edge(p, lo, hi, x->state, y->state));
            at = hi + 1;
        }
        if (at <= x->hi && p->how == AG_TEXT_EXCEPT) {
            AG_TRY(add_pair_edge(p, at, x->hi, x->state, DEAD));
        }
    }
    return AG_OK;
}

ag_status ag_text_dfa_combine(ag_text_dfa *out, const ag_text_dfa *a, const ag_text_dfa *b,
                              ag_text_combine how, const ag_text_limits *limits, ag_error *err) {
    *out = (ag_text_dfa){0};
    if (!a->n_states || (how == AG_TEXT_AND && !b->n_states)) return AG_OK;
    product p = {.a = a, .b = b, .out = out, .how = how, .limits = limits, .err = err};
    const uint32_t first[2] = {0, b->n_states ? 0 : DEAD};
    uint32_t id;
    ag_status st = ag_interner_add(&p.pairs, first, 2, limits->states, "pattern", &id, err);
    for (uint32_t s = 0; st == AG_OK && s < p.pairs.n; s++) {
        size_t n;
        const uint32_t *pair = ag_interner_list(&p.pairs, s, &n);
        const uint32_t x = pair[0], y = pair[1];
        const bool in_b = y != DEAD && b->accepts[y];
        st = ag_text_dfa_add_state(out, a->accepts[x] && in_b == (how == AG_TEXT_AND), err);
        if (st == AG_OK) st = expand_pair(&p, x, y);
    }
    if (st == AG_OK) st = ag_text_dfa_trim(out, err);
    if (st == AG_OK) st = ag_text_limits_spend(limits, p.work + p.pairs.n, err);
    ag_interner_free(&p.pairs);
    if (st != AG_OK) ag_text_dfa_free(out);
    return st;
}

/* ---- lengths, queries ---- */

ag_status ag_text_dfa_lengths(ag_text_dfa *out, size_t min, size_t max,
                              const ag_text_limits *limits, ag_error *err) {
    *out = (ag_text_dfa){0};
    if (min > max) return AG_OK;
    const bool open_end = max == SIZE_MAX;
    const size_t last = open_end ? min : max;
    if (last >= limits->states) {
        return AG_FAIL(err, LIMIT, "length limit of %zu: needs more than %zu states", last,
                       limits->states);
    }
    ag_status st = ag_text_limits_spend(limits, last + 1, err);
    for (size_t s = 0; s <= last && st == AG_OK; s++) {
        st = ag_text_dfa_add_state(out, s >= min, err);
        const size_t next = s < last ? s + 1 : s;
        if (st == AG_OK && (s < last || open_end)) {
            st = ag_text_dfa_add_edge(out, 0, AG_CHAR_MAX, (uint32_t)next, err);
        }
    }
    if (st != AG_OK) ag_text_dfa_free(out);
    return st;
}

static uint32_t dfa_step(const ag_text_dfa *d, uint32_t s, uint32_t cp) {
    size_t lo = d->starts[s], hi = d->starts[s + 1];
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (d->edges[mid].hi < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < d->starts[s + 1] && d->edges[lo].lo <= cp ? d->edges[lo].state : DEAD;
}

bool ag_text_dfa_accepts(const ag_text_dfa *d, const char *text, size_t n) {
    if (!d->n_states) return false;
    uint32_t s = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += ag_utf8_get(text + i, &cp);
        s = dfa_step(d, s, cp);
        if (s == DEAD) return false;
    }
    return d->accepts[s];
}

/* Counts depth first. Every state is live, so a loop means that the language is infinite. */
static size_t count_from(const ag_text_dfa *d, uint32_t s, size_t max, size_t depth) {
    if (depth > max) return SIZE_MAX;
    size_t n = d->accepts[s];
    for (size_t e = d->starts[s]; e < d->starts[s + 1]; e++) {
        const size_t width = (size_t)(d->edges[e].hi - d->edges[e].lo) + 1;
        const size_t below = count_from(d, d->edges[e].state, max, depth + 1);
        if (below == SIZE_MAX || below * width > max) return SIZE_MAX;
        n += below * width;
        if (n > max) return SIZE_MAX;
    }
    return n;
}

size_t ag_text_dfa_count(const ag_text_dfa *d, size_t max) {
    if (!d->n_states) return 0;
    return count_from(d, 0, max, 0);
}
