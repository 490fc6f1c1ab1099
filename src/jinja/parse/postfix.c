/* SPDX-License-Identifier: Apache-2.0 */
/* Postfix expressions: attributes, items, slices, calls, filters and tests. */
#include "jinja/builtins/filters.h"
#include "jinja/builtins/methods.h"
#include "jinja/parse/parser.h"

#include <string.h>

typedef struct call_list {
    size_t cap, cap_names, cap_values;
} call_list;

static bool keyword_argument(ag_jparser *p, ag_jkeys *k, call_list *list) {
    ag_jstr *name = ag_jparse_name(p);
    if (!name || !ag_jparse_expect(p, AG_JT_ASSIGN)) return false;
    for (size_t i = 0; i < k->n; i++) {
        if (k->names[i]->len == name->len && !memcmp(k->names[i]->text, name->text, name->len)) {
            return ag_jparse_fail(p, "'%.*s' is given twice", (int)name->len, name->text);
        }
    }
    ag_jnode *value = ag_jparse_expression(p);
    if (!value) return false;
    if (!ag_jparse_grow(p, &k->names, k->n, &list->cap_names, sizeof *k->names)) return false;
    if (!ag_jparse_grow(p, &k->values, k->n, &list->cap_values, sizeof *k->values)) return false;
    k->names[k->n] = name;
    k->values[k->n++] = value;
    return true;
}

static bool one_argument(ag_jparser *p, ag_jnode *call, call_list *list) {
    ag_jkeys *k = call->keys;
    bool star = p->at->kind == AG_JT_MUL, star_star = p->at->kind == AG_JT_POW;
    bool named = p->at->kind == AG_JT_NAME && p->at[1].kind == AG_JT_ASSIGN;
    bool misplaced =
        k->star_star || (star && k->star) || (!star && !star_star && !named && (k->star || k->n));
    if (misplaced) return ag_jparse_fail(p, "arguments of a call are in the wrong order");
    if (named) return keyword_argument(p, k, list);
    if (star || star_star) p->at++;
    ag_jnode *value = ag_jparse_expression(p);
    if (!value) return false;
    if (star) k->star = value;
    else if (star_star) k->star_star = value;
    else return ag_jparse_append(p, call, &list->cap, value);
    return true;
}

static bool parse_arguments(ag_jparser *p, ag_jnode *call) {
    call_list list = {0};
    call->keys = ag_jparse_alloc(p, sizeof *call->keys);
    if (!call->keys || !ag_jparse_expect(p, AG_JT_LPAREN)) return false;
    for (bool first = true; p->at->kind != AG_JT_RPAREN; first = false) {
        if (!first && !ag_jparse_expect(p, AG_JT_COMMA)) return false;
        if (!first && p->at->kind == AG_JT_RPAREN) break;
        if (!one_argument(p, call, &list)) return false;
    }
    return ag_jparse_expect(p, AG_JT_RPAREN);
}

static ag_jnode *parse_call(ag_jparser *p, ag_jnode *callee) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_CALL);
    if (!n) return NULL;
    n->a = callee;
    return parse_arguments(p, n) ? n : NULL;
}

/* Parses a part of x[a:b:c]; an omitted part stays NULL. */
static ag_jnode *parse_slice_part(ag_jparser *p, ag_jnode *slice, size_t i) {
    bool absent =
        p->at->kind == AG_JT_COLON || p->at->kind == AG_JT_RBRACKET || p->at->kind == AG_JT_COMMA;
    if (absent) return slice;
    slice->items[i] = ag_jparse_expression(p);
    return slice->items[i] ? slice : NULL;
}

static ag_jnode *parse_index(ag_jparser *p) {
    ag_jnode *first = NULL;
    if (p->at->kind != AG_JT_COLON) {
        first = ag_jparse_expression(p);
        if (!first || p->at->kind != AG_JT_COLON) return first;
    }
    ag_jnode *n = ag_jnode_create(p, AG_JN_SLICE);
    if (!n) return NULL;
    n->items = ag_jparse_alloc(p, 3 * sizeof *n->items);
    if (!n->items) return NULL;
    n->n_items = 3;
    n->items[0] = first;
    p->at++;
    if (!parse_slice_part(p, n, 1)) return NULL;
    if (ag_jparse_skip(p, AG_JT_COLON) && !parse_slice_part(p, n, 2)) return NULL;
    return n;
}

static ag_jnode *parse_subscript(ag_jparser *p, ag_jnode *object) {
    ag_jnode *tuple = ag_jnode_create(p, AG_JN_TUPLE);
    size_t cap = 0;
    p->at++;
    while (tuple && p->at->kind != AG_JT_RBRACKET) {
        if (tuple->n_items && !ag_jparse_expect(p, AG_JT_COMMA)) return NULL;
        ag_jnode *index = parse_index(p);
        if (!index || !ag_jparse_append(p, tuple, &cap, index)) return NULL;
    }
    if (!tuple || !ag_jparse_expect(p, AG_JT_RBRACKET)) return NULL;
    ag_jnode *index = tuple->n_items == 1 ? tuple->items[0] : tuple;
    if (index->kind == AG_JN_SLICE) return index->a = object, index;
    return ag_jparse_binary(p, AG_JN_ITEM, 0, object, index);
}

