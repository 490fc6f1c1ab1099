/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of which no two items are equal, where the items are a list of values: as an object whose
 * properties come in any order, each value can be there once. */
#include "constrain/schema/writer.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/utf8.h"

#include <string.h>

enum { MOST_TEXT = 256 }; /* bytes of a value */

typedef struct value_text {
    const char *s;
    size_t len;
} value_text;

typedef struct unique {
    ag_schema_writer *w;
    uint32_t at; /* the schema that asks for it */
    bool null, yes, no;
    const json_t *numbers[AG_OBJECT_MEMBERS];
    value_text texts[AG_OBJECT_MEMBERS];
    size_t n_numbers, n_texts;
    char text[MOST_TEXT + 4]; /* that is being read off an automaton */
} unique;

static ag_status refuse_unique(const unique *u, const char *why) {
    return ag_schema_unsupported(&u->w->s, u->at, "uniqueItems", why);
}

static ag_status add_number(unique *u, const json_t *value) {
    for (size_t i = 0; i < u->n_numbers; i++) {
        if (json_number_value(u->numbers[i]) == json_number_value(value)) return AG_OK;
    }
    if (u->n_numbers == AG_OBJECT_MEMBERS) return refuse_unique(u, "too many values");
    u->numbers[u->n_numbers++] = value;
    return AG_OK;
}

static ag_status add_text(unique *u, size_t len) {
    for (size_t i = 0; i < u->n_texts; i++) {
        if (u->texts[i].len == len && !memcmp(u->texts[i].s, u->text, len)) return AG_OK;
    }
    if (u->n_texts == AG_OBJECT_MEMBERS) return refuse_unique(u, "too many values");
    char *kept = ag_shaper_get(&u->w->s, len + 1, 1);
    if (!kept) return ag_shaper_no_memory(&u->w->s);
    memcpy(kept, u->text, len);
    u->texts[u->n_texts++] = (value_text){kept, len};
    return AG_OK;
}

/* The texts of an automaton, which are few. */
static ag_status add_texts(unique *u, const ag_text_dfa *d, uint32_t state, size_t len) {
    if (d->accepts[state]) AG_TRY(add_text(u, len));
    if (len + 4 > MOST_TEXT) return refuse_unique(u, "a value that is too long");
    for (size_t e = d->starts[state]; e < d->starts[state + 1]; e++) {
        const ag_text_edge *x = &d->edges[e];
        for (uint32_t cp = x->lo; cp <= x->hi; cp++) {
            const size_t n = ag_utf8_put(u->text + len, cp);
            AG_TRY(add_texts(u, d, x->state, len + n));
        }
    }
    return AG_OK;
}

static ag_status add_shape(unique *u, const ag_shape *x) {
    static const char not_values[] = "supported for items that are a list of values";
    u->null |= x->null;
    u->yes |= x->yes;
    u->no |= x->no;
    if (x->array || x->object || (x->number && !x->number->is_list)) {
        return refuse_unique(u, not_values);
    }
    for (size_t i = 0; x->number && i < x->number->n_values; i++) {
        AG_TRY(add_number(u, x->number->values[i]));
    }
    if (!x->string) return AG_OK;
    const ag_text_dfa *texts;
    if (!x->string->texts) return refuse_unique(u, not_values);
    AG_TRY(ag_string_dfa(&u->w->s, x->string, &texts));
    if (ag_text_dfa_count(texts, AG_OBJECT_MEMBERS) == SIZE_MAX) {
        return refuse_unique(u, not_values);
    }
    return texts->n_states ? add_texts(u, texts, 0, 0) : AG_OK;
}

