/* SPDX-License-Identifier: Apache-2.0 */
/* Goals become rules: a value is a call, so what is used twice is written once. */
#include "constrain/number_net.h"
#include "constrain/schema_writer.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum {
    MANY_ITEMS = 16,       /* from here on the comma between items is a rule of its own */
    MOST_ITEMS = 1 << 13,  /* of an array with more, as many are written at most */
    MOST_CHARACTERS = 512, /* the same of a string with a pattern */
    MOST_OTHERS = 64,      /* the same of properties without a name, if there is a maximum */
};

typedef ag_schema_writer writer;

/* The rule of a goal that is neither anything nor never. */
static ag_status rule_of(writer *w, ag_goal goal, uint32_t *rule) {
    if (goal >= w->n_rules) {
        void *p = w->rules;
        ag_status st = ag_array_grow(&p, &w->rules_cap, goal + 1, sizeof *w->rules, w->err);
        w->rules = p;
        if (st != AG_OK) return st;
        memset(w->rules + w->n_rules, 0, (goal + 1 - w->n_rules) * sizeof *w->rules);
        w->n_rules = goal + 1;
    }
    if (!w->rules[goal]) {
        void *p = w->queue;
        ag_status st = ag_array_grow(&p, &w->queue_cap, w->n_queue + 1, sizeof *w->queue, w->err);
        w->queue = p;
        if (st != AG_OK) return st;
        w->queue[w->n_queue++] = goal;
        const ag_net_rule none = {.kind = AG_RULE_PLAIN, .start = AG_NET_NOWHERE};
        w->rules[goal] = ag_net_rule_add(w->net, none) + 1;
    }
    *rule = w->rules[goal] - 1;
    return AG_OK;
}

static bool is_marked(const writer *w) {
    return w->notation && w->notation->values == AG_SPELL_MARKED;
}

ag_status ag_schema_call_goal(writer *w, ag_goal goal, uint32_t next, uint32_t *out) {
    *out = AG_NET_NOWHERE;
    if (goal == AG_GOAL_NEVER) return AG_OK;
    uint32_t rule = w->json->value;
    if (goal == AG_GOAL_ANY && is_marked(w)) return ag_schema_marked_value(w, next, out);
    if (goal != AG_GOAL_ANY) AG_TRY(rule_of(w, goal, &rule));
    *out = ag_net_call(w->net, rule, next);
    return AG_OK;
}

static uint32_t space(writer *w, uint32_t next) {
    return ag_json_space(w->net, w->json->spacing, w->json->indent, next);
}

/* ---- strings ---- */

/* A text of the automaton, between quotes. */
static uint32_t quoted(writer *w, const ag_text_dfa *d, uint32_t next) {
    const uint32_t close = ag_net_bytes(w->net, '"', '"', next);
    const uint32_t text = ag_net_dfa(w->net, d, AG_FORM_JSON, close);
    return text == AG_NET_NOWHERE ? text : ag_net_bytes(w->net, '"', '"', text);
}

static uint32_t count_of(size_t n) { return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX; }

/* Lengths multiply the states: where the pattern alone does not bound them, what is longer is not
 * written. */
ag_string_shape ag_schema_shorter(const ag_string_shape *x) {
    ag_string_shape shorter = *x;
    if (x->most != SIZE_MAX && x->most > MOST_CHARACTERS) {
        shorter.most = x->least > MOST_CHARACTERS ? x->least : MOST_CHARACTERS;
    }
    return shorter;
}

