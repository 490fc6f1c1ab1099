/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/matcher.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

#define NO_EDGE UINT32_MAX

void ag_matcher_free(ag_matcher *m) {
    ag_free(m->threads);
    ag_free(m->nodes);
    ag_free(m->edges);
    ag_free(m->positions);
    *m = (ag_matcher){0};
}

ag_status ag_matcher_state(ag_matcher *m, uint32_t state, const ag_lazy_state **out) {
    if (!(state & AG_PDA_SHARED) && !m->dfa->states[state].expanded) {
        AG_TRY(ag_lazy_dfa_expand(m->dfa, state, m->err));
    }
    *out = &ag_matcher_dfa(m, state)->states[state & ~AG_PDA_SHARED];
    return AG_OK;
}

const ag_pda_rule *ag_matcher_rule(const ag_matcher *m, uint32_t rule) {
    const ag_pda *pda = rule & AG_PDA_SHARED ? &m->json->pda : m->dfa->pda;
    return &pda->rules[rule & ~AG_PDA_SHARED];
}

/* ---- the stack ---- */

size_t ag_matcher_bytes(const ag_matcher *m) {
    return m->nodes_cap * sizeof *m->nodes + m->edges_cap * sizeof *m->edges;
}

/* Checks the limit before nodes or edges grow. */
static ag_status check_stack(const ag_matcher *m) {
    const size_t bytes = ag_matcher_bytes(m);
    if (bytes <= m->dfa->limits.bytes) return AG_OK;
    return AG_FAIL(m->err, LIMIT,
                   "the constraint is too expensive: open rules take more than %zu bytes",
                   m->dfa->limits.bytes);
}

static ag_status push_node(ag_matcher *m, uint32_t rule, uint32_t *node) {
    if (m->n_nodes == m->nodes_cap) {
        AG_TRY(check_stack(m));
        AG_TRY(AG_GROW(m->nodes, &m->nodes_cap, m->n_nodes + 1, m->err));
    }
    m->nodes[m->n_nodes] = (ag_stack_node){rule, NO_EDGE};
    *node = (uint32_t)m->n_nodes++;
    return AG_OK;
}

static ag_status push_edge(ag_matcher *m, uint32_t node, uint32_t state, uint32_t caller) {
    size_t n = 0;
    bool known = false;
    for (uint32_t e = m->nodes[node].edge; e != NO_EDGE && !known; e = m->edges[e].next, n++)
        known = m->edges[e].state == state && m->edges[e].node == caller;
    AG_TRY(ag_lazy_dfa_charge(m->dfa, n, m->err));
    if (known) return AG_OK;
    if (m->n_edges == m->edges_cap) {
        AG_TRY(check_stack(m));
        AG_TRY(AG_GROW(m->edges, &m->edges_cap, m->n_edges + 1, m->err));
    }
    m->edges[m->n_edges] = (ag_stack_edge){state, caller, m->nodes[node].edge};
    m->nodes[node].edge = (uint32_t)m->n_edges++;
    return AG_OK;
}

static uint32_t position_nodes(const ag_matcher *m) {
    return m->positions[m->n_positions - 1].n_nodes;
}

static ag_status push_thread(ag_matcher *m, uint32_t state, uint32_t node, uint32_t extra) {
    const uint32_t first = m->positions[m->n_positions - 1].first_thread;
    size_t i = first;
    for (; i < m->n_threads; i++) {
        const ag_thread *t = &m->threads[i];
        if (t->state == state && t->node == node && t->extra == extra) break;
    }
    AG_TRY(ag_lazy_dfa_charge(m->dfa, i - first, m->err));
    if (i < m->n_threads) return AG_OK;
    if (m->n_threads - first >= m->max_threads) {
        return AG_FAIL(m->err, LIMIT,
                       "the constraint is too ambiguous: the text has more than %zu readings",
                       m->max_threads);
    }
    if (m->n_threads == m->threads_cap) {
        AG_TRY(AG_GROW(m->threads, &m->threads_cap, m->n_threads + 1, m->err));
    }
    m->threads[m->n_threads++] = (ag_thread){state, node, extra};
    return AG_OK;
}

/* Ends the rule of `node`: its callers continue. A rule that started at this position matched no
 * byte; follow_call() has continued its callers already. */
static ag_status follow_end(ag_matcher *m, uint32_t node) {
    if (node >= position_nodes(m)) return AG_OK;
    if (node == 0) m->complete = true;
    for (uint32_t e = m->nodes[node].edge; e != NO_EDGE; e = m->edges[e].next) {
        const ag_stack_edge edge = m->edges[e];
        AG_TRY(push_thread(m, edge.state, edge.node, 0));
    }
    return AG_OK;
}