static ag_status find_values(unique *u, ag_goal goal) {
    ag_shaper *s = &u->w->s;
    ag_ways ways;
    if (goal == AG_GOAL_ANY)
        return refuse_unique(u, "supported for items that are a list of values");
    AG_TRY(ag_goal_expand(s, goal, &ways));
    AG_TRY(ag_ways_flatten(s, ways, &ways));
    for (size_t i = 0; i < ways.n; i++) AG_TRY(add_shape(u, ways.list[i].shape));
    if (u->null + u->yes + u->no + u->n_numbers + u->n_texts > AG_OBJECT_MEMBERS) {
        return refuse_unique(u, "too many values");
    }
    return AG_OK;
}

/* The value of a shape, as it is spelled wherever it stands. */
static ag_status add_member(const unique *u, ag_net_object *list, const ag_shape *value) {
    ag_net *net = u->w->net;
    uint32_t start;
    AG_TRY(ag_schema_write_shape(u->w, value, ag_net_end(net), &start));
    const ag_net_rule rule = {.kind = AG_RULE_PLAIN, .start = start};
    list->members[list->n++] = (ag_net_member){ag_net_rule_add(net, rule), false};
    return AG_OK;
}

static ag_status add_string(const unique *u, ag_net_object *list, const value_text *text) {
    ag_shaper *s = &u->w->s;
    ag_text_dfa one;
    ag_string_shape string = {.most = SIZE_MAX};
    AG_TRY(ag_text_dfa_texts(&one, &text->s, &text->len, 1, &s->limits, s->err));
    AG_TRY(ag_shaper_keep(s, &one, &string.texts));
    return add_member(u, list, &(ag_shape){.string = &string});
}

static ag_status add_members(const unique *u, ag_net_object *list) {
    if (u->null) AG_TRY(add_member(u, list, &(ag_shape){.null = true}));
    if (u->yes) AG_TRY(add_member(u, list, &(ag_shape){.yes = true}));
    if (u->no) AG_TRY(add_member(u, list, &(ag_shape){.no = true}));
    for (size_t i = 0; i < u->n_numbers; i++) {
        const ag_number_shape number = {.is_list = true, .values = &u->numbers[i], .n_values = 1};
        AG_TRY(add_member(u, list, &(ag_shape){.number = &number}));
    }
    for (size_t i = 0; i < u->n_texts; i++) AG_TRY(add_string(u, list, &u->texts[i]));
    return AG_OK;
}

ag_status ag_write_unique(ag_schema_writer *w, const ag_array_shape *x, uint32_t next,
                          uint32_t *out) {
    ag_net *net = w->net;
    unique *u = ag_shaper_get(&w->s, 1, sizeof *u);
    if (!u) return ag_shaper_no_memory(&w->s);
    u->w = w;
    u->at = x->unique_at;
    if (x->n_prefix || x->n_contains) {
        return refuse_unique(u, "not supported beside prefixItems and contains");
    }
    AG_TRY(find_values(u, x->rest));
    const uint32_t close = ag_net_bytes(net, ']', ']', next);
    ag_net_object list = {.other = AG_NET_NOWHERE,
                          .comma = ag_write_comma_rule(w),
                          .close = ag_write_space(w, close),
                          .least = x->least < UINT32_MAX ? (uint32_t)x->least : UINT32_MAX,
                          .most = x->most < UINT32_MAX ? (uint32_t)x->most : 0};
    list.members = ag_calloc(AG_OBJECT_MEMBERS, sizeof *list.members);
    if (!list.members) return AG_FAIL(w->err, NOMEM, "schema of unique items");
    const ag_status st = add_members(u, &list);
    if (st != AG_OK) {
        ag_free(list.members);
        return st;
    }
    const bool possible = list.n >= list.least && list.n > 0;
    uint32_t inside = ag_net_object_start(net, ag_net_object_add(net, &list));
    if (!possible) inside = AG_NET_NOWHERE;
    if (!x->least) inside = ag_net_either(net, inside, close);
    *out =
        inside == AG_NET_NOWHERE ? inside : ag_net_bytes(net, '[', '[', ag_write_space(w, inside));
    return AG_OK;
}
