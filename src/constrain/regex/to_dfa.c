/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a regex tree to a nondeterministic program and that to a DFA by the subset construction.
 * The program is written back to front. */
#include "constrain/interner.h"
#include "constrain/interrupts.h"
#include "constrain/regex/text_dfa.h"
#include "constrain/regex/tree.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef enum step_kind { STEP_SET, STEP_SPLIT, STEP_BEGIN, STEP_END, STEP_MATCH } step_kind;

typedef struct step {
    step_kind kind;
    uint32_t next, other; /* SPLIT: both alternatives; NO_STEP: not written yet */
    uint32_t set;
} step;

typedef struct machine {
    step *steps;
    size_t n, cap;
    const ag_regex_tree *tree;
    ag_char_set any;
    const ag_text_limits *limits;
    size_t work;
    /* scratch of closures */
    uint32_t *stamps, round;
    uint32_t *stack, *list;
    size_t n_list;
    ag_interner sets;
    ag_error *err;
} machine;

#define ANY_SET UINT32_MAX
enum { BORDER_WORK = 8 }; /* steps per range, which also takes memory */
#define NO_STEP UINT32_MAX

static ag_status add_step(machine *m, step s, uint32_t *id) {
    if (m->n >= 8 * m->limits->states) {
        return AG_FAIL(m->err, LIMIT, "too large: more than %zu instructions",
                       8 * m->limits->states);
    }
    AG_TRY(AG_GROW(m->steps, &m->cap, m->n + 1, m->err));
    m->steps[m->n] = s;
    *id = (uint32_t)m->n++;
    return AG_OK;
}

static ag_status charge_work(machine *m, size_t n) {
    m->work += n;
    if (m->work <= m->limits->work) return ag_compile_steps(n, m->err);
    return AG_FAIL(m->err, LIMIT, "too expensive: more than %zu steps", m->limits->work);
}

static ag_status emit_node(machine *m, uint32_t node, uint32_t next, uint32_t *id);

static ag_status emit_repeat(machine *m, const ag_regex_node *r, uint32_t next, uint32_t *id) {
    uint32_t at = next;
    if (r->max == AG_REGEX_NO_END) {
        uint32_t body;
        AG_TRY(add_step(m, (step){STEP_SPLIT, NO_STEP, next, 0}, &at));
        AG_TRY(emit_node(m, r->left, at, &body));
        m->steps[at].next = body;
    } else {
        for (uint32_t i = r->min; i < r->max; i++) {
            uint32_t body;
            AG_TRY(emit_node(m, r->left, at, &body));
            AG_TRY(add_step(m, (step){STEP_SPLIT, body, next, 0}, &at));
        }
    }
    for (uint32_t i = 0; i < r->min; i++) AG_TRY(emit_node(m, r->left, at, &at));
    *id = at;
    return AG_OK;
}

static ag_status emit_node(machine *m, uint32_t node, uint32_t next, uint32_t *id) {
    const ag_regex_node *r = &m->tree->nodes[node];
    uint32_t left, right;
    AG_TRY(charge_work(m, 1)); /* repeating an empty text writes no steps */
    switch (r->kind) {
    case AG_REGEX_EMPTY:
        *id = next;
        return AG_OK;
    case AG_REGEX_SET:
        return add_step(m, (step){STEP_SET, next, NO_STEP, r->set}, id);
    case AG_REGEX_CAT: { /* a chain leans to the left: loop instead of recursion */
        uint32_t at = node;
        for (; m->tree->nodes[at].kind == AG_REGEX_CAT; at = m->tree->nodes[at].left) {
            AG_TRY(emit_node(m, m->tree->nodes[at].right, next, &next));
        }
        return emit_node(m, at, next, id);
    }
    case AG_REGEX_ALT: {
        uint32_t at = node, tail = NO_STEP;
        for (; m->tree->nodes[at].kind == AG_REGEX_ALT; at = m->tree->nodes[at].left) {
            AG_TRY(emit_node(m, m->tree->nodes[at].right, next, &right));
            AG_TRY(add_step(m, (step){STEP_SPLIT, right, tail, 0}, &tail));
        }
        AG_TRY(emit_node(m, at, next, &left));
        return add_step(m, (step){STEP_SPLIT, left, tail, 0}, id);
    }
    case AG_REGEX_REPEAT:
        return emit_repeat(m, r, next, id);
    case AG_REGEX_BEGIN:
        return add_step(m, (step){STEP_BEGIN, next, NO_STEP, 0}, id);
    case AG_REGEX_END:
        return add_step(m, (step){STEP_END, next, NO_STEP, 0}, id);
    case AG_REGEX_AHEAD:
    case AG_REGEX_CALL:
        break;
    }
    return AG_FAIL(m->err, UNSUPPORTED, "lookahead is supported at the start only");
}

