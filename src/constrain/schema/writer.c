/* SPDX-License-Identifier: Apache-2.0 */
/* Writes schema sets as rules. A value is a call of a rule, so each set is written once. */
#include "constrain/schema/writer.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum {
    CHARACTERS_MAX = 512
}; /* maximum length of a string with a pattern, if maxLength allows more */

/* Returns the rule of a set that is neither AG_SCHEMA_ANY nor AG_SCHEMA_NONE. Queues a new set. */
static ag_status rule_of_set(ag_schema_writer *w, ag_schema_set schemas, uint32_t *rule) {
    if (schemas >= w->n_rules) {
        AG_TRY(AG_GROW(w->rules, &w->rules_cap, schemas + 1, w->err));
        memset(w->rules + w->n_rules, 0, (schemas + 1 - w->n_rules) * sizeof *w->rules);
        w->n_rules = schemas + 1;
    }
    if (!w->rules[schemas]) {
        AG_TRY(AG_GROW(w->queue, &w->queue_cap, w->n_queue + 1, w->err));
        w->queue[w->n_queue++] = schemas;
        w->rules[schemas] = ag_pda_rule_plain(w->pda, AG_PDA_UNSET) + 1;
    }
    *rule = w->rules[schemas] - 1;
    return AG_OK;
}

bool ag_schema_is_delimited(const ag_schema_writer *w) {
    return w->notation && w->notation->values == AG_SPELL_DELIMITED;
}

ag_status ag_write_call(ag_schema_writer *w, ag_schema_set schemas, uint32_t next, uint32_t *out) {
    *out = AG_PDA_FAIL;
    if (schemas == AG_SCHEMA_NONE) return AG_OK;
    uint32_t rule = w->json->value;
    if (schemas == AG_SCHEMA_ANY && ag_schema_is_delimited(w))
        return ag_write_delimited_value(w, next, out);
    if (schemas != AG_SCHEMA_ANY) AG_TRY(rule_of_set(w, schemas, &rule));
    *out = ag_pda_call(w->pda, rule, next);
    return AG_OK;
}

uint32_t ag_write_space(ag_schema_writer *w, uint32_t next) {
    return ag_json_space(w->pda, w->json->spacing, w->json->indent, next);
}

uint32_t ag_write_comma_rule(ag_schema_writer *w) {
    if (w->comma == AG_PDA_UNSET) {
        const uint32_t start = ag_pda_byte(w->pda, ',', ag_write_space(w, ag_pda_end(w->pda)));
        w->comma = ag_pda_rule_plain(w->pda, start);
    }
    return w->comma;
}

uint32_t ag_write_open(ag_schema_writer *w, char bracket, uint32_t next) {
    return next == AG_PDA_FAIL ? next : ag_pda_byte(w->pda, bracket, ag_write_space(w, next));
}

uint32_t ag_write_comma(ag_schema_writer *w, bool many, uint32_t next) {
    if (next == AG_PDA_FAIL) return next;
    if (!many) return ag_pda_byte(w->pda, ',', ag_write_space(w, next));
    return ag_pda_call(w->pda, ag_write_comma_rule(w), next);
}

/* ---- strings ---- */

uint32_t ag_write_quoted(ag_schema_writer *w, const ag_text_dfa *d, uint32_t next) {
    const uint32_t close = ag_pda_byte(w->pda, '"', next);
    const uint32_t text = ag_pda_dfa(w->pda, d, AG_FORM_JSON, close);
    return text == AG_PDA_FAIL ? text : ag_pda_byte(w->pda, '"', text);
}

static uint32_t count_of(size_t n) { return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX; }

/* Lengths multiply the states of the pattern. Longer texts are not written. */
ag_string_set ag_string_set_shorten(const ag_string_set *x) {
    ag_string_set shorter = *x;
    if (x->max != SIZE_MAX && x->max > CHARACTERS_MAX) {
        shorter.max = x->min > CHARACTERS_MAX ? x->min : CHARACTERS_MAX;
    }
    return shorter;
}

static ag_status write_string(ag_schema_writer *w, const ag_string_set *x, uint32_t next,
                              uint32_t *out) {
    ag_pda *pda = w->pda;
    if (ag_schema_is_delimited(w)) return ag_write_delimited_string(w, x, next, out);
    if (!x->texts && !x->min && x->max == SIZE_MAX) {
        *out = ag_pda_call(pda, w->json->string, next);
        return AG_OK;
    }
    if (!x->texts) {
        const ag_pda_rule rule = {
            .kind = AG_RULE_LENGTH, .min = count_of(x->min), .max = count_of(x->max)};
        *out = ag_pda_call(pda, ag_pda_rule_add(pda, rule), next);
        return AG_OK;
    }
    const ag_text_dfa *d;
    const ag_string_set shorter = ag_string_set_shorten(x);
    AG_TRY(ag_string_dfa(&w->s, &shorter, &d));
    *out = ag_write_quoted(w, d, next);
    return AG_OK;
}

