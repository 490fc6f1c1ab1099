/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, by increasing precedence: if, or, and, not, comparison, + -, ~, * / // %, **, sign,
 * postfix. */
#include "jinja/parse/parser.h"

#include <stdio.h>
#include <string.h>

static ag_jnode *parse_unary(ag_jparser *p, bool with_filter);
static ag_jnode *parse_or(ag_jparser *p);

ag_jnode *ag_jparse_binary(ag_jparser *p, ag_jnode_kind kind, int op, ag_jnode *a, ag_jnode *b) {
    ag_jnode *n = a && b ? ag_jnode_create(p, kind) : NULL;
    if (!n) return NULL;
    n->line = a->line;
    n->op = (int16_t)op;
    n->a = a;
    n->b = b;
    return n;
}

bool ag_jparse_append(ag_jparser *p, ag_jnode *list, size_t *cap, ag_jnode *item) {
    if (!ag_jparse_grow(p, &list->items, list->n_items, cap, sizeof *list->items)) return false;
    list->items[list->n_items++] = item;
    return true;
}

ag_jnode *ag_jparse_const(ag_jparser *p, ag_jv value) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_CONST);
    if (n) n->u.value = value;
    return n;
}

/* Joins adjacent string literals. */
static ag_jnode *parse_strings(ag_jparser *p) {
    const ag_jtoken *first = p->at;
    size_t len = 0;
    ag_jnode *n = ag_jnode_create(p, AG_JN_CONST);
    while (p->at->kind == AG_JT_STRING) len += p->at++->len;
    const char *text = first->text;
    if (p->at - first > 1) {
        char *joined = ag_jparse_alloc(p, len + 1);
        if (!joined) return NULL;
        size_t at = 0;
        for (const ag_jtoken *t = first; t < p->at; t++) {
            if (t->len) memcpy(joined + at, t->text, t->len);
            at += t->len;
        }
        text = joined;
    }
    ag_jstr *s = n ? ag_jparse_string(p, text, len) : NULL;
    if (!s) return NULL;
    n->u.value = ag_jstring(s);
    return n;
}

static void mark_read(ag_jparser *p, uint32_t id) {
    p->t->is_read[id] = true;
    if (id == p->t->loop) p->reads_loop = true;
    for (size_t i = 0; i < p->n_macros; i++) {
        p->macros[i]->reads_caller |= id == p->t->caller;
        p->macros[i]->reads_varargs |= id == p->t->varargs;
        p->macros[i]->reads_kwargs |= id == p->t->kwargs;
    }
}

static ag_jnode *parse_name(ag_jparser *p, bool with_namespace) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_NAME);
    ag_jstr *name = n ? ag_jparse_name(p) : NULL;
    if (!name) return NULL;
    bool is_true = false;
    if (name->len <= 5) {
        char word[8];
        snprintf(word, sizeof word, "%.*s", (int)name->len, name->text);
        is_true = !strcmp(word, "true") || !strcmp(word, "True");
        bool is_const = true;
        if (is_true || !strcmp(word, "false") || !strcmp(word, "False")) {
            n->u.value = ag_jbool(is_true);
        } else if (!strcmp(word, "none") || !strcmp(word, "None")) {
            n->u.value = ag_jnone();
        } else {
            is_const = false;
        }
        if (is_const) return n->kind = AG_JN_CONST, n;
    }
    n->u.name = name;
    if (!ag_jparse_variable(p, name, &n->id)) return NULL;
    if (with_namespace && ag_jparse_skip(p, AG_JT_DOT)) {
        n->kind = AG_JN_NSREF;
        n->u.name = ag_jparse_name(p);
        if (!n->u.name) return NULL;
    }
    if (!p->is_target || n->kind == AG_JN_NSREF) mark_read(p, n->id);
    return n;
}

static ag_jnode *parse_list(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_LIST);
    size_t cap = 0;
    p->at++;
    while (n && p->at->kind != AG_JT_RBRACKET) {
        if (n->n_items && !ag_jparse_expect(p, AG_JT_COMMA)) return NULL;
        if (p->at->kind == AG_JT_RBRACKET) break;
        ag_jnode *item = ag_jparse_expression(p);
        if (!item || !ag_jparse_append(p, n, &cap, item)) return NULL;
    }
    return n && ag_jparse_expect(p, AG_JT_RBRACKET) ? n : NULL;
}

