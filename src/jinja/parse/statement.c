/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, and the text between them. */
#include "jinja/parse/parser.h"

#include <string.h>

static bool push_node(ag_jparser *p, ag_jbody *body, size_t *cap, ag_jnode *n) {
    if (!n) return false;
    if (!ag_jparse_grow(p, &body->items, body->n, cap, sizeof *body->items)) return false;
    body->items[body->n++] = n;
    return true;
}

static ag_jnode *with_expression(ag_jparser *p, ag_jnode_kind kind, bool with_condition) {
    ag_jnode *n = ag_jnode_create(p, kind);
    if (!n) return NULL;
    n->a = ag_jparse_tuple(p, with_condition, NULL);
    return n->a ? n : NULL;
}

/* Parses the end of a tag (an optional colon first) and the body up to one of `end_tags`. */
static bool tag_body(ag_jparser *p, const char *const *end_tags, ag_jbody *out) {
    ag_jparse_skip(p, AG_JT_COLON);
    return ag_jparse_expect(p, AG_JT_BLOCK_END) && ag_jparse_body(p, end_tags, out);
}

static bool last_body(ag_jparser *p, const char *end, ag_jbody *out) {
    const char *const end_tags[] = {end, NULL};
    return tag_body(p, end_tags, out) && ag_jparse_expect_name(p, end);
}

/* Parses a body in which unknown filters fail at once, even within an `if`. */
static bool scoped_body(ag_jparser *p, const char *end, ag_jbody *out) {
    bool lenient = p->lenient;
    p->lenient = false;
    bool ok = last_body(p, end, out);
    p->lenient = lenient;
    return ok;
}

static ag_jnode *parse_for(ag_jparser *p) {
    static const char *const end_tags[] = {"endfor", "else", NULL};
    ag_jnode *n = ag_jnode_create(p, AG_JN_FOR);
    if (!n) return NULL;
    p->n_fors++;
    n->a = ag_jparse_target(p, false, "in");
    if (!n->a || !ag_jparse_expect_name(p, "in")) return NULL;
    n->b = ag_jparse_tuple(p, false, NULL);
    if (!n->b) return NULL;
    bool outer_reads = p->reads_loop, lenient = p->lenient;
    p->lenient = false;
    if (ag_jparse_skip_name(p, "if")) {
        n->c = ag_jparse_expression(p);
        if (!n->c) return NULL;
        outer_reads |= p->reads_loop;
    }
    p->n_loops++;
    p->reads_loop = false;
    bool ok = tag_body(p, end_tags, &n->body);
    n->op = p->reads_loop;
    p->n_loops--;
    p->reads_loop = outer_reads;
    if (ok && ag_jparse_skip_name(p, "else")) ok = last_body(p, "endfor", &n->orelse);
    else if (ok) ok = ag_jparse_expect_name(p, "endfor");
    p->lenient = lenient;
    p->n_fors--;
    return ok ? n : NULL;
}

static bool add_branch(ag_jparser *p, ag_jnode *n, size_t *cap, size_t *cap_bodies, size_t n_bodies,
                       bool has_test) {
    static const char *const end_tags[] = {"elif", "else", "endif", NULL};
    if (has_test) {
        ag_jnode *test = ag_jparse_tuple(p, false, NULL);
        if (!test || !ag_jparse_append(p, n, cap, test)) return false;
    }
    if (!ag_jparse_grow(p, &n->u.branches, n_bodies, cap_bodies, sizeof *n->u.branches))
        return false;
    ag_jbody body = {0};
    if (!tag_body(p, end_tags, &body)) return false;
    n->u.branches[n_bodies] = body;
    return true;
}

static ag_jnode *parse_if(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_IF);
    size_t cap = 0, cap_bodies = 0;
    bool lenient = p->lenient;
    p->lenient = true;
    bool ok = n && add_branch(p, n, &cap, &cap_bodies, 0, true);
    while (ok && ag_jparse_skip_name(p, "elif")) {
        ok = add_branch(p, n, &cap, &cap_bodies, n->n_items, true);
    }
    if (ok && ag_jparse_skip_name(p, "else")) {
        ok = add_branch(p, n, &cap, &cap_bodies, n->n_items, false);
        if (ok) n->op = 1; /* the last branch has no condition */
    }
    p->lenient = lenient;
    return ok && ag_jparse_expect_name(p, "endif") ? n : NULL;
}

static ag_jnode *parse_set(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_SET);
    if (!n) return NULL;
    n->a = ag_jparse_target(p, true, NULL);
    if (!n->a) return NULL;
    if (ag_jparse_skip(p, AG_JT_ASSIGN)) {
        n->b = ag_jparse_tuple(p, true, NULL);
        return n->b ? n : NULL;
    }
    n->kind = AG_JN_SET_BLOCK;
    if (p->at->kind == AG_JT_PIPE) {
        n->b = ag_jparse_filters(p, NULL, false);
        if (!n->b) return NULL;
    }
    return scoped_body(p, "endset", &n->body) ? n : NULL;
}