static ag_status write_string(writer *w, const ag_string_shape *x, uint32_t next, uint32_t *out) {
    ag_net *net = w->net;
    if (is_marked(w)) return ag_schema_marked_string(w, x, next, out);
    if (!x->texts && !x->least && x->most == SIZE_MAX) {
        *out = ag_net_call(net, w->json->string, next);
        return AG_OK;
    }
    if (!x->texts) {
        const ag_net_rule rule = {
            .kind = AG_RULE_LENGTH, .least = count_of(x->least), .most = count_of(x->most)};
        *out = ag_net_call(net, ag_net_rule_add(net, rule), next);
        return AG_OK;
    }
    const ag_text_dfa *d;
    const ag_string_shape shorter = ag_schema_shorter(x);
    AG_TRY(ag_string_dfa(&w->s, &shorter, &d));
    *out = quoted(w, d, next);
    return AG_OK;
}

/* ---- arrays ---- */

static uint32_t comma_rule(writer *w) {
    if (w->comma == AG_NET_NOWHERE) {
        const uint32_t start = ag_net_bytes(w->net, ',', ',', space(w, ag_net_end(w->net)));
        w->comma = ag_net_rule_add(w->net, (ag_net_rule){.kind = AG_RULE_PLAIN, .start = start});
    }
    return w->comma;
}

static uint32_t comma(writer *w, bool many, uint32_t next) {
    if (!many) return ag_net_bytes(w->net, ',', ',', space(w, next));
    return ag_net_call(w->net, comma_rule(w), next);
}

static ag_goal goal_of_item(const ag_array_shape *x, size_t i) {
    return i < x->n_prefix ? x->prefix[i] : x->rest;
}

/* Backwards from the last item that is written on its own. */
static ag_status write_array(writer *w, const ag_array_shape *x, uint32_t next, uint32_t *out) {
    ag_net *net = w->net;
    if (x == &ag_any_array && is_marked(w)) return ag_schema_marked_array(w, next, out);
    if (x == &ag_any_array) {
        *out = ag_net_call(net, w->json->array, next);
        return AG_OK;
    }
    size_t most = x->most, fixed = x->n_prefix > x->least ? x->n_prefix : x->least;
    if (fixed > MOST_ITEMS) {
        char place[AG_SCHEMA_PLACE];
        return AG_FAIL(w->err, LIMIT, "schema: %s: %zu items, more than %d",
                       ag_schema_doc_place(&w->s.doc, w->schema, "minItems", place), fixed,
                       MOST_ITEMS);
    }
    const bool open_end = most == SIZE_MAX || most > MOST_ITEMS + fixed;
    if (most != SIZE_MAX && open_end) most = MOST_ITEMS;
    const uint32_t close = ag_net_bytes(net, ']', ']', next), spaced_close = space(w, close);
    const bool loops = x->most == SIZE_MAX;
    const size_t last = loops ? fixed : most;
    const bool many = last > MANY_ITEMS;
    uint32_t after = spaced_close; /* behind `i` items, i > 0 */
    uint32_t item = AG_NET_NOWHERE;
    if (loops) {
        const uint32_t loop = ag_net_split(net, AG_NET_NOWHERE, spaced_close);
        AG_TRY(ag_schema_call_goal(w, x->rest, loop, &item));
        ag_net_patch(net, loop, item == AG_NET_NOWHERE ? item : comma(w, many, item));
        after = loop;
    }
    for (size_t i = last; i-- > 0 && net->status == AG_OK;) {
        AG_TRY(ag_schema_call_goal(w, goal_of_item(x, i), after, &item));
        if (i == 0) break;
        const uint32_t more = item == AG_NET_NOWHERE ? item : comma(w, many, item);
        after = ag_net_either(net, more, i >= x->least ? spaced_close : AG_NET_NOWHERE);
        if (after == AG_NET_NOWHERE) break;
    }
    if (last == 0 && !loops) item = AG_NET_NOWHERE;
    const uint32_t empty = x->least == 0 ? close : AG_NET_NOWHERE;
    const uint32_t inside = ag_net_either(net, item, empty);
    *out = inside == AG_NET_NOWHERE ? inside : ag_net_bytes(net, '[', '[', space(w, inside));
    return AG_OK;
}

/* ---- objects ---- */