static ag_jnode *parse_attribute(ag_jparser *p, ag_jnode *object) {
    p->at++;
    if (p->at->kind == AG_JT_INTEGER) {
        ag_jnode *index = ag_jparse_const(p, ag_jint(p->at->integer));
        p->at++;
        return ag_jparse_binary(p, AG_JN_ITEM, 0, object, index);
    }
    if (p->at->kind != AG_JT_NAME) return ag_jparse_fail(p, "expected a name or a number");
    ag_jnode *n = ag_jnode_create(p, AG_JN_ATTR);
    ag_jstr *name = n ? ag_jparse_name(p) : NULL;
    if (!name) return NULL;
    n->a = object;
    n->u.name = name;
    n->op = (int16_t)ag_jmethod_find(name->text, name->len);
    return n;
}

ag_jnode *ag_jparse_postfix(ag_jparser *p, ag_jnode *n) {
    while (n) {
        if (p->at->kind == AG_JT_DOT) n = parse_attribute(p, n);
        else if (p->at->kind == AG_JT_LBRACKET) n = parse_subscript(p, n);
        else if (p->at->kind == AG_JT_LPAREN) n = parse_call(p, n);
        else break;
    }
    return n;
}

ag_jnode *ag_jparse_filters(ag_jparser *p, ag_jnode *value, bool at_name) {
    while (at_name || p->at->kind == AG_JT_PIPE) {
        if (!at_name) p->at++;
        at_name = false;
        ag_jnode *n = ag_jnode_create(p, AG_JN_FILTER);
        if (!n) return NULL;
        n->a = value;
        n->u.name = ag_jparse_name(p);
        if (!n->u.name) return NULL;
        n->op = (int16_t)ag_jfilter_find(n->u.name->text, n->u.name->len);
        if (n->op < 0 && !p->lenient) {
            return ag_jparse_fail(p, "unknown filter '%.*s'", (int)n->u.name->len, n->u.name->text);
        }
        if (p->at->kind == AG_JT_LPAREN && !parse_arguments(p, n)) return NULL;
        value = n;
    }
    return value;
}

/* Returns whether a test's argument without parentheses follows: `is divisibleby 3`. */
static bool bare_argument_follows(ag_jparser *p) {
    switch (p->at->kind) {
    case AG_JT_NAME:
        return !ag_jparse_is_name(p, "else") && !ag_jparse_is_name(p, "or") &&
               !ag_jparse_is_name(p, "and");
    case AG_JT_STRING:
    case AG_JT_INTEGER:
    case AG_JT_FLOAT:
    case AG_JT_LBRACKET:
    case AG_JT_LBRACE:
        return true;
    default:
        return false;
    }
}

static ag_jnode *parse_test(ag_jparser *p, ag_jnode *value) {
    p->at++;
    bool negated = ag_jparse_skip_name(p, "not");
    ag_jnode *n = ag_jnode_create(p, AG_JN_TEST);
    if (!n) return NULL;
    n->a = value;
    n->u.name = ag_jparse_name(p);
    if (!n->u.name) return NULL;
    n->op = (int16_t)ag_jtest_find(n->u.name->text, n->u.name->len);
    if (n->op < 0 && !p->lenient) {
        return ag_jparse_fail(p, "unknown test '%.*s'", (int)n->u.name->len, n->u.name->text);
    }
    if (p->at->kind == AG_JT_LPAREN) {
        if (!parse_arguments(p, n)) return NULL;
    } else if (bare_argument_follows(p)) {
        if (ag_jparse_is_name(p, "is")) return ag_jparse_fail(p, "tests cannot be chained with is");
        size_t cap = 0;
        ag_jnode *arg = ag_jparse_postfix(p, ag_jparse_primary(p, false));
        if (!arg || !ag_jparse_append(p, n, &cap, arg)) return NULL;
    }
    if (!negated) return n;
    ag_jnode *negation = ag_jnode_create(p, AG_JN_NOT);
    if (negation) negation->a = n;
    return negation;
}

ag_jnode *ag_jparse_filter_expr(ag_jparser *p, ag_jnode *n) {
    while (n) {
        if (p->at->kind == AG_JT_PIPE) n = ag_jparse_filters(p, n, false);
        else if (ag_jparse_is_name(p, "is")) n = parse_test(p, n);
        else if (p->at->kind == AG_JT_LPAREN) n = parse_call(p, n);
        else break;
    }
    return n;
}