static ag_status start_state(ag_matcher *m, const ag_pda_rule *r, uint32_t rule, uint32_t *state,
                             uint32_t *extra) {
    *extra = 0;
    switch (r->kind) {
    case AG_RULE_LENGTH:
        *state = m->json->string_start;
        return AG_OK;
    case AG_RULE_NAME:
        *state = m->json->name_start;
        *extra = r->guard + 1;
        return AG_OK;
    case AG_RULE_PLAIN:
        break;
    }
    if (rule & AG_PDA_SHARED) {
        *state = (m->json->dfa.rule_starts[rule & ~AG_PDA_SHARED] - 1) | AG_PDA_SHARED;
        return AG_OK;
    }
    return ag_lazy_dfa_start(m->dfa, rule, state, m->err);
}

/* Links a callee to its caller. If the caller can only end, links the callee to the caller's
 * callers instead, so right recursion needs no more stack than a loop. */
static ag_status link_caller(ag_matcher *m, uint32_t callee, uint32_t state, uint32_t node) {
    const bool only_ends = ag_lazy_dfa_only_ends(ag_matcher_dfa(m, state), state);
    if (!only_ends || node == 0 || node >= position_nodes(m)) {
        return push_edge(m, callee, state, node);
    }
    for (uint32_t e = m->nodes[node].edge; e != NO_EDGE; e = m->edges[e].next) {
        const ag_stack_edge edge = m->edges[e];
        AG_TRY(push_edge(m, callee, edge.state, edge.node));
    }
    return AG_OK;
}

static ag_status follow_call(ag_matcher *m, ag_lazy_call call, uint32_t node) {
    const ag_pda_rule *rule = ag_matcher_rule(m, call.rule);
    uint32_t callee = position_nodes(m);
    while (callee < m->n_nodes && m->nodes[callee].rule != call.rule) callee++;
    AG_TRY(ag_lazy_dfa_charge(m->dfa, callee - position_nodes(m), m->err));
    const bool known = callee < m->n_nodes;
    if (!known) AG_TRY(push_node(m, call.rule, &callee));
    AG_TRY(link_caller(m, callee, call.state, node));
    if (rule->nullable) AG_TRY(push_thread(m, call.state, node, 0));
    if (known) return AG_OK;
    uint32_t state, extra;
    AG_TRY(start_state(m, rule, call.rule, &state, &extra));
    return push_thread(m, state, callee, extra);
}

/* Follows the calls and the rule end of a state. */
static ag_status follow(ag_matcher *m, uint32_t state, uint32_t node) {
    const ag_lazy_state *x;
    AG_TRY(ag_matcher_state(m, state, &x));
    const bool ends = x->ends;
    const uint32_t calls_at = x->calls_at;
    const size_t n_calls = x->n_calls;
    if (ends) AG_TRY(follow_end(m, node));
    AG_TRY(ag_lazy_dfa_charge(m->dfa, n_calls, m->err));
    for (size_t i = 0; i < n_calls; i++) {
        AG_TRY(follow_call(m, ag_matcher_dfa(m, state)->calls[calls_at + i], node));
    }
    return AG_OK;
}

/* Does the same for all threads of the newest position, including those that it adds. */
static ag_status follow_all(ag_matcher *m) {
    for (size_t i = m->positions[m->n_positions - 1].first_thread; i < m->n_threads; i++) {
        AG_TRY(ag_lazy_dfa_charge(m->dfa, 1, m->err));
        AG_TRY(follow(m, m->threads[i].state, m->threads[i].node));
    }
    return AG_OK;
}

/* ---- byte positions ---- */

static ag_status open_position(ag_matcher *m) {
    if (m->n_positions == m->positions_cap) {
        AG_TRY(AG_GROW(m->positions, &m->positions_cap, m->n_positions + 1, m->err));
    }
    m->positions[m->n_positions++] =
        (ag_byte_position){(uint32_t)m->n_threads, (uint32_t)m->n_nodes, (uint32_t)m->n_edges};
    m->complete = false;
    return AG_OK;
}

/* Updates the extra state of a LENGTH or NAME rule for a byte. Returns false if the rule rejects
 * the byte. */