static ag_jnode *parse_dict(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_DICT);
    size_t cap = 0;
    p->at++;
    while (n && p->at->kind != AG_JT_RBRACE) {
        if (n->n_items && !ag_jparse_expect(p, AG_JT_COMMA)) return NULL;
        if (p->at->kind == AG_JT_RBRACE) break;
        ag_jnode *key = ag_jparse_expression(p);
        if (!key || !ag_jparse_append(p, n, &cap, key) || !ag_jparse_expect(p, AG_JT_COLON))
            return NULL;
        ag_jnode *value = ag_jparse_expression(p);
        if (!value || !ag_jparse_append(p, n, &cap, value)) return NULL;
    }
    return n && ag_jparse_expect(p, AG_JT_RBRACE) ? n : NULL;
}

static ag_jnode *tuple_of(ag_jparser *p, bool simple, bool with_condition, bool with_namespace,
                          bool parentheses, const char *end_name);

ag_jnode *ag_jparse_primary(ag_jparser *p, bool with_namespace) {
    const ag_jtoken *t = p->at;
    switch (t->kind) {
    case AG_JT_NAME:
        return parse_name(p, with_namespace);
    case AG_JT_STRING:
        return parse_strings(p);
    case AG_JT_INTEGER:
        p->at++;
        return ag_jparse_const(p, ag_jint(t->integer));
    case AG_JT_FLOAT:
        p->at++;
        return ag_jparse_const(p, ag_jfloat(t->number));
    case AG_JT_LBRACKET:
        return parse_list(p);
    case AG_JT_LBRACE:
        return parse_dict(p);
    case AG_JT_LPAREN: {
        p->at++;
        ag_jnode *n = tuple_of(p, false, true, false, true, NULL);
        return n && ag_jparse_expect(p, AG_JT_RPAREN) ? n : NULL;
    }
    default:
        return ag_jparse_fail(p, "unexpected '%s'", ag_jtoken_name(t->kind));
    }
}

static bool at_tuple_end(const ag_jparser *p, const char *end_name) {
    return p->at->kind == AG_JT_VARIABLE_END || p->at->kind == AG_JT_BLOCK_END ||
           p->at->kind == AG_JT_RPAREN || (end_name && ag_jparse_is_name(p, end_name));
}

static ag_jnode *tuple_item(ag_jparser *p, bool simple, bool with_condition, bool with_namespace) {
    if (!ag_jparse_enter(p)) return NULL;
    ag_jnode *n = simple           ? ag_jparse_primary(p, with_namespace)
                  : with_condition ? ag_jparse_expression(p)
                                   : parse_or(p);
    ag_jparse_leave(p);
    return n;
}

static ag_jnode *tuple_of(ag_jparser *p, bool simple, bool with_condition, bool with_namespace,
                          bool parentheses, const char *end_name) {
    ag_jnode *tuple = ag_jnode_create(p, AG_JN_TUPLE);
    size_t cap = 0;
    bool is_tuple = false;
    while (tuple) {
        if (tuple->n_items && !ag_jparse_expect(p, AG_JT_COMMA)) return NULL;
        if (at_tuple_end(p, end_name)) break;
        ag_jnode *item = tuple_item(p, simple, with_condition, with_namespace);
        if (!item || !ag_jparse_append(p, tuple, &cap, item)) return NULL;
        if (p->at->kind != AG_JT_COMMA) break;
        is_tuple = true;
    }
    if (!tuple || is_tuple) return tuple;
    if (tuple->n_items) return tuple->items[0];
    if (parentheses) return tuple;
    return ag_jparse_fail(p, "expected an expression, got '%s'", ag_jtoken_name(p->at->kind));
}

ag_jnode *ag_jparse_tuple(ag_jparser *p, bool with_condition, const char *end_name) {
    return tuple_of(p, false, with_condition, false, false, end_name);
}

static bool can_assign(const ag_jnode *n) {
    if (n->kind == AG_JN_NAME || n->kind == AG_JN_NSREF) return true;
    if (n->kind != AG_JN_TUPLE) return false;
    for (size_t i = 0; i < n->n_items; i++) {
        if (!can_assign(n->items[i])) return false;
    }
    return true;
}