/* An object is written property by property, with a count of those there: 0 to n_counts - 1, the
 * last of them also for more. */
typedef struct object {
    writer *w;
    const ag_object_shape *x;
    const ag_property **list; /* that may be there */
    size_t n;
    size_t n_counts;
    bool counted; /* how many properties there are matters */
    size_t least; /* properties; 0 where those that are required are enough */
    uint32_t close, spaced_close;
    uint32_t names;     /* the guard of those that are taken */
    uint32_t name_rule; /* any name but those; NOWHERE: not yet */
    uint32_t *after;    /* [n_counts] behind property i */
    uint32_t loop;      /* behind another property, without a maximum; NOWHERE: not yet */
} object;

static bool is_enough(const object *o, size_t count) { return count >= o->least; }

static size_t count_up(const object *o, size_t count) {
    return count + 1 < o->n_counts ? count + 1 : count;
}

static bool is_full(const object *o, size_t count) { return count >= o->x->most; }

/* A name of this class, ":", a value, then next. */
static ag_status write_other(object *o, const ag_name_class *c, uint32_t next, uint32_t *out) {
    writer *w = o->w;
    ag_net *net = w->net;
    uint32_t value;
    AG_TRY(ag_schema_call_goal(w, c->goal, next, &value));
    *out = AG_NET_NOWHERE;
    if (value == AG_NET_NOWHERE) return AG_OK;
    const uint32_t colon = ag_net_bytes(net, ':', ':', space(w, value));
    if (!c->names && !o->x->names) {
        if (o->name_rule == AG_NET_NOWHERE) {
            const ag_net_rule rule = {.kind = AG_RULE_NAME, .guard = o->names};
            o->name_rule = ag_net_rule_add(net, rule);
        }
        *out = ag_net_call(net, o->name_rule, colon);
        return AG_OK;
    }
    /* Names that are taken go out of the automaton. */
    ag_shaper *s = &w->s;
    const size_t n = o->x->n_properties;
    const char **texts = ag_shaper_get(s, n, sizeof *texts);
    size_t *lens = ag_shaper_get(s, n, sizeof *lens);
    if (!texts || !lens) return ag_shaper_no_memory(s);
    for (size_t i = 0; i < n; i++) {
        texts[i] = o->x->properties[i].name;
        lens[i] = o->x->properties[i].len;
    }
    ag_text_dfa taken = {0}, both = {0}, left = {0};
    const ag_text_dfa *names = c->names ? c->names : o->x->names;
    ag_status st = ag_text_dfa_texts(&taken, texts, lens, n, &s->limits, w->err);
    if (st == AG_OK && c->names && o->x->names) {
        st = ag_text_dfa_combine(&both, c->names, o->x->names, AG_TEXT_AND, &s->limits, w->err);
        names = &both;
    }
    if (st == AG_OK) {
        st = ag_text_dfa_combine(&left, names, &taken, AG_TEXT_EXCEPT, &s->limits, w->err);
    }
    if (st == AG_OK) *out = quoted(w, &left, colon);
    ag_text_dfa_free(&taken);
    ag_text_dfa_free(&both);
    ag_text_dfa_free(&left);
    return st;
}

/* Any of the other properties, then next. */
static ag_status write_others(object *o, uint32_t next, uint32_t *out) {
    *out = AG_NET_NOWHERE;
    if (next == AG_NET_NOWHERE) return AG_OK;
    for (size_t i = 0; i < o->x->n_others; i++) {
        uint32_t one;
        AG_TRY(write_other(o, &o->x->others[i], next, &one));
        *out = ag_net_either(o->w->net, *out, one);
    }
    return AG_OK;
}

/* Other properties behind `count` of them, the first of which makes one more: two of them may have
 * one name, so no more than one is sure to count. */
