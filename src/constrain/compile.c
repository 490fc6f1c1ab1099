/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/compile.h"

#include "constrain/grammar.h"
#include "constrain/schema/schema.h"
#include "core/fail.h"
#include "text/utf8.h"

#include <string.h>

static ag_status compile_regex(ag_net *net, const char *text, size_t n, uint32_t *start,
                               ag_error *err) {
    ag_text_dfa d;
    ag_status st = ag_text_dfa_regex(&d, text, n, false, &net->limits.text, err);
    if (st != AG_OK) return ag_error_prefix(err, st, "regular expression");
    *start = ag_net_dfa(net, &d, AG_FORM_TEXT, ag_net_end(net));
    ag_text_dfa_free(&d);
    return AG_OK;
}

static ag_status compile_choices(ag_net *net, const ag_constraint_params *p, uint32_t *start,
                                 ag_error *err) {
    if (!p->n_choices) return AG_FAIL(err, INVALID, "there are no choices");
    const uint32_t end = ag_net_end(net);
    *start = AG_NET_NOWHERE;
    for (size_t i = 0; i < p->n_choices; i++) {
        const char *text = p->choices[i];
        const size_t n = strlen(text), valid = ag_utf8_valid_prefix(text, n);
        if (!n) return AG_FAIL(err, INVALID, "choice %zu of %zu is empty", i + 1, p->n_choices);
        if (valid != n) {
            return AG_FAIL(err, FORMAT, "choice %zu of %zu: byte %zu is not UTF-8", i + 1,
                           p->n_choices, valid);
        }
        *start = ag_net_either(net, *start, ag_net_literal(net, text, n, end));
    }
    return AG_OK;
}

ag_status ag_constraint_compile(ag_net *net, const ag_json_rules *json, const ag_token_tree *tokens,
                                const ag_constraint_params *params, uint32_t *root, ag_error *err) {
    const ag_grammar_scope scope = {json, tokens, params->order == AG_JSON_ANY_ORDER};
    uint32_t start = AG_NET_NOWHERE;
    const char *text = params->text ? params->text : "";
    const size_t n = params->text ? params->len : 0;
    *root = ag_net_rule_add(net, (ag_net_rule){.kind = AG_RULE_PLAIN, .start = start});
    switch (params->kind) {
    case AG_CONSTRAINT_JSON_SCHEMA:
        AG_TRY(ag_schema_compile(net, json, text, n, NULL, scope.any_order, &start, err));
        break;
    case AG_CONSTRAINT_GRAMMAR:
        AG_TRY(ag_grammar_compile(net, &scope, text, n, &start, err));
        break;
    case AG_CONSTRAINT_JSON_OBJECT:
        start = ag_net_call(net, json->object, ag_net_end(net));
        break;
    case AG_CONSTRAINT_REGEX:
        AG_TRY(compile_regex(net, text, n, &start, err));
        break;
    case AG_CONSTRAINT_CHOICES:
        AG_TRY(compile_choices(net, params, &start, err));
        break;
    }
    ag_net_rule_start(net, *root, start);
    return AG_OK;
}
