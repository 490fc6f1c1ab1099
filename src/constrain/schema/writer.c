/* SPDX-License-Identifier: Apache-2.0 */
/* Goals become rules: a value is a call, so what is used twice is written once. */
#include "constrain/schema/writer.h"
#include "constrain/schema/write_number.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum { MOST_CHARACTERS = 512 }; /* of a string with a pattern that may have more */

/* The rule of a goal that is neither anything nor never. */
static ag_status rule_of(ag_schema_writer *w, ag_goal goal, uint32_t *rule) {
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

bool ag_schema_is_marked(const ag_schema_writer *w) {
    return w->notation && w->notation->values == AG_SPELL_MARKED;
}

ag_status ag_schema_call_goal(ag_schema_writer *w, ag_goal goal, uint32_t next, uint32_t *out) {
    *out = AG_NET_NOWHERE;
    if (goal == AG_GOAL_NEVER) return AG_OK;
    uint32_t rule = w->json->value;
    if (goal == AG_GOAL_ANY && ag_schema_is_marked(w)) return ag_schema_marked_value(w, next, out);
    if (goal != AG_GOAL_ANY) AG_TRY(rule_of(w, goal, &rule));
    *out = ag_net_call(w->net, rule, next);
    return AG_OK;
}

uint32_t ag_write_space(ag_schema_writer *w, uint32_t next) {
    return ag_json_space(w->net, w->json->spacing, w->json->indent, next);
}

uint32_t ag_write_comma_rule(ag_schema_writer *w) {
    if (w->comma == AG_NET_NOWHERE) {
        const uint32_t start =
            ag_net_bytes(w->net, ',', ',', ag_write_space(w, ag_net_end(w->net)));
        w->comma = ag_net_rule_add(w->net, (ag_net_rule){.kind = AG_RULE_PLAIN, .start = start});
    }
    return w->comma;
}

uint32_t ag_write_comma(ag_schema_writer *w, bool many, uint32_t next) {
    if (!many) return ag_net_bytes(w->net, ',', ',', ag_write_space(w, next));
    return ag_net_call(w->net, ag_write_comma_rule(w), next);
}

/* ---- strings ---- */

/* A text of the automaton, between quotes. */
uint32_t ag_write_quoted(ag_schema_writer *w, const ag_text_dfa *d, uint32_t next) {
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

static ag_status write_string(ag_schema_writer *w, const ag_string_shape *x, uint32_t next,
                              uint32_t *out) {
    ag_net *net = w->net;
    if (ag_schema_is_marked(w)) return ag_schema_marked_string(w, x, next, out);
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
    *out = ag_write_quoted(w, d, next);
    return AG_OK;
}

/* ---- shapes, goals ---- */

static uint32_t write_word(ag_schema_writer *w, const char *json, const char *python,
                           uint32_t next) {
    const bool is_python = w->notation && w->notation->values == AG_SPELL_PYTHON;
    const char *word = is_python ? python : json;
    return ag_net_literal(w->net, word, strlen(word), next);
}

ag_status ag_schema_write_shape(ag_schema_writer *w, const ag_shape *x, uint32_t next,
                                uint32_t *out) {
    ag_net *net = w->net;
    if (x == &ag_any_shape && ag_schema_is_marked(w)) return ag_schema_marked_value(w, next, out);
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
            const bool avoids = x->number->n_avoid > 0;
            return ag_schema_unsupported(&w->s, w->schema,
                                         x->number->step != 0 || avoids ? "multipleOf" : "minimum",
                                         avoids ? "no multiples of several numbers, or with limits"
                                                : "a number with too many digits");
        }
        way = ag_net_either(net, way, one);
    }
    if (x->string) {
        AG_TRY(write_string(w, x->string, next, &one));
        way = ag_net_either(net, way, one);
    }
    if (x->array) {
        AG_TRY(ag_write_array(w, x->array, next, &one));
        way = ag_net_either(net, way, one);
    }
    if (x->object) {
        AG_TRY(ag_write_object(w, x->object, next, &one));
        way = ag_net_either(net, way, one);
    }
    *out = way;
    return AG_OK;
}

static ag_status write_goal(ag_schema_writer *w, ag_goal goal) {
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

static ag_status write_all(ag_schema_writer *w, uint32_t *start) {
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
    ag_schema_writer w = {.net = net,
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