static ag_status write_first_other(object *o, size_t count, uint32_t *out) {
    ag_net *net = o->w->net;
    *out = AG_NET_NOWHERE;
    if (is_full(o, count) || !o->x->n_others || !is_enough(o, count + 1)) return AG_OK;
    uint32_t after = o->spaced_close;
    if (o->x->most == SIZE_MAX) {
        if (o->loop == AG_NET_NOWHERE) {
            const uint32_t loop = ag_net_split(net, AG_NET_NOWHERE, o->spaced_close);
            uint32_t more;
            AG_TRY(write_others(o, loop, &more));
            if (more != AG_NET_NOWHERE) more = comma(o->w, false, more);
            ag_net_patch(net, loop, more);
            o->loop = loop;
        }
        return write_others(o, o->loop, out);
    }
    const size_t most = o->x->most - count;
    for (size_t left = most < MOST_OTHERS ? most : MOST_OTHERS; left-- > 0;) {
        /* Behind so many others that `left` may still come. */
        AG_TRY(write_others(o, after, out));
        if (left) {
            after = ag_net_either(net, *out == AG_NET_NOWHERE ? *out : comma(o->w, true, *out),
                                  o->spaced_close);
        }
        if (net->status != AG_OK) break;
    }
    return AG_OK;
}

/* The name, ":", the value, then next. */
static ag_status write_property(object *o, const ag_property *p, uint32_t next, uint32_t *out) {
    ag_net *net = o->w->net;
    *out = AG_NET_NOWHERE;
    if (next == AG_NET_NOWHERE) return AG_OK;
    uint32_t at;
    AG_TRY(ag_schema_call_goal(o->w, p->goal, next, &at));
    at = ag_net_bytes(net, ':', ':', space(o->w, at));
    at = ag_net_bytes(net, '"', '"', at);
    at = ag_net_json_text(net, p->name, p->len, at);
    *out = ag_net_bytes(net, '"', '"', at);
    return AG_OK;
}

/* o->after[count] for what follows property i becomes that for what follows i - 1; names[count]:
 * property i or a later one, without a comma. */
static ag_status write_properties(object *o, uint32_t *names) {
    ag_net *net = o->w->net;
    for (size_t c = 0; c < o->n_counts; c++) { AG_TRY(write_first_other(o, c, &names[c])); }
    bool may_close = true; /* no property from i on is required */
    for (size_t i = o->n + 1; i-- > 0 && net->status == AG_OK;) {
        /* o->after[c]: c properties are there, i is the next that may come. */
        for (size_t c = 0; c < o->n_counts; c++) {
            const uint32_t more =
                names[c] == AG_NET_NOWHERE ? names[c] : comma(o->w, false, names[c]);
            const bool closes = may_close && is_enough(o, c);
            o->after[c] = ag_net_either(net, more, closes ? o->spaced_close : AG_NET_NOWHERE);
        }
        if (i == 0) break;
        const ag_property *p = o->list[i - 1];
        for (size_t c = 0; c < o->n_counts; c++) {
            uint32_t one = AG_NET_NOWHERE;
            if (!is_full(o, c)) AG_TRY(write_property(o, p, o->after[count_up(o, c)], &one));
            names[c] = ag_net_either(net, one, p->required ? AG_NET_NOWHERE : names[c]);
        }
        may_close &= !p->required;
    }
    return AG_OK;
}