/* ---- subsets ---- */

/* Adds the steps that s reaches without a character. m->list gets steps with a character, ends and
 * matches. */
static void reach(machine *m, uint32_t s, bool at_begin, bool at_end) {
    size_t n = 0;
    m->stack[n++] = s;
    while (n) {
        s = m->stack[--n];
        if (s == NO_STEP || m->stamps[s] == m->round) continue;
        m->stamps[s] = m->round;
        m->work++;
        const step *x = &m->steps[s];
        if (x->kind == STEP_SPLIT) {
            m->stack[n++] = x->other;
            m->stack[n++] = x->next;
        } else if (x->kind == STEP_BEGIN) {
            if (at_begin) m->stack[n++] = x->next;
        } else {
            m->list[m->n_list++] = s;
            if (x->kind == STEP_END && at_end) m->stack[n++] = x->next;
        }
    }
}

static ag_status intern_list(machine *m, uint32_t *id) {
    ag_interner_sort(m->list, m->n_list);
    return ag_interner_add(&m->sets, m->list, m->n_list, m->limits->states, "automaton", id,
                           m->err);
}

static void begin_list(machine *m) {
    m->round++;
    m->n_list = 0;
}

/* Returns whether the text may end in this subset. */
static bool may_end(machine *m, uint32_t id, bool at_begin) {
    size_t n;
    const uint32_t *list = ag_interner_list(&m->sets, id, &n);
    begin_list(m);
    for (size_t i = 0; i < n; i++) reach(m, list[i], at_begin, true);
    for (size_t i = 0; i < m->n_list; i++) {
        if (m->steps[m->list[i]].kind == STEP_MATCH) return true;
    }
    return false;
}

static const ag_char_set *set_of(const machine *m, uint32_t s) {
    const uint32_t set = m->steps[s].set;
    return set == ANY_SET ? &m->any : &m->tree->sets[set];
}

