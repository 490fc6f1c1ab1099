/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/json_rules.h"

#include "core/fail.h"

#include <string.h>

static const ag_pda_limits rule_limits = {.insts = 1 << 16,
                                          .text = {.states = 1 << 12, .work = 1 << 20}};

uint32_t ag_json_space(ag_pda *pda, ag_json_spacing spacing, uint32_t indent, uint32_t next) {
    switch (spacing) {
    case AG_JSON_COMPACT:
        return next;
    case AG_JSON_ANY_SPACE: {
        const uint32_t loop = ag_pda_split(pda, AG_PDA_UNSET, next);
        const uint32_t tab = ag_pda_bytes(pda, '\t', '\n', loop);
        const uint32_t others =
            ag_pda_either(pda, ag_pda_byte(pda, '\r', loop), ag_pda_byte(pda, ' ', loop));
        ag_pda_patch(pda, loop, ag_pda_either(pda, tab, others));
        return loop;
    }
    case AG_JSON_NEAT:
        break;
    }
    /* Nothing, one space, or a line break and an indent. */
    const uint32_t line = ag_pda_byte(pda, '\n', ag_pda_call(pda, indent, next));
    return ag_pda_either(pda, ag_pda_either(pda, line, ag_pda_byte(pda, ' ', next)), next);
}

#define STRING_OF(x) #x
#define TEXT_OF(x) STRING_OF(x)
#define INTEGER "-?(0|[1-9][0-9]{0," TEXT_OF(AG_JSON_MORE_DIGITS) "})"

/* Any integer, and any number. */
static const char any_integer[] = INTEGER;
static const char any_number[] =
    INTEGER "(\\.[0-9]{1," TEXT_OF(AG_JSON_DIGITS_MAX) "})?([eE][+-]?[0-9]{1,3})?";

#define HEX "[0-9A-Fa-f]"
/* \\uXXXX: a character that is not a surrogate, or a surrogate pair. */
#define UNICODE                                                                                \
    "u([0-9A-CEFa-cef]" HEX "{3}|[Dd]([0-7]" HEX "{2}|[89ABab]" HEX "{2}\\\\u[Dd][C-Fc-f]" HEX \
    "{2}))"
/* Any string, in any spelling. */
static const char any_string[] = "\"([ !#-\\[\\]-\\u{10FFFF}]|\\\\([\"\\\\/bfnrt]|" UNICODE "))*\"";

/* Writes any string, in the one spelling in which names are compared. */
static uint32_t any_name(ag_pda *pda, uint32_t next) {
    ag_text_dfa all = {0};
    ag_error err;
    ag_pda_fail(pda, ag_text_dfa_lengths(&all, 0, SIZE_MAX, &pda->limits.text, &err), &err);
    const uint32_t close = ag_pda_byte(pda, '"', next);
    const uint32_t inside = ag_pda_dfa(pda, &all, AG_FORM_JSON, close);
    ag_text_dfa_free(&all);
    return ag_pda_byte(pda, '"', inside);
}

/* Writes open, items with commas between them, close. Items are name and value if `named`. */
static uint32_t any_list(ag_json_rules *r, char open, char close, bool named) {
    ag_pda *pda = &r->pda;
    const ag_json_spacing sp = r->spacing;
    const uint32_t end = ag_pda_byte(pda, close, ag_pda_end(pda));
    const uint32_t spaced_end = ag_json_space(pda, sp, r->indent, end);
    const uint32_t more = ag_pda_split(pda, AG_PDA_UNSET, spaced_end);
    uint32_t item = ag_pda_call(pda, r->value, more);
    if (named) {
        item = ag_pda_byte(pda, ':', ag_json_space(pda, sp, r->indent, item));
        item = ag_pda_call(pda, r->string, item);
    }
    ag_pda_patch(pda, more, ag_pda_byte(pda, ',', ag_json_space(pda, sp, r->indent, item)));
    const uint32_t first = ag_json_space(pda, sp, r->indent, ag_pda_either(pda, item, end));
    return ag_pda_byte(pda, open, first);
}