static bool assigns(const ag_jnode *n, uint32_t id) {
    if (n->kind == AG_JN_NAME) return n->id == id;
    for (size_t i = 0; n->kind == AG_JN_TUPLE && i < n->n_items; i++) {
        if (assigns(n->items[i], id)) return true;
    }
    return false;
}

ag_jnode *ag_jparse_target(ag_jparser *p, bool with_namespace, const char *end_name) {
    p->is_target = true;
    ag_jnode *n = tuple_of(p, true, false, with_namespace, false, end_name);
    p->is_target = false;
    if (n && !can_assign(n)) return ag_jparse_fail(p, "cannot assign to this expression");
    if (n && p->n_fors && assigns(n, p->t->loop)) {
        return ag_jparse_fail(p, "cannot assign to 'loop' within a loop");
    }
    return n;
}

static ag_jnode *parse_sign(ag_jparser *p) {
    if (!ag_jparse_enter(p)) return NULL;
    ag_jnode *n = ag_jnode_create(p, p->at->kind == AG_JT_SUB ? AG_JN_NEG : AG_JN_POS);
    p->at++;
    if (n) n->a = parse_unary(p, false);
    ag_jparse_leave(p);
    return n && n->a ? n : NULL;
}

static ag_jnode *parse_unary(ag_jparser *p, bool with_filter) {
    bool sign = p->at->kind == AG_JT_SUB || p->at->kind == AG_JT_ADD;
    ag_jnode *n = sign ? parse_sign(p) : ag_jparse_primary(p, false);
    n = ag_jparse_postfix(p, n);
    return with_filter ? ag_jparse_filter_expr(p, n) : n;
}

static ag_jnode *parse_power(ag_jparser *p) {
    ag_jnode *left = parse_unary(p, true);
    while (left && ag_jparse_skip(p, AG_JT_POW)) {
        left = ag_jparse_binary(p, AG_JN_BINARY, AG_JOP_POW, left, parse_unary(p, true));
    }
    return left;
}

static int math_operator(ag_jtoken_kind kind) {
    switch (kind) {
    case AG_JT_ADD:
        return AG_JOP_ADD;
    case AG_JT_SUB:
        return AG_JOP_SUB;
    case AG_JT_MUL:
        return AG_JOP_MUL;
    case AG_JT_DIV:
        return AG_JOP_DIV;
    case AG_JT_FLOORDIV:
        return AG_JOP_FLOORDIV;
    case AG_JT_MOD:
        return AG_JOP_MOD;
    case AG_JT_EQ:
        return AG_JOP_EQ;
    case AG_JT_NE:
        return AG_JOP_NE;
    case AG_JT_LT:
        return AG_JOP_LT;
    case AG_JT_LE:
        return AG_JOP_LE;
    case AG_JT_GT:
        return AG_JOP_GT;
    case AG_JT_GE:
        return AG_JOP_GE;
    default:
        return -1;
    }
}

static ag_jnode *parse_product(ag_jparser *p) {
    ag_jnode *left = parse_power(p);
    while (left) {
        int op = math_operator(p->at->kind);
        if (op < AG_JOP_MUL || op > AG_JOP_MOD) break;
        p->at++;
        left = ag_jparse_binary(p, AG_JN_BINARY, op, left, parse_power(p));
    }
    return left;
}

static ag_jnode *parse_concat(ag_jparser *p) {
    ag_jnode *first = parse_product(p);
    if (!first || p->at->kind != AG_JT_TILDE) return first;
    ag_jnode *n = ag_jnode_create(p, AG_JN_CONCAT);
    size_t cap = 0;
    if (!n || !ag_jparse_append(p, n, &cap, first)) return NULL;
    while (ag_jparse_skip(p, AG_JT_TILDE)) {
        ag_jnode *item = parse_product(p);
        if (!item || !ag_jparse_append(p, n, &cap, item)) return NULL;
    }
    return n;
}

static ag_jnode *parse_sum(ag_jparser *p) {
    ag_jnode *left = parse_concat(p);
    while (left && (p->at->kind == AG_JT_ADD || p->at->kind == AG_JT_SUB)) {
        int op = math_operator(p->at++->kind);
        left = ag_jparse_binary(p, AG_JN_BINARY, op, left, parse_concat(p));
    }
    return left;
}