/* Parses the parameters (a, b=1) of a macro or a call block. */
static bool parse_signature(ag_jparser *p, ag_jmacro_def *m) {
    size_t cap = 0, cap_names = 0, cap_defaults = 0;
    if (!ag_jparse_expect(p, AG_JT_LPAREN)) return false;
    while (p->at->kind != AG_JT_RPAREN) {
        if (m->n_params && !ag_jparse_expect(p, AG_JT_COMMA)) return false;
        ag_jstr *name = ag_jparse_name(p);
        uint32_t id;
        if (!name || !ag_jparse_variable(p, name, &id)) return false;
        if (!ag_jparse_grow(p, &m->params, m->n_params, &cap, sizeof *m->params)) return false;
        if (!ag_jparse_grow(p, &m->param_names, m->n_params, &cap_names, sizeof *m->param_names))
            return false;
        for (size_t i = 0; i < m->n_params; i++) {
            if (m->params[i] == id) return ag_jparse_fail(p, "two parameters have the same name");
        }
        m->params[m->n_params] = id;
        m->param_names[m->n_params++] = name;
        if (ag_jparse_skip(p, AG_JT_ASSIGN)) {
            if (!ag_jparse_grow(p, &m->defaults, m->n_defaults, &cap_defaults, sizeof *m->defaults))
                return false;
            m->defaults[m->n_defaults] = ag_jparse_expression(p);
            if (!m->defaults[m->n_defaults++]) return false;
        } else if (m->n_defaults) {
            return ag_jparse_fail(p, "a parameter without a default follows one with a default");
        }
    }
    return ag_jparse_expect(p, AG_JT_RPAREN);
}

static bool macro_body(ag_jparser *p, ag_jmacro_def *m, const char *end) {
    if (!ag_jparse_grow(p, &p->macros, p->n_macros, &p->cap_macros, sizeof *p->macros))
        return false;
    p->macros[p->n_macros++] = m;
    uint32_t n_loops = p->n_loops;
    p->n_loops = 0;
    bool ok = scoped_body(p, end, &m->body);
    p->n_loops = n_loops;
    p->n_macros--;
    for (size_t i = 0; ok && i < m->n_params;
         i++) { /* a declared parameter is not the special variable */
        if (m->params[i] == p->t->kwargs) m->reads_kwargs = false;
        if (m->params[i] == p->t->varargs) m->reads_varargs = false;
        if (m->params[i] != p->t->caller) continue;
        if (m->reads_caller && i + m->n_defaults < m->n_params) {
            return ag_jparse_fail(p, "the parameter 'caller' needs a default");
        }
        m->reads_caller = false;
    }
    return ok;
}

static ag_jnode *parse_macro(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_MACRO);
    ag_jmacro_def *m = n ? ag_jparse_alloc(p, sizeof *m) : NULL;
    if (!m) return NULL;
    n->u.macro = m;
    m->name = ag_jparse_name(p);
    if (!m->name || !ag_jparse_variable(p, m->name, &n->id)) return NULL;
    return parse_signature(p, m) && macro_body(p, m, "endmacro") ? n : NULL;
}

static ag_jnode *parse_call_block(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_CALL_BLOCK);
    ag_jmacro_def *m = n ? ag_jparse_alloc(p, sizeof *m) : NULL;
    if (!m) return NULL;
    n->u.macro = m;
    if (p->at->kind == AG_JT_LPAREN && !parse_signature(p, m)) return NULL;
    n->a = ag_jparse_expression(p);
    if (!n->a) return NULL;
    if (n->a->kind != AG_JN_CALL) return ag_jparse_fail(p, "expected a call");
    return macro_body(p, m, "endcall") ? n : NULL;
}

static ag_jnode *parse_filter_block(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_FILTER_BLOCK);
    if (!n) return NULL;
    n->a = ag_jparse_filters(p, NULL, true);
    return n->a && scoped_body(p, "endfilter", &n->body) ? n : NULL;
}

static bool push_item(ag_jparser *p, ag_jnode *n, size_t *cap, ag_jnode *item) {
    ag_jbody list = {n->items, n->n_items};
    if (!push_node(p, &list, cap, item)) return false;
    n->items = list.items;
    n->n_items = list.n;
    return true;
}