static uint32_t any_value(ag_json_rules *r) {
    ag_pda *pda = &r->pda;
    const uint32_t end = ag_pda_end(pda);
    uint32_t at = ag_pda_call(pda, r->number, end);
    at = ag_pda_either(pda, at, ag_pda_literal(pda, "true", 4, end));
    at = ag_pda_either(pda, at, ag_pda_literal(pda, "false", 5, end));
    at = ag_pda_either(pda, at, ag_pda_literal(pda, "null", 4, end));
    at = ag_pda_either(pda, at, ag_pda_call(pda, r->string, end));
    at = ag_pda_either(pda, at, ag_pda_call(pda, r->object, end));
    return ag_pda_either(pda, at, ag_pda_call(pda, r->array, end));
}

static void write_rules(ag_json_rules *r) {
    ag_pda *pda = &r->pda;
    r->value = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    r->object = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    r->array = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    r->string = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    r->name = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    r->integer = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    r->number = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    r->indent = ag_pda_rule_plain(pda, AG_PDA_UNSET);
    ag_pda_rule_set_start(pda, r->indent, ag_pda_regex(pda, "[ \\t]{0,40}", ag_pda_end(pda)));
    ag_pda_rule_set_start(pda, r->string, ag_pda_regex(pda, any_string, ag_pda_end(pda)));
    ag_pda_rule_set_start(pda, r->name, any_name(pda, ag_pda_end(pda)));
    ag_pda_rule_set_start(pda, r->integer, ag_pda_regex(pda, any_integer, ag_pda_end(pda)));
    ag_pda_rule_set_start(pda, r->number, ag_pda_regex(pda, any_number, ag_pda_end(pda)));
    ag_pda_rule_set_start(pda, r->object, any_list(r, '{', '}', true));
    ag_pda_rule_set_start(pda, r->array, any_list(r, '[', ']', false));
    ag_pda_rule_set_start(pda, r->value, any_value(r));
}

/* Returns the state after the opening quote. */
static uint32_t find_inside(const ag_json_rules *r, uint32_t start) {
    const ag_lazy_state *x = &r->dfa.states[start & ~AG_PDA_SHARED];
    return ag_lazy_dfa_step(&r->dfa, x, '"');
}

static ag_status expand_all(ag_json_rules *r, ag_error *err) {
    ag_lazy_dfa *s = &r->dfa;
    uint32_t start;
    for (uint32_t rule = 0; rule < r->pda.n_rules; rule++) {
        AG_TRY(ag_lazy_dfa_start(s, rule, &start, err));
    }
    for (uint32_t i = 0; i < s->n_states; i++) AG_TRY(ag_lazy_dfa_expand(s, i, err));
    AG_TRY(ag_lazy_dfa_start(s, r->string, &r->string_start, err));
    AG_TRY(ag_lazy_dfa_start(s, r->name, &r->name_start, err));
    r->string_inside = find_inside(r, r->string_start);
    r->name_inside = find_inside(r, r->name_start);
    return AG_OK;
}

ag_status ag_json_rules_make(ag_json_rules *r, ag_json_spacing spacing, ag_error *err) {
    *r = (ag_json_rules){.spacing = spacing};
    ag_pda_init(&r->pda, &rule_limits, AG_PDA_SHARED);
    write_rules(r);
    AG_TRY(ag_pda_finish(&r->pda, NULL, err));
    const ag_lazy_limits limits = {
        .states = 1 << 16, .bytes = SIZE_MAX, .work = SIZE_MAX, .total_work = SIZE_MAX};
    AG_TRY(ag_lazy_dfa_init(&r->dfa, &r->pda, &limits, err));
    return expand_all(r, err);
}

void ag_json_rules_free(ag_json_rules *r) {
    ag_lazy_dfa_free(&r->dfa);
    ag_pda_free(&r->pda);
}
