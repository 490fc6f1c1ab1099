/* SPDX-License-Identifier: Apache-2.0 */
/* Writes arrays with unique items, if the items are listed values. The array is written like an
 * object in any order, in which each value may occur once. */
#include "constrain/schema/writer.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/utf8.h"

#include <string.h>

enum { TEXT_MAX = 256 }; /* bytes of a value */

typedef struct value_text {
    const char *s;
    size_t len;
} value_text;

typedef struct unique {
    ag_schema_writer *w;
    uint32_t at; /* schema with "uniqueItems" */
    bool null_value, true_value, false_value;
    const json_t *numbers[AG_OBJECT_MEMBERS];
    value_text texts[AG_OBJECT_MEMBERS];
    size_t n_numbers, n_texts;
    char text[TEXT_MAX + 4]; /* the text being read from an automaton */
} unique;

static ag_status fail_unique(const unique *u, const char *message) {
    return ag_schema_unsupported(&u->w->s, u->at, "uniqueItems", message);
}

static ag_status add_number(unique *u, const json_t *value) {
    for (size_t i = 0; i < u->n_numbers; i++) {
        if (json_number_value(u->numbers[i]) == json_number_value(value)) return AG_OK;
    }
    if (u->n_numbers == AG_OBJECT_MEMBERS) return fail_unique(u, "too many values");
    u->numbers[u->n_numbers++] = value;
    return AG_OK;
}

static ag_status add_text(unique *u, size_t len) {
    for (size_t i = 0; i < u->n_texts; i++) {
        if (u->texts[i].len == len && !memcmp(u->texts[i].s, u->text, len)) return AG_OK;
    }
    if (u->n_texts == AG_OBJECT_MEMBERS) return fail_unique(u, "too many values");
    char *copy = ag_schema_alloc(&u->w->s, len + 1, 1);
    if (!copy) return ag_schema_no_memory(&u->w->s);
    memcpy(copy, u->text, len);
    u->texts[u->n_texts++] = (value_text){copy, len};
    return AG_OK;
}

/* Adds the texts of an automaton, which are few. */
static ag_status add_texts(unique *u, const ag_text_dfa *d, uint32_t state, size_t len) {
    if (d->accepts[state]) AG_TRY(add_text(u, len));
    if (len + 4 > TEXT_MAX) return fail_unique(u, "a value is too long");
    for (size_t e = d->starts[state]; e < d->starts[state + 1]; e++) {
        const ag_text_edge *x = &d->edges[e];
        for (uint32_t cp = x->lo; cp <= x->hi; cp++) {
            const size_t n = ag_utf8_put(u->text + len, cp);
            AG_TRY(add_texts(u, d, x->state, len + n));
        }
    }
    return AG_OK;
}

static ag_status add_values(unique *u, const ag_value_set *x) {
    static const char not_values[] = "the items must be listed values";
    u->null_value |= x->null_value;
    u->true_value |= x->true_value;
    u->false_value |= x->false_value;
    if (x->array || x->object || (x->number && !x->number->is_list)) {
        return fail_unique(u, not_values);
    }
    for (size_t i = 0; x->number && i < x->number->n_values; i++) {
        AG_TRY(add_number(u, x->number->values[i]));
    }
    if (!x->string) return AG_OK;
    const ag_text_dfa *texts;
    if (!x->string->texts) return fail_unique(u, not_values);
    AG_TRY(ag_string_dfa(&u->w->s, x->string, &texts));
    if (ag_text_dfa_count(texts, AG_OBJECT_MEMBERS) == SIZE_MAX) {
        return fail_unique(u, not_values);
    }
    return texts->n_states ? add_texts(u, texts, 0, 0) : AG_OK;
}

static ag_status find_values(unique *u, ag_schema_set schemas) {
    ag_schema_compiler *s = &u->w->s;
    ag_alternatives alternatives;
    if (schemas == AG_SCHEMA_ANY) return fail_unique(u, "the items must be listed values");
    AG_TRY(ag_schema_set_values(s, schemas, &alternatives));
    for (size_t i = 0; i < alternatives.n; i++) AG_TRY(add_values(u, alternatives.list[i].values));
    if (u->null_value + u->true_value + u->false_value + u->n_numbers + u->n_texts >
        AG_OBJECT_MEMBERS) {
        return fail_unique(u, "too many values");
    }
    return AG_OK;
}

/* Adds a value as it is written elsewhere. */
static ag_status add_member(const unique *u, ag_pda_object *list, const ag_value_set *value) {
    ag_pda *pda = u->w->pda;
    uint32_t start;
    AG_TRY(ag_write_values(u->w, value, ag_pda_end(pda), &start));
    list->members[list->n++] = (ag_pda_member){ag_pda_rule_plain(pda, start), false};
    return AG_OK;
}

static ag_status add_string(const unique *u, ag_pda_object *list, const value_text *text) {
    ag_schema_compiler *s = &u->w->s;
    ag_text_dfa one;
    ag_string_set string = {.max = SIZE_MAX};
    AG_TRY(ag_text_dfa_texts(&one, &text->s, &text->len, 1, &s->limits, s->err));
    AG_TRY(ag_schema_adopt(s, &one, &string.texts));
    return add_member(u, list, &(ag_value_set){.string = &string});
}

static ag_status add_members(const unique *u, ag_pda_object *list) {
    if (u->null_value) AG_TRY(add_member(u, list, &(ag_value_set){.null_value = true}));
    if (u->true_value) AG_TRY(add_member(u, list, &(ag_value_set){.true_value = true}));
    if (u->false_value) AG_TRY(add_member(u, list, &(ag_value_set){.false_value = true}));
    for (size_t i = 0; i < u->n_numbers; i++) {
        const ag_number_set number = {.is_list = true, .values = &u->numbers[i], .n_values = 1};
        AG_TRY(add_member(u, list, &(ag_value_set){.number = &number}));
    }
    for (size_t i = 0; i < u->n_texts; i++) AG_TRY(add_string(u, list, &u->texts[i]));
    return AG_OK;
}

ag_status ag_write_unique(ag_schema_writer *w, const ag_array_set *x, uint32_t next,
                          uint32_t *out) {
    ag_pda *pda = w->pda;
    unique *u = ag_schema_alloc(&w->s, 1, sizeof *u);
    if (!u) return ag_schema_no_memory(&w->s);
    u->w = w;
    u->at = x->unique_at;
    if (x->n_prefix || x->n_contains) {
        return fail_unique(u, "not supported together with prefixItems or contains");
    }
    AG_TRY(find_values(u, x->items));
    const uint32_t close = ag_pda_byte(pda, ']', next);
    ag_pda_object list = {.other = AG_PDA_FAIL,
                          .comma = ag_write_comma_rule(w),
                          .close = ag_write_space(w, close),
                          .min = x->min < UINT32_MAX ? (uint32_t)x->min : UINT32_MAX,
                          .max = x->max < UINT32_MAX ? (uint32_t)x->max : 0};
    list.members = ag_calloc(AG_OBJECT_MEMBERS, sizeof *list.members);
    if (!list.members) return AG_FAIL(w->err, NOMEM, "schema of unique items");
    const ag_status st = add_members(u, &list);
    if (st != AG_OK) {
        ag_free(list.members);
        return st;
    }
    const bool possible = list.n >= list.min && list.n > 0;
    uint32_t inside = ag_pda_object_start(pda, ag_pda_object_add(pda, &list));
    if (!possible) inside = AG_PDA_FAIL;
    if (!x->min) inside = ag_pda_either(pda, inside, close);
    *out = ag_write_open(w, '[', inside);
    return AG_OK;
}