/* ---- value sets, schema sets ---- */

static uint32_t write_word(ag_schema_writer *w, const char *json, const char *python,
                           uint32_t next) {
    const bool is_python = w->notation && w->notation->values == AG_SPELL_PYTHON;
    const char *word = is_python ? python : json;
    return ag_pda_literal(w->pda, word, strlen(word), next);
}

ag_status ag_write_values(ag_schema_writer *w, const ag_value_set *x, uint32_t next,
                          uint32_t *out) {
    ag_pda *pda = w->pda;
    if (x == &ag_any_value && ag_schema_is_delimited(w))
        return ag_write_delimited_value(w, next, out);
    if (x == &ag_any_value) {
        *out = ag_pda_call(pda, w->json->value, next);
        return AG_OK;
    }
    uint32_t start = AG_PDA_FAIL, one = AG_PDA_FAIL;
    if (x->null_value) start = write_word(w, "null", "None", next);
    if (x->true_value) start = ag_pda_either(pda, start, write_word(w, "true", "True", next));
    if (x->false_value) start = ag_pda_either(pda, start, write_word(w, "false", "False", next));
    if (x->number) {
        bool unsupported;
        one = ag_pda_number(pda, w->json, x->number, next, &unsupported);
        if (unsupported) {
            const bool avoids = x->number->n_avoid > 0;
            return ag_schema_unsupported(
                &w->s, w->schema, x->number->step != 0 || avoids ? "multipleOf" : "minimum",
                avoids ? "excluding multiples of several numbers, or with limits, is not supported"
                       : "the number has too many digits");
        }
        start = ag_pda_either(pda, start, one);
    }
    if (x->string) {
        AG_TRY(write_string(w, x->string, next, &one));
        start = ag_pda_either(pda, start, one);
    }
    if (x->array) {
        AG_TRY(ag_write_array(w, x->array, next, &one));
        start = ag_pda_either(pda, start, one);
    }
    if (x->object) {
        AG_TRY(ag_write_object(w, x->object, next, &one));
        start = ag_pda_either(pda, start, one);
    }
    *out = start;
    return AG_OK;
}

static ag_status write_rule(ag_schema_writer *w, ag_schema_set schemas) {
    ag_pda *pda = w->pda;
    const uint32_t end = ag_pda_end(pda);
    uint32_t start = AG_PDA_FAIL;
    ag_alternatives alternatives;
    size_t n;
    w->schema = ag_interner_list(&w->s.sets, schemas, &n)[0] / 2;
    AG_TRY(ag_schema_set_expand(&w->s, schemas, &alternatives));
    for (size_t i = 0; i < alternatives.n; i++) {
        uint32_t one = AG_PDA_FAIL;
        if (alternatives.list[i].values)
            AG_TRY(ag_write_values(w, alternatives.list[i].values, end, &one));
        else AG_TRY(ag_write_call(w, alternatives.list[i].schemas, end, &one));
        start = ag_pda_either(pda, start, one);
    }
    ag_pda_rule_set_start(pda, w->rules[schemas] - 1, start);
    return AG_OK;
}

static ag_status write_all(ag_schema_writer *w, uint32_t *start) {
    ag_schema_set root;
    AG_TRY(ag_schema_set_of(&w->s, 0, false, &root));
    if (w->notation) AG_TRY(ag_write_arguments(w, root, ag_pda_end(w->pda), start));
    else AG_TRY(ag_write_call(w, root, ag_pda_end(w->pda), start));
    while (w->n_queue && w->pda->status == AG_OK) AG_TRY(write_rule(w, w->queue[--w->n_queue]));
    return AG_OK;
}

ag_status ag_schema_compile(ag_pda *pda, const ag_json_rules *json, const char *text, size_t n,
                            const ag_schema_notation *notation, ag_schema_objects objects,
                            uint32_t *start, ag_error *err) {
    ag_schema_writer w = {.pda = pda,
                          .json = json,
                          .notation = notation,
                          .objects = objects,
                          .comma = AG_PDA_UNSET,
                          .delimited_value = AG_PDA_UNSET,
                          .err = err};
    *start = AG_PDA_FAIL;
    ag_status st = ag_schema_compiler_init(&w.s, text, n, &pda->limits.text, err);
    if (st == AG_OK) st = write_all(&w, start);
    ag_schema_compiler_free(&w.s);
    ag_free(w.rules);
    ag_free(w.queue);
    return st;
}