static bool advance_extra(const ag_matcher *m, const ag_pda_rule *r, const ag_thread *t,
                          uint8_t byte, uint32_t *extra) {
    *extra = t->extra;
    if (r->kind == AG_RULE_LENGTH) {
        if (t->state != m->json->string_inside) return true;
        if (byte == '"') return t->extra >= r->min;
        *extra = t->extra + 1;
        return t->extra < r->max;
    }
    if (t->state == m->json->name_start || !t->extra) return true;
    const ag_name_node *names = m->dfa->pda->names;
    if (byte == '"' && t->state == m->json->name_inside) return !names[t->extra - 1].ends;
    const uint32_t child = ag_name_child(names, t->extra - 1, byte);
    *extra = child ? child + 1 : 0;
    return true;
}

ag_status ag_matcher_step(ag_matcher *m, uint8_t byte) {
    const uint32_t first = m->positions[m->n_positions - 1].first_thread;
    const uint32_t end = (uint32_t)m->n_threads;
    AG_TRY(open_position(m));
    AG_TRY(ag_lazy_dfa_charge(m->dfa, end - first + 1, m->err));
    for (uint32_t i = first; i < end; i++) {
        const ag_thread t = m->threads[i];
        const ag_lazy_state *x;
        AG_TRY(ag_matcher_state(m, t.state, &x));
        const uint32_t state = ag_lazy_dfa_step(ag_matcher_dfa(m, t.state), x, byte);
        if (state == AG_NO_STATE) continue;
        const ag_pda_rule *r = ag_matcher_rule(m, m->nodes[t.node].rule);
        uint32_t extra = 0;
        if (r->kind != AG_RULE_PLAIN && !advance_extra(m, r, &t, byte, &extra)) continue;
        AG_TRY(push_thread(m, state, t.node, extra));
    }
    return follow_all(m);
}

ag_status ag_matcher_follow(ag_matcher *m, uint32_t state, uint32_t node) {
    AG_TRY(open_position(m));
    AG_TRY(follow(m, state, node));
    return follow_all(m);
}

ag_status ag_matcher_open_thread(ag_matcher *m, const ag_thread *t) {
    const ag_thread copy = *t;
    AG_TRY(open_position(m));
    return push_thread(m, copy.state, copy.node, copy.extra);
}

void ag_matcher_rewind(ag_matcher *m, size_t n) {
    if (n >= m->n_positions) return;
    const ag_byte_position *p = &m->positions[n];
    m->n_threads = p->first_thread;
    m->n_nodes = p->n_nodes;
    m->n_edges = p->n_edges;
    m->n_positions = n;
}

void ag_matcher_commit(ag_matcher *m) {
    const ag_byte_position last = m->positions[m->n_positions - 1];
    const size_t n = m->n_threads - last.first_thread;
    memmove(m->threads, m->threads + last.first_thread, n * sizeof *m->threads);
    m->n_threads = n;
    m->positions[0] = (ag_byte_position){0, last.n_nodes, last.n_edges};
    m->n_positions = 1;
}

ag_status ag_matcher_reset(ag_matcher *m, ag_error *err) {
    m->err = err;
    ag_lazy_dfa_begin_count(m->dfa, 0);
    m->n_threads = m->n_nodes = m->n_edges = m->n_positions = 0;
    uint32_t root, state, extra;
    AG_TRY(push_node(m, m->root_rule, &root));
    AG_TRY(open_position(m));
    const ag_pda_rule *r = ag_matcher_rule(m, m->root_rule);
    AG_TRY(start_state(m, r, m->root_rule, &state, &extra));
    AG_TRY(push_thread(m, state, root, extra));
    return follow_all(m);
}

ag_status ag_matcher_init(ag_matcher *m, ag_lazy_dfa *dfa, const ag_json_rules *json,
                          uint32_t root_rule, size_t max_threads, ag_error *err) {
    *m = (ag_matcher){.dfa = dfa, .json = json, .root_rule = root_rule, .max_threads = max_threads};
    return ag_matcher_reset(m, err);
}

ag_status ag_matcher_copy(ag_matcher *to, const ag_matcher *from, ag_error *err) {
    AG_TRY(AG_ASSIGN(to->threads, &to->threads_cap, from->threads, from->n_threads, err));
    AG_TRY(AG_ASSIGN(to->nodes, &to->nodes_cap, from->nodes, from->n_nodes, err));
    AG_TRY(AG_ASSIGN(to->edges, &to->edges_cap, from->edges, from->n_edges, err));
    AG_TRY(AG_ASSIGN(to->positions, &to->positions_cap, from->positions, from->n_positions, err));
    to->n_threads = from->n_threads;
    to->n_nodes = from->n_nodes;
    to->n_edges = from->n_edges;
    to->n_positions = from->n_positions;
    to->complete = from->complete;
    to->dfa = from->dfa;
    to->json = from->json;
    to->root_rule = from->root_rule;
    to->max_threads = from->max_threads;
    return AG_OK;
}
