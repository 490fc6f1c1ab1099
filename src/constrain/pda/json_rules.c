/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/json_rules.h"

#include "core/fail.h"

#include <string.h>

enum { INDENT = 40 }; /* spaces or tabs that a line begins with, at most */

static const ag_net_limits rule_limits = {.ops = 1 << 16,
                                          .text = {.states = 1 << 12, .work = 1 << 20}};

uint32_t ag_json_space(ag_net *net, ag_json_spacing spacing, uint32_t indent, uint32_t next) {
    switch (spacing) {
    case AG_JSON_COMPACT:
        return next;
    case AG_JSON_ANY_SPACE: {
        const uint32_t loop = ag_net_split(net, AG_NET_NOWHERE, next);
        const uint32_t tab = ag_net_bytes(net, '\t', '\n', loop);
        const uint32_t rest = ag_net_either(net, ag_net_bytes(net, '\r', '\r', loop),
                                            ag_net_bytes(net, ' ', ' ', loop));
        ag_net_patch(net, loop, ag_net_either(net, tab, rest));
        return loop;
    }
    case AG_JSON_NEAT:
        break;
    }
    /* Nothing, one space, or a line break and an indent. */
    const uint32_t line = ag_net_bytes(net, '\n', '\n', ag_net_call(net, indent, next));
    return ag_net_either(net, ag_net_either(net, line, ag_net_bytes(net, ' ', ' ', next)), next);
}

static uint32_t any_indent(ag_net *net) {
    const uint32_t end = ag_net_end(net);
    uint32_t at = end;
    for (int i = 0; i < INDENT; i++) {
        const uint32_t one =
            ag_net_either(net, ag_net_bytes(net, ' ', ' ', at), ag_net_bytes(net, '\t', '\t', at));
        at = ag_net_either(net, one, end);
    }
    return at;
}