static bool set_has(const ag_char_set *s, uint32_t cp) {
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (s->ranges[mid].hi < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < s->n && s->ranges[lo].lo <= cp;
}

/* Lists the characters at which the subset's sets begin and end. */
static ag_status find_borders(machine *m, uint32_t id, ag_char_set *borders) {
    size_t n;
    const uint32_t *list = ag_interner_list(&m->sets, id, &n);
    const ag_char_set *last = NULL;
    for (size_t i = 0; i < n; i++) {
        if (m->steps[list[i]].kind != STEP_SET) continue;
        const ag_char_set *s = set_of(m, list[i]);
        if (s == last) continue;
        last = s;
        AG_TRY(charge_work(m, BORDER_WORK * s->n));
        for (size_t k = 0; k < s->n; k++) {
            AG_TRY(ag_char_set_add(borders, s->ranges[k].lo, 0, m->err));
            AG_TRY(ag_char_set_add(borders, s->ranges[k].hi + 1, 0, m->err));
        }
    }
    return AG_OK;
}

static int compare_borders(const void *a, const void *b) {
    const ag_char_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static ag_status expand_subset(machine *m, uint32_t id, ag_text_dfa *out) {
    ag_char_set borders = {0};
    ag_status st = find_borders(m, id, &borders);
    if (st == AG_OK && borders.n) {
        qsort(borders.ranges, borders.n, sizeof *borders.ranges, compare_borders);
    }
    for (size_t b = 0; st == AG_OK && b + 1 < borders.n; b++) {
        const uint32_t lo = borders.ranges[b].lo, hi = borders.ranges[b + 1].lo;
        if (lo == hi) continue;
        size_t n;
        const uint32_t *list = ag_interner_list(&m->sets, id, &n);
        begin_list(m);
        for (size_t i = 0; i < n; i++) {
            if (m->steps[list[i]].kind == STEP_SET && set_has(set_of(m, list[i]), lo)) {
                reach(m, m->steps[list[i]].next, false, false);
            }
        }
        st = charge_work(m, n);
        if (!m->n_list) continue;
        uint32_t target;
        if (st == AG_OK) st = intern_list(m, &target);
        if (st == AG_OK) st = ag_text_dfa_add_edge(out, lo, hi - 1, target, m->err);
    }
    ag_char_set_free(&borders);
    return st;
}

static ag_status run_subsets(machine *m, uint32_t start, ag_text_dfa *out) {
    m->stamps = ag_calloc(m->n, sizeof *m->stamps);
    m->stack = ag_calloc(2 * m->n + 2, sizeof *m->stack);
    m->list = ag_calloc(m->n, sizeof *m->list);
    if (!m->stamps || !m->stack || !m->list) {
        return AG_FAIL(m->err, NOMEM, "regular expression of %zu instructions", m->n);
    }
    uint32_t id;
    begin_list(m);
    reach(m, start, true, false);
    AG_TRY(intern_list(m, &id));
    for (uint32_t s = 0; s < m->sets.n; s++) {
        AG_TRY(ag_text_dfa_add_state(out, may_end(m, s, s == 0), m->err));
        AG_TRY(expand_subset(m, s, out));
    }
    return ag_text_dfa_trim(out, m->err);
}

/* Writes any number of any characters, then next. */
static ag_status emit_any(machine *m, uint32_t next, uint32_t *id) {
    uint32_t body = NO_STEP;
    AG_TRY(add_step(m, (step){STEP_SPLIT, NO_STEP, next, 0}, id));
    AG_TRY(add_step(m, (step){STEP_SET, *id, NO_STEP, ANY_SET}, &body));
    m->steps[*id].next = body;
    return AG_OK;
}

/* before, after: any characters may precede or follow the match. */
static ag_status build_dfa(const ag_regex_tree *t, uint32_t root, bool before, bool after,
                           const ag_text_limits *limits, ag_text_dfa *out, ag_error *err) {
    machine m = {.tree = t, .limits = limits, .err = err};
    uint32_t at;
    ag_status st = ag_char_set_add(&m.any, 0, AG_CHAR_MAX, err);
    if (st == AG_OK) st = add_step(&m, (step){STEP_MATCH, NO_STEP, NO_STEP, 0}, &at);
    if (st == AG_OK && after) st = emit_any(&m, at, &at);
    if (st == AG_OK) st = emit_node(&m, root, at, &at);
    if (st == AG_OK && before) st = emit_any(&m, at, &at);
    if (st == AG_OK) st = run_subsets(&m, at, out);
    if (st == AG_OK) st = ag_text_limits_spend(limits, m.work + t->n, err);
    ag_char_set_free(&m.any);
    ag_interner_free(&m.sets);
    ag_free(m.steps);
    ag_free(m.stamps);
    ag_free(m.stack);
    ag_free(m.list);
    if (st != AG_OK) ag_text_dfa_free(out);
    return st;
}

/* ---- lookahead at the start ---- */

enum { MAX_AHEADS = 16 };

typedef struct front {
    bool anchored;               /* the match starts with the text */
    uint32_t aheads[MAX_AHEADS]; /* nodes */
    size_t n;
} front;

/* Removes ^ and lookaheads from the front of the tree. A sequence leans to the left: `open` holds
 * the sequences that contain the next part. Each part is visited once. */
static ag_status strip_front(ag_regex_tree *t, front *f, ag_error *err) {
    uint32_t *open = ag_calloc(t->n, sizeof *open);
    if (!open) return AG_FAIL(err, NOMEM, "regular expression of %zu nodes", t->n);
    size_t n_open = 0;
    uint32_t at = t->root;
    for (;;) {
        for (; t->nodes[at].kind == AG_REGEX_CAT; at = t->nodes[at].left) open[n_open++] = at;
        ag_regex_node *first = &t->nodes[at];
        if (first->kind == AG_REGEX_BEGIN) f->anchored = true;
        else if (first->kind == AG_REGEX_AHEAD && f->anchored && f->n < MAX_AHEADS)
            f->aheads[f->n++] = at;
        else break;
        if (!n_open) { /* nothing is left; the `left` of a lookahead stays valid */
            first->kind = AG_REGEX_EMPTY;
            break;
        }
        at = open[--n_open];
        t->nodes[at] = t->nodes[t->nodes[at].right];
    }
    ag_free(open);
    return AG_OK;
}

/* Combines *out with the texts of each lookahead. */
static ag_status build_with_ahead(ag_regex_tree *t, bool search, const ag_text_limits *limits,
                                  ag_text_dfa *out, ag_error *err) {
    front f = {.anchored = !search};
    AG_TRY(strip_front(t, &f, err));
    AG_TRY(build_dfa(t, t->root, !f.anchored, search, limits, out, err));
    for (size_t i = 0; i < f.n; i++) {
        const ag_regex_node *ahead = &t->nodes[f.aheads[i]];
        ag_text_dfa other = {0}, both = {0};
        ag_status st = build_dfa(t, ahead->left, false, true, limits, &other, err);
        if (st == AG_OK) {
            st = ag_text_dfa_combine(&both, out, &other,
                                     ahead->negative ? AG_TEXT_EXCEPT : AG_TEXT_AND, limits, err);
        }
        ag_text_dfa_free(&other);
        ag_text_dfa_free(out);
        *out = both;
        if (st != AG_OK) return st;
    }
    return AG_OK;
}

ag_status ag_text_dfa_regex(ag_text_dfa *out, const char *regex, size_t n, bool search,
                            const ag_text_limits *limits, ag_error *err) {
    *out = (ag_text_dfa){0};
    ag_regex_tree t;
    ag_status st = ag_regex_parse(&t, regex, n, err);
    if (st == AG_OK) st = build_with_ahead(&t, search, limits, out, err);
    ag_regex_tree_free(&t);
    return st;
}

/* ---- listed texts ---- */

typedef struct text_node {
    uint32_t cp, child, newest, sibling; /* 0: none; newest: the last child */
    bool ends;
} text_node;

typedef struct sorted_text {
    const char *s;
    size_t len;
} sorted_text;

/* By code points, whose order UTF-8 keeps. */
static int compare_texts(const void *a, const void *b) {
    const sorted_text *x = a, *y = b;
    const size_t n = x->len < y->len ? x->len : y->len;
    const int c = n ? memcmp(x->s, y->s, n) : 0;
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* Adds a text to the tree. Texts come in order, so it shares a prefix with the newest text only. */
static ag_status add_text(text_node **nodes, size_t *n, size_t *cap, const char *s, size_t len,
                          ag_error *err) {
    uint32_t at = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        i += ag_utf8_get(s + i, &cp);
        const uint32_t newest = (*nodes)[at].newest;
        uint32_t child = newest;
        if (!newest || (*nodes)[newest].cp != cp) {
            AG_TRY(AG_GROW(*nodes, cap, *n + 1, err));
            (*nodes)[*n] = (text_node){.cp = cp};
            child = (uint32_t)(*n)++;
            if (newest) (*nodes)[newest].sibling = child;
            else (*nodes)[at].child = child;
            (*nodes)[at].newest = child;
        }
        at = child;
    }
    (*nodes)[at].ends = true;
    return AG_OK;
}

ag_status ag_text_dfa_texts(ag_text_dfa *out, const char *const *texts, const size_t *lens,
                            size_t n, const ag_text_limits *limits, ag_error *err) {
    *out = (ag_text_dfa){0};
    size_t n_nodes = 1, cap = 0;
    text_node *nodes = NULL;
    ag_status st = AG_GROW(nodes, &cap, 1, err);
    sorted_text *list = ag_calloc(n, sizeof *list);
    if (st == AG_OK && !list) st = AG_FAIL(err, NOMEM, "list of %zu texts", n);
    if (st == AG_OK) nodes[0] = (text_node){0};
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        list[i] = (sorted_text){texts[i], lens[i]};
        if (ag_utf8_valid_prefix(texts[i], lens[i]) != lens[i]) {
            st = AG_FAIL(err, FORMAT, "text %zu: invalid UTF-8", i + 1);
        }
    }
    if (st == AG_OK && n) qsort(list, n, sizeof *list, compare_texts);
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        st = add_text(&nodes, &n_nodes, &cap, list[i].s, list[i].len, err);
        if (st == AG_OK && n_nodes > 16 * limits->states) {
            st = AG_FAIL(err, LIMIT, "the texts are too long: more than %zu characters together",
                         16 * limits->states);
        }
    }
    for (size_t s = 0; s < n_nodes && st == AG_OK; s++) {
        st = ag_text_dfa_add_state(out, nodes[s].ends, err);
        for (uint32_t c = nodes[s].child; c && st == AG_OK; c = nodes[c].sibling) {
            st = ag_text_dfa_add_edge(out, nodes[c].cp, nodes[c].cp, c, err);
        }
    }
    ag_free(nodes);
    ag_free(list);
    if (st == AG_OK) st = ag_text_limits_spend(limits, n_nodes, err);
    if (st == AG_OK) st = ag_text_dfa_trim(out, err);
    if (st != AG_OK) ag_text_dfa_free(out);
    return st;
}
