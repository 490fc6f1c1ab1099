/* SPDX-License-Identifier: Apache-2.0 */
/* Writes arrays. */
#include "constrain/schema/writer.h"
#include "core/fail.h"

enum {
    MANY_ITEMS = 16,     /* with more items the comma between them is a rule */
    ITEMS_MAX = 1 << 13, /* items of an array that are written */
};

/* ---- arrays with counted items ---- */

enum { COUNTS_MAX = 256 };

/* Counters of all `contains` keywords of an array, packed as one mixed-radix number. The highest
 * digit value also stands for more if the keyword has no maximum. */
typedef struct counting {
    ag_schema_writer *w;
    const ag_array_set *x;
    size_t caps[AG_CONTAINS_MAX]; /* highest digit values */
    size_t n_counts;
    uint32_t close, spaced_close;
    bool many;
    uint32_t *after; /* [n_counts] what follows the items so far */
} counting;

static size_t digit_at(const counting *c, size_t count, size_t kind) {
    for (size_t i = 0; i < kind; i++) count /= c->caps[i] + 1;
    return count % (c->caps[kind] + 1);
}

static bool counts_enough(const counting *c, size_t count) {
    for (size_t k = 0; k < c->x->n_contains; k++) {
        if (digit_at(c, count, k) < c->x->contains[k].min) return false;
    }
    return true;
}

/* Computes the schemas of item `at` if it counts for exactly `kinds`; kinds without a maximum are
 * not excluded. AG_SCHEMA_NONE: impossible. *to: the counters after it. */
static ag_status kind_of_item(const counting *c, size_t at, size_t count, unsigned kinds,
                              ag_schema_set *schemas, size_t *to) {
    const ag_array_set *x = c->x;
    ag_schema_compiler *s = &c->w->s;
    size_t unit = 1;
    *schemas = ag_array_item_schemas(x, at);
    *to = count;
    for (size_t k = 0; k < x->n_contains; unit *= c->caps[k++] + 1) {
        const ag_contains *kind = &x->contains[k];
        const bool limited = kind->max != SIZE_MAX, full = digit_at(c, count, k) == c->caps[k];
        if (kinds >> k & 1) {
            /* A full counter counts no more items. If it is limited, no more may come. */
            if (at < kind->from || full) *schemas = AG_SCHEMA_NONE;
            AG_TRY(ag_schema_set_and(s, *schemas, kind->schemas, schemas));
            *to += unit;
        } else if (limited && at >= kind->from) {
            AG_TRY(ag_schema_set_and(s, *schemas, kind->negation, schemas));
        }
    }
    return AG_OK;
}

/* Writes item `at` after these counts, then what follows it. */
static ag_status counted_item(const counting *c, size_t at, size_t count, uint32_t *out) {
    *out = AG_PDA_FAIL;
    for (unsigned kinds = 0; kinds < 1u << c->x->n_contains; kinds++) {
        ag_schema_set schemas;
        size_t to;
        uint32_t one;
        AG_TRY(kind_of_item(c, at, count, kinds, &schemas, &to));
        if (schemas == AG_SCHEMA_NONE || c->after[to] == AG_PDA_FAIL) continue;
        AG_TRY(ag_write_call(c->w, schemas, c->after[to], &one));
        *out = ag_pda_either(c->w->pda, *out, one);
    }
    return AG_OK;
}

/* Sets c->after to a loop over the items from `at` on, which have the same schemas. */
static ag_status loop_items(counting *c, size_t at) {
    ag_pda *pda = c->w->pda;
    for (size_t i = 0; i < c->n_counts; i++) {
        c->after[i] =
            ag_pda_split(pda, AG_PDA_UNSET, counts_enough(c, i) ? c->spaced_close : AG_PDA_FAIL);
    }
    for (size_t i = 0; i < c->n_counts; i++) {
        uint32_t item;
        AG_TRY(counted_item(c, at, i, &item));
        ag_pda_patch(pda, c->after[i], ag_write_comma(c->w, c->many, item));
    }
    return AG_OK;
}

/* Writes the items that are written separately, from the last to the first. *first: the first
 * item. */
static ag_status write_counted_items(counting *c, size_t last, bool loops, uint32_t *first) {
    ag_schema_writer *w = c->w;
    uint32_t *before = ag_schema_alloc(&w->s, c->n_counts, sizeof *before);
    if (!before) return ag_schema_no_memory(&w->s);
    for (size_t i = 0; i < c->n_counts; i++) {
        c->after[i] = counts_enough(c, i) ? c->spaced_close : AG_PDA_FAIL;
    }
    if (loops) AG_TRY(loop_items(c, last));
    *first = AG_PDA_FAIL;
    if (!last && loops) return counted_item(c, 0, 0, first);
    for (size_t at = last; at-- > 0 && w->pda->status == AG_OK;) {
        if (!at) return counted_item(c, 0, 0, first);
        for (size_t i = 0; i < c->n_counts; i++) {
            AG_TRY(counted_item(c, at, i, &before[i]));
            const bool ends = at >= c->x->min && counts_enough(c, i);
            before[i] = ag_pda_either(w->pda, ag_write_comma(w, c->many, before[i]),
                                      ends ? c->spaced_close : AG_PDA_FAIL);
        }
        for (size_t i = 0; i < c->n_counts; i++) c->after[i] = before[i];
    }
    return AG_OK;
}