/* Consumes a comparison operator and returns its ag_jop, -1 if there is none. */
static int comparison(ag_jparser *p) {
    int op = math_operator(p->at->kind);
    if (op >= AG_JOP_EQ) return p->at++, op;
    if (ag_jparse_skip_name(p, "in")) return AG_JOP_IN;
    if (!ag_jparse_is_name(p, "not") || p->at[1].kind != AG_JT_NAME || p->at[1].len != 2 ||
        memcmp(p->at[1].text, "in", 2) != 0) {
        return -1;
    }
    p->at += 2;
    return AG_JOP_NOT_IN;
}

static ag_jnode *parse_compare(ag_jparser *p) {
    ag_jnode *first = parse_sum(p), *n = NULL;
    size_t cap = 0, cap_ops = 0;
    while (first) {
        int op = comparison(p);
        if (op < 0) break;
        if (!n) {
            n = ag_jnode_create(p, AG_JN_COMPARE);
            if (!n || !ag_jparse_append(p, n, &cap, first)) return NULL;
        }
        if (!ag_jparse_grow(p, &n->u.ops, n->n_items - 1, &cap_ops, 1)) return NULL;
        n->u.ops[n->n_items - 1] = (uint8_t)op;
        ag_jnode *item = parse_sum(p);
        if (!item || !ag_jparse_append(p, n, &cap, item)) return NULL;
    }
    return first && n ? n : first;
}

static ag_jnode *parse_not(ag_jparser *p) {
    if (!ag_jparse_is_name(p, "not")) return parse_compare(p);
    if (!ag_jparse_enter(p)) return NULL;
    ag_jnode *n = ag_jnode_create(p, AG_JN_NOT);
    p->at++;
    if (n) n->a = parse_not(p);
    ag_jparse_leave(p);
    return n && n->a ? n : NULL;
}

static ag_jnode *parse_and(ag_jparser *p) {
    ag_jnode *left = parse_not(p);
    while (left && ag_jparse_skip_name(p, "and"))
        left = ag_jparse_binary(p, AG_JN_AND, 0, left, parse_not(p));
    return left;
}

static ag_jnode *parse_or(ag_jparser *p) {
    ag_jnode *left = parse_and(p);
    while (left && ag_jparse_skip_name(p, "or"))
        left = ag_jparse_binary(p, AG_JN_OR, 0, left, parse_and(p));
    return left;
}

/* Returns whether an `if` follows within the same brackets. The operand before it is then lenient,
 * which must be known before it is parsed. */
static bool condition_follows(const ag_jparser *p) {
    int depth = 0;
    for (const ag_jtoken *t = p->at; t->kind != AG_JT_EOF; t++) {
        if (t->kind == AG_JT_VARIABLE_END || t->kind == AG_JT_BLOCK_END) return false;
        bool open = t->kind == AG_JT_LPAREN || t->kind == AG_JT_LBRACKET || t->kind == AG_JT_LBRACE;
        bool close =
            t->kind == AG_JT_RPAREN || t->kind == AG_JT_RBRACKET || t->kind == AG_JT_RBRACE;
        depth += open - close;
        if (depth < 0 || (depth == 0 && t->kind == AG_JT_COMMA)) return false;
        if (depth == 0 && t->kind == AG_JT_NAME && t->len == 2 && !memcmp(t->text, "if", 2)) {
            return true;
        }
    }
    return false;
}

static ag_jnode *parse_condition(ag_jparser *p) {
    ag_jnode *n = parse_or(p);
    while (n && ag_jparse_skip_name(p, "if")) {
        ag_jnode *cond = ag_jnode_create(p, AG_JN_COND);
        if (!cond) return NULL;
        cond->line = n->line;
        cond->a = n;
        cond->b = parse_or(p);
        if (!cond->b) return NULL;
        if (ag_jparse_skip_name(p, "else")) {
            cond->c = ag_jparse_expression(p);
            if (!cond->c) return NULL;
        }
        n = cond;
    }
    return n;
}

ag_jnode *ag_jparse_expression(ag_jparser *p) {
    if (!ag_jparse_enter(p)) return NULL;
    bool lenient = p->lenient;
    if (!lenient) p->lenient = condition_follows(p);
    ag_jnode *n = parse_condition(p);
    p->lenient = lenient;
    ag_jparse_leave(p);
    return n;
}