static ag_status prepare_object(object *o) {
    writer *w = o->w;
    const ag_object_shape *x = o->x;
    size_t required = 0;
    o->list = ag_shaper_get(&w->s, x->n_properties, sizeof *o->list);
    if (!o->list) return ag_shaper_no_memory(&w->s);
    o->names = ag_net_names(w->net);
    for (size_t i = 0; i < x->n_properties; i++) {
        const ag_property *p = &x->properties[i];
        ag_net_names_add(w->net, o->names, p->name, p->len);
        if (p->goal != AG_GOAL_NEVER) o->list[o->n++] = p;
        required += p->required;
    }
    if (x->least > o->n + (x->n_others > 0)) {
        return ag_schema_unsupported(&w->s, w->schema, "minProperties",
                                     "two properties without names cannot be told apart");
    }
    const bool counts =
        x->least > required || (x->most != SIZE_MAX && (x->most < o->n || x->n_others));
    o->counted = counts;
    o->least = counts ? x->least : 0;
    o->n_counts = 2;
    if (counts) o->n_counts = (x->most != SIZE_MAX ? x->most : x->least) + 1;
    if (o->n_counts > o->n + 1) o->n_counts = o->n + 1;
    if (o->n_counts < 2) o->n_counts = 2;
    if (o->n_counts * (o->n + 1) > w->net->limits.ops) {
        return AG_FAIL(w->err, LIMIT, "schema: an object with counts up to %zu", o->n_counts - 1);
    }
    o->after = ag_shaper_get(&w->s, o->n_counts, sizeof *o->after);
    return o->after ? AG_OK : ag_shaper_no_memory(&w->s);
}

/* In any order: each property is a rule. */
static ag_status write_in_any_order(object *o, uint32_t *out) {
    ag_net *net = o->w->net;
    ag_net_object any = {.other = AG_NET_NOWHERE, .close = o->spaced_close};
    any.members = ag_calloc(o->n, sizeof *any.members);
    if (!any.members) return AG_FAIL(o->w->err, NOMEM, "a schema");
    const uint32_t end = ag_net_end(net);
    ag_status st = AG_OK;
    uint32_t start;
    for (size_t i = 0; i < o->n && st == AG_OK; i++) {
        st = write_property(o, o->list[i], end, &start);
        const ag_net_rule rule = {.kind = AG_RULE_PLAIN, .start = start};
        any.members[any.n++] = (ag_net_member){ag_net_rule_add(net, rule), o->list[i]->required};
    }
    if (st == AG_OK && o->x->n_others) {
        st = write_others(o, end, &start);
        any.other = ag_net_rule_add(net, (ag_net_rule){.kind = AG_RULE_PLAIN, .start = start});
    }
    any.comma = comma_rule(o->w);
    if (st != AG_OK) {
        ag_free(any.members);
        return st;
    }
    *out = ag_net_object_start(net, ag_net_object_add(net, &any));
    return AG_OK;
}

static ag_status write_object(writer *w, const ag_object_shape *x, uint32_t next, uint32_t *out) {
    ag_net *net = w->net;
    if (is_marked(w)) return ag_schema_marked_object(w, x, next, out);
    if (x == &ag_any_object) {
        *out = ag_net_call(net, w->json->object, next);
        return AG_OK;
    }
    object o = {.w = w, .x = x, .name_rule = AG_NET_NOWHERE, .loop = AG_NET_NOWHERE};
    o.close = ag_net_bytes(net, '}', '}', next);
    o.spaced_close = space(w, o.close);
    AG_TRY(prepare_object(&o));
    uint32_t *names = ag_shaper_get(&w->s, o.n_counts, sizeof *names);
    if (!names) return ag_shaper_no_memory(&w->s);
    if (w->any_order && !o.counted && o.n <= AG_OBJECT_MEMBERS) {
        AG_TRY(write_in_any_order(&o, &names[0]));
    } else {
        AG_TRY(write_properties(&o, names));
    }
    bool may_be_empty = x->least == 0;
    for (size_t i = 0; i < o.n; i++) may_be_empty &= !o.list[i]->required;
    const uint32_t inside = ag_net_either(net, names[0], may_be_empty ? o.close : AG_NET_NOWHERE);
    *out = inside == AG_NET_NOWHERE ? inside : ag_net_bytes(net, '{', '{', space(w, inside));
    return AG_OK;
}

/* ---- shapes, goals ---- */