static ag_status write_counting(ag_schema_writer *w, const ag_array_set *x, uint32_t next,
                                uint32_t *out) {
    ag_pda *pda = w->pda;
    counting c = {.w = w, .x = x, .n_counts = 1};
    size_t fixed = x->n_prefix > x->min ? x->n_prefix : x->min;
    for (size_t k = 0; k < x->n_contains; k++) {
        const ag_contains *kind = &x->contains[k];
        c.caps[k] = kind->max != SIZE_MAX ? kind->max : kind->min;
        if (c.caps[k] >= COUNTS_MAX || (c.n_counts *= c.caps[k] + 1) > COUNTS_MAX) {
            return ag_schema_unsupported(&w->s, w->schema, "contains", "too many items to count");
        }
        if (kind->from > fixed) fixed = kind->from;
    }
    const bool loops = x->max == SIZE_MAX;
    const size_t last = loops ? fixed : x->max < ITEMS_MAX ? x->max : ITEMS_MAX;
    if (last * c.n_counts > pda->limits.insts / 16) {
        return ag_schema_unsupported(&w->s, w->schema, "contains", "the array has too many items");
    }
    c.after = ag_schema_alloc(&w->s, c.n_counts, sizeof *c.after);
    if (!c.after) return ag_schema_no_memory(&w->s);
    c.close = ag_pda_byte(pda, ']', next);
    c.spaced_close = ag_write_space(w, c.close);
    c.many = last * c.n_counts > MANY_ITEMS;
    uint32_t inside;
    AG_TRY(write_counted_items(&c, last, loops, &inside));
    if (!x->min && counts_enough(&c, 0)) inside = ag_pda_either(pda, inside, c.close);
    *out = ag_write_open(w, '[', inside);
    return AG_OK;
}

/* ---- all arrays ---- */

/* Writes back to front, from the last item that is written separately. */
ag_status ag_write_array(ag_schema_writer *w, const ag_array_set *x, uint32_t next, uint32_t *out) {
    ag_pda *pda = w->pda;
    if (x->unique) return ag_write_unique(w, x, next, out);
    if (x->n_contains) return write_counting(w, x, next, out);
    if (x == &ag_any_array && ag_schema_is_delimited(w))
        return ag_write_delimited_array(w, next, out);
    if (x == &ag_any_array) {
        *out = ag_pda_call(pda, w->json->array, next);
        return AG_OK;
    }
    size_t max = x->max, fixed = x->n_prefix > x->min ? x->n_prefix : x->min;
    if (fixed > ITEMS_MAX) {
        char path[AG_SCHEMA_PATH_BYTES];
        return AG_FAIL(w->err, LIMIT, "schema: %s: %zu items; the maximum is %d",
                       ag_schema_doc_path(&w->s.doc, w->schema, "minItems", path), fixed,
                       ITEMS_MAX);
    }
    const bool is_unbounded = max == SIZE_MAX || max > ITEMS_MAX + fixed;
    if (max != SIZE_MAX && is_unbounded) max = ITEMS_MAX;
    const uint32_t close = ag_pda_byte(pda, ']', next), spaced_close = ag_write_space(w, close);
    const bool loops = x->max == SIZE_MAX;
    const size_t last = loops ? fixed : max;
    const bool many = last > MANY_ITEMS;
    uint32_t after = spaced_close; /* after i items, i > 0 */
    uint32_t item = AG_PDA_FAIL;
    if (loops) {
        const uint32_t loop = ag_pda_split(pda, AG_PDA_UNSET, spaced_close);
        AG_TRY(ag_write_call(w, x->items, loop, &item));
        ag_pda_patch(pda, loop, ag_write_comma(w, many, item));
        after = loop;
    }
    for (size_t i = last; i-- > 0 && pda->status == AG_OK;) {
        AG_TRY(ag_write_call(w, ag_array_item_schemas(x, i), after, &item));
        if (i == 0) break;
        const uint32_t more = ag_write_comma(w, many, item);
        after = ag_pda_either(pda, more, i >= x->min ? spaced_close : AG_PDA_FAIL);
        if (after == AG_PDA_FAIL) break;
    }
    if (last == 0 && !loops) item = AG_PDA_FAIL;
    *out = ag_write_open(w, '[', ag_pda_either(pda, item, x->min ? AG_PDA_FAIL : close));
    return AG_OK;
}