uint32_t ag_json_number(ag_net *net, uint32_t next) {
    return ag_net_regex(net, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?", next);
}

static uint32_t hex_digit(ag_net *net, uint32_t next) {
    const uint32_t upper = ag_net_bytes(net, 'A', 'F', next),
                   lower = ag_net_bytes(net, 'a', 'f', next);
    return ag_net_either(net, ag_net_bytes(net, '0', '9', next), ag_net_either(net, upper, lower));
}

/* \uXXXX: any character but a half of a pair, or a pair. */
static uint32_t unicode_escape(ag_net *net, uint32_t next) {
    const uint32_t three = hex_digit(net, hex_digit(net, hex_digit(net, next)));
    const uint32_t two = hex_digit(net, hex_digit(net, next));
    uint32_t at =
        ag_net_either(net, ag_net_bytes(net, '0', '9', three), ag_net_bytes(net, 'A', 'C', three));
    at = ag_net_either(net, at, ag_net_bytes(net, 'a', 'c', three));
    at = ag_net_either(net, at, ag_net_bytes(net, 'E', 'F', three));
    at = ag_net_either(net, at, ag_net_bytes(net, 'e', 'f', three));
    uint32_t low =
        ag_net_either(net, ag_net_bytes(net, 'C', 'F', two), ag_net_bytes(net, 'c', 'f', two));
    low = ag_net_either(net, ag_net_literal(net, "\\uD", 3, low),
                        ag_net_literal(net, "\\ud", 3, low));
    low = hex_digit(net, hex_digit(net, low));
    uint32_t d =
        ag_net_either(net, ag_net_bytes(net, '0', '7', two), ag_net_bytes(net, '8', '9', low));
    d = ag_net_either(net, d, ag_net_bytes(net, 'A', 'B', low));
    d = ag_net_either(net, d, ag_net_bytes(net, 'a', 'b', low));
    at = ag_net_either(net, at, ag_net_bytes(net, 'D', 'D', d));
    at = ag_net_either(net, at, ag_net_bytes(net, 'd', 'd', d));
    return ag_net_bytes(net, 'u', 'u', at);
}

/* Any string, in any spelling. */
static uint32_t any_string(ag_net *net, uint32_t next) {
    static const char escapes[] = "\"\\/bfnrt";
    const uint32_t loop = ag_net_split(net, AG_NET_NOWHERE, ag_net_bytes(net, '"', '"', next));
    uint32_t at = unicode_escape(net, loop);
    for (const char *e = escapes; *e; e++) {
        at = ag_net_either(net, at, ag_net_bytes(net, (uint8_t)*e, (uint8_t)*e, loop));
    }
    at = ag_net_bytes(net, '\\', '\\', at);
    at = ag_net_either(net, at, ag_net_chars(net, 0x20, 0x21, loop));
    at = ag_net_either(net, at, ag_net_chars(net, 0x23, 0x5B, loop));
    at = ag_net_either(net, at, ag_net_chars(net, 0x5D, AG_CHAR_MOST, loop));
    ag_net_patch(net, loop, at);
    return ag_net_bytes(net, '"', '"', loop);
}

/* Any string in the one spelling that names are compared in. */
static uint32_t any_name(ag_net *net, uint32_t next) {
    ag_text_dfa all = {0};
    ag_error err;
    ag_net_fail(net, ag_text_dfa_lengths(&all, 0, SIZE_MAX, &net->limits.text, &err), &err);
    const uint32_t close = ag_net_bytes(net, '"', '"', next);
    const uint32_t inside = ag_net_dfa(net, &all, AG_FORM_JSON, close);
    ag_text_dfa_free(&all);
    return ag_net_bytes(net, '"', '"', inside);
}

/* open, items with commas between, close; `item` goes on at the loop. */
static uint32_t any_list(ag_json_rules *r, char open, char close, bool named) {
    ag_net *net = &r->net;
    const ag_json_spacing sp = r->spacing;
    const uint32_t end = ag_net_bytes(net, (uint8_t)close, (uint8_t)close, ag_net_end(net));
    const uint32_t spaced_end = ag_json_space(net, sp, r->indent, end);
    const uint32_t more = ag_net_split(net, AG_NET_NOWHERE, spaced_end);
    uint32_t item = ag_net_call(net, r->value, more);
    if (named) {
        item = ag_net_bytes(net, ':', ':', ag_json_space(net, sp, r->indent, item));
        item = ag_net_call(net, r->string, item);
    }
    ag_net_patch(net, more, ag_net_bytes(net, ',', ',', ag_json_space(net, sp, r->indent, item)));
    const uint32_t first = ag_json_space(net, sp, r->indent, ag_net_either(net, item, end));
    return ag_net_bytes(net, (uint8_t)open, (uint8_t)open, first);
}

static uint32_t any_value(ag_json_rules *r) {
    ag_net *net = &r->net;
    const uint32_t end = ag_net_end(net);
    uint32_t at = ag_json_number(net, end);
    at = ag_net_either(net, at, ag_net_literal(net, "true", 4, end));
    at = ag_net_either(net, at, ag_net_literal(net, "false", 5, end));
    at = ag_net_either(net, at, ag_net_literal(net, "null", 4, end));
    at = ag_net_either(net, at, ag_net_call(net, r->string, end));
    at = ag_net_either(net, at, ag_net_call(net, r->object, end));
    return ag_net_either(net, at, ag_net_call(net, r->array, end));
}

static void write_rules(ag_json_rules *r) {
    ag_net *net = &r->net;
    const ag_net_rule none = {.kind = AG_RULE_PLAIN, .start = AG_NET_NOWHERE};
    r->value = ag_net_rule_add(net, none);
    r->object = ag_net_rule_add(net, none);
    r->array = ag_net_rule_add(net, none);
    r->string = ag_net_rule_add(net, none);
    r->name = ag_net_rule_add(net, none);
    r->indent = ag_net_rule_add(net, none);
    ag_net_rule_start(net, r->indent, any_indent(net));
    ag_net_rule_start(net, r->string, any_string(net, ag_net_end(net)));
    ag_net_rule_start(net, r->name, any_name(net, ag_net_end(net)));
    ag_net_rule_start(net, r->object, any_list(r, '{', '}', true));
    ag_net_rule_start(net, r->array, any_list(r, '[', ']', false));
    ag_net_rule_start(net, r->value, any_value(r));
}

/* Behind the opening quote. */
static uint32_t find_inside(const ag_json_rules *r, uint32_t start) {
    const ag_net_state *x = &r->states.states[start & ~AG_NET_SHARED];
    return ag_net_states_step(&r->states, x, '"');
}

static ag_status expand_all(ag_json_rules *r, ag_error *err) {
    ag_net_states *s = &r->states;
    uint32_t start;
    for (uint32_t rule = 0; rule < r->net.n_rules; rule++) {
        AG_TRY(ag_net_states_start(s, rule, &start, err));
    }
    for (uint32_t i = 0; i < s->n_states; i++) AG_TRY(ag_net_states_expand(s, i, err));
    AG_TRY(ag_net_states_start(s, r->string, &r->string_start, err));
    AG_TRY(ag_net_states_start(s, r->name, &r->name_start, err));
    r->string_inside = find_inside(r, r->string_start);
    r->name_inside = find_inside(r, r->name_start);
    return AG_OK;
}

ag_status ag_json_rules_make(ag_json_rules *r, ag_json_spacing spacing, ag_error *err) {
    *r = (ag_json_rules){.spacing = spacing};
    ag_net_init(&r->net, &rule_limits, AG_NET_SHARED);
    write_rules(r);
    AG_TRY(ag_net_finish(&r->net, NULL, err));
    const ag_state_limits limits = {
        .states = 1 << 16, .bytes = SIZE_MAX, .work = SIZE_MAX, .total_work = SIZE_MAX};
    AG_TRY(ag_net_states_init(&r->states, &r->net, &limits, err));
    return expand_all(r, err);
}

void ag_json_rules_free(ag_json_rules *r) {
    ag_net_states_free(&r->states);
    ag_net_free(&r->net);
}