static uint32_t write_word(writer *w, const char *json, const char *python, uint32_t next) {
    const bool is_python = w->notation && w->notation->values == AG_SPELL_PYTHON;
    const char *word = is_python ? python : json;
    return ag_net_literal(w->net, word, strlen(word), next);
}

ag_status ag_schema_write_shape(writer *w, const ag_shape *x, uint32_t next, uint32_t *out) {
    ag_net *net = w->net;
    if (x == &ag_any_shape && is_marked(w)) return ag_schema_marked_value(w, next, out);
    if (x == &ag_any_shape) {
        *out = ag_net_call(net, w->json->value, next);
        return AG_OK;
    }
    uint32_t way = AG_NET_NOWHERE, one = AG_NET_NOWHERE;
    if (x->null) way = write_word(w, "null", "None", next);
    if (x->yes) way = ag_net_either(net, way, write_word(w, "true", "True", next));
    if (x->no) way = ag_net_either(net, way, write_word(w, "false", "False", next));
    if (x->number) {
        bool unsupported;
        one = ag_net_number(net, x->number, next, &unsupported);
        if (unsupported) {
            return ag_schema_unsupported(&w->s, w->schema,
                                         x->number->step != 0 ? "multipleOf" : "minimum",
                                         "a number with too many digits");
        }
        way = ag_net_either(net, way, one);
    }
    if (x->string) {
        AG_TRY(write_string(w, x->string, next, &one));
        way = ag_net_either(net, way, one);
    }
    if (x->array) {
        AG_TRY(write_array(w, x->array, next, &one));
        way = ag_net_either(net, way, one);
    }
    if (x->object) {
        AG_TRY(write_object(w, x->object, next, &one));
        way = ag_net_either(net, way, one);
    }
    *out = way;
    return AG_OK;
}

static ag_status write_goal(writer *w, ag_goal goal) {
    ag_net *net = w->net;
    const uint32_t end = ag_net_end(net);
    uint32_t start = AG_NET_NOWHERE;
    ag_ways ways;
    size_t n;
    w->schema = ag_interner_list(&w->s.goals, goal, &n)[0] / 2;
    AG_TRY(ag_goal_expand(&w->s, goal, &ways));
    for (size_t i = 0; i < ways.n; i++) {
        uint32_t one = AG_NET_NOWHERE;
        if (ways.list[i].shape) AG_TRY(ag_schema_write_shape(w, ways.list[i].shape, end, &one));
        else AG_TRY(ag_schema_call_goal(w, ways.list[i].goal, end, &one));
        start = ag_net_either(net, start, one);
    }
    ag_net_rule_start(net, w->rules[goal] - 1, start);
    return AG_OK;
}

static ag_status write_all(writer *w, uint32_t *start) {
    ag_goal root;
    AG_TRY(ag_goal_of(&w->s, 0, false, &root));
    if (w->notation) AG_TRY(ag_schema_write_arguments(w, root, ag_net_end(w->net), start));
    else AG_TRY(ag_schema_call_goal(w, root, ag_net_end(w->net), start));
    while (w->n_queue && w->net->status == AG_OK) AG_TRY(write_goal(w, w->queue[--w->n_queue]));
    return AG_OK;
}

ag_status ag_schema_compile(ag_net *net, const ag_json_rules *json, const char *text, size_t n,
                            const ag_schema_notation *notation, bool any_order, uint32_t *start,
                            ag_error *err) {
    writer w = {.net = net,
                .json = json,
                .notation = notation,
                .any_order = any_order,
                .comma = AG_NET_NOWHERE,
                .marked_value = AG_NET_NOWHERE,
                .err = err};
    *start = AG_NET_NOWHERE;
    ag_status st = ag_shaper_init(&w.s, text, n, &net->limits.text, err);
    if (st == AG_OK) st = write_all(&w, start);
    ag_shaper_free(&w.s);
    ag_free(w.rules);
    ag_free(w.queue);
    return st;
}
