/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/constraint.h"

#include "constrain/grammar.h"
#include "constrain/schema/schema.h"
#include "core/fail.h"
#include "text/utf8.h"

#include <string.h>

static ag_status compile_choices(ag_pda *pda, const ag_constraint_params *p, uint32_t *start,
                                 ag_error *err) {
    if (!p->n_choices) return AG_FAIL(err, INVALID, "choices: the list is empty");
    const uint32_t end = ag_pda_end(pda);
    *start = AG_PDA_FAIL;
    for (size_t i = 0; i < p->n_choices; i++) {
        const char *text = p->choices[i];
        const size_t n = strlen(text), valid = ag_utf8_valid_prefix(text, n);
        if (!n)
            return AG_FAIL(err, INVALID, "choice %zu of %zu: the text is empty", i + 1,
                           p->n_choices);
        if (valid != n) {
            return AG_FAIL(err, FORMAT, "choice %zu of %zu: invalid UTF-8 at byte %zu", i + 1,
                           p->n_choices, valid);
        }
        *start = ag_pda_either(pda, *start, ag_pda_literal(pda, text, n, end));
    }
    return AG_OK;
}

ag_status ag_constraint_compile(ag_pda *pda, const ag_json_rules *json, const ag_token_tree *tokens,
                                const ag_constraint_params *params, uint32_t *root,
                                ag_trigger **trigger, ag_error *err) {
    const ag_grammar_scope scope = {
        json, tokens, {params->order == AG_JSON_ANY_ORDER, params->closed_objects}, false};
    uint32_t start = AG_PDA_UNSET;
    const char *text = params->text ? params->text : "";
    const size_t n = params->text ? params->len : 0;
    *root = ag_pda_rule_plain(pda, start);
    switch (params->kind) {
    case AG_CONSTRAINT_JSON_SCHEMA:
        AG_TRY(ag_schema_compile(pda, json, text, n, NULL, scope.objects, &start, err));
        break;
    case AG_CONSTRAINT_GRAMMAR:
        AG_TRY(ag_grammar_compile(pda, &scope, text, n, &start, trigger, err));
        break;
    case AG_CONSTRAINT_JSON_OBJECT:
        start = ag_pda_call(pda, json->object, ag_pda_end(pda));
        break;
    case AG_CONSTRAINT_REGEX:
        AG_TRY(ag_compile_regex(pda, text, n, &start, err));
        break;
    case AG_CONSTRAINT_CHOICES:
        AG_TRY(compile_choices(pda, params, &start, err));
        break;
    }
    ag_pda_rule_set_start(pda, *root, start);
    return AG_OK;
}