static ag_jnode *parse_with(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_WITH);
    size_t cap = 0;
    while (n && p->at->kind != AG_JT_BLOCK_END) {
        if (n->n_items && !ag_jparse_expect(p, AG_JT_COMMA)) return NULL;
        ag_jnode *target = ag_jparse_target(p, false, NULL);
        if (!target || !push_item(p, n, &cap, target) || !ag_jparse_expect(p, AG_JT_ASSIGN)) {
            return NULL;
        }
        if (!push_item(p, n, &cap, ag_jparse_expression(p))) return NULL;
    }
    return n && scoped_body(p, "endwith", &n->body) ? n : NULL;
}

/* Parses {% generation %}. Its body must not break a loop outside of it. */
static ag_jnode *parse_generation(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_SCOPE);
    if (!n) return NULL;
    uint32_t n_loops = p->n_loops;
    p->n_loops = 0;
    bool ok = scoped_body(p, "endgeneration", &n->body);
    p->n_loops = n_loops;
    return ok ? n : NULL;
}

static ag_jnode *parse_jump(ag_jparser *p, ag_jnode_kind kind) {
    if (!p->n_loops) return ag_jparse_fail(p, "the tag is outside of any loop");
    return ag_jnode_create(p, kind);
}

static const struct statement {
    const char *name;
    ag_jnode *(*parse)(ag_jparser *p);
} statements[] = {
    {"for", parse_for},         {"if", parse_if},
    {"set", parse_set},         {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},       {"generation", parse_generation},
};

static ag_jnode *parse_statement(ag_jparser *p) {
    if (p->at->kind != AG_JT_NAME) return ag_jparse_fail(p, "expected the name of a tag");
    if (ag_jparse_is_name(p, "break") || ag_jparse_is_name(p, "continue")) {
        bool is_break = p->at->len == 5;
        ag_jnode *n = parse_jump(p, is_break ? AG_JN_BREAK : AG_JN_CONTINUE);
        p->at++;
        return n;
    }
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!ag_jparse_skip_name(p, statements[i].name)) continue;
        if (!ag_jparse_enter(p)) return NULL;
        const char *tag = p->tag;
        p->tag = statements[i].name;
        ag_jnode *n = statements[i].parse(p);
        p->tag = tag;
        ag_jparse_leave(p);
        return n;
    }
    return ag_jparse_fail(p, "unknown tag '%.*s'", (int)(p->at->len < 60 ? p->at->len : 60),
                          p->at->text);
}

static bool at_end_tag(const ag_jparser *p, const char *const *end_tags) {
    for (; end_tags && *end_tags; end_tags++) {
        if (ag_jparse_is_name(p, *end_tags)) return true;
    }
    return false;
}

static ag_jnode *parse_data(ag_jparser *p) {
    ag_jnode *n = ag_jnode_create(p, AG_JN_DATA);
    ag_jstr *s = n ? ag_jparse_string(p, p->at->text, p->at->len) : NULL;
    if (!s) return NULL;
    n->u.value = ag_jstring(s);
    p->at++;
    return n;
}

static ag_jnode *parse_variable(ag_jparser *p) {
    p->at++;
    ag_jnode *n = with_expression(p, AG_JN_PRINT, true);
    return n && ag_jparse_expect(p, AG_JT_VARIABLE_END) ? n : NULL;
}

bool ag_jparse_body(ag_jparser *p, const char *const *end_tags, ag_jbody *out) {
    size_t cap = 0;
    for (;;) {
        ag_jnode *n;
        if (p->at->kind == AG_JT_EOF) {
            if (!end_tags) return true;
            return ag_jparse_fail(p, "the template ends where '%s' was expected", end_tags[0]);
        } else if (p->at->kind == AG_JT_DATA) {
            n = parse_data(p);
        } else if (p->at->kind == AG_JT_VARIABLE_BEGIN) {
            n = parse_variable(p);
        } else {
            p->at++;
            if (at_end_tag(p, end_tags)) return true;
            n = parse_statement(p);
            if (n && !ag_jparse_expect(p, AG_JT_BLOCK_END)) return false;
        }
        if (!push_node(p, out, &cap, n)) return false;
    }
}

const char *ag_jnode_construct(const ag_jnode *s) {
    switch (s ? s->kind : AG_JN_DATA) {
    case AG_JN_PRINT:
        return "{{ }}";
    case AG_JN_FOR:
        return "{% for %}";
    case AG_JN_IF:
        return "{% if %}";
    case AG_JN_SET:
    case AG_JN_SET_BLOCK:
        return "{% set %}";
    case AG_JN_MACRO:
        return "{% macro %}";
    case AG_JN_CALL_BLOCK:
        return "{% call %}";
    case AG_JN_FILTER_BLOCK:
        return "{% filter %}";
    case AG_JN_WITH:
        return "{% with %}";
    case AG_JN_SCOPE:
        return "{% generation %}";
    default:
        return "the text";
    }
}
