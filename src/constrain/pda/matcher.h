/* SPDX-License-Identifier: Apache-2.0 */
/* Matcher: the state of a text in a PDA, as a set of threads. A thread is a DFA state and a stack
 * of callers. Stacks share nodes: a node is a rule that started at some byte, its edges lead to the
 * callers that called it there. This bounds left recursion, and ambiguous grammars cost polynomial
 * time. Source: the graph-structured stacks of Tomita, "Efficient Parsing for Natural Language",
 * 1985. */
#ifndef AG_CONSTRAIN_PDA_MATCHER_H
#define AG_CONSTRAIN_PDA_MATCHER_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/lazy_dfa.h"

typedef struct ag_thread {
    uint32_t state, node;
    /* LENGTH: characters so far. NAME: node of the tree of excluded names + 1; 0: the name is not
     * in the tree. */
    uint32_t extra;
} ag_thread;

typedef struct ag_stack_node {
    uint32_t rule;
    uint32_t edge; /* newest edge of a list; UINT32_MAX: none */
} ag_stack_node;

typedef struct ag_stack_edge {
    uint32_t state, node; /* state in which the caller continues, and its stack node */
    uint32_t next;
} ag_stack_edge;

/* Sizes of the matcher's arrays when a byte position was opened. Its threads are [first_thread,
 * n_threads) until the next position is opened. */
typedef struct ag_byte_position {
    uint32_t first_thread, n_nodes, n_edges;
} ag_byte_position;

typedef struct ag_matcher {
    ag_lazy_dfa *dfa;          /* borrowed */
    const ag_json_rules *json; /* borrowed */
    ag_thread *threads;
    size_t n_threads, threads_cap;
    ag_stack_node *nodes; /* [0] is the root: the rule of the whole text */
    size_t n_nodes, nodes_cap;
    ag_stack_edge *edges;
    size_t n_edges, edges_cap;
    ag_byte_position *positions; /* [0] is the text's; the others are tried bytes */
    size_t n_positions, positions_cap;
    size_t max_threads;
    bool complete; /* the text may end at the newest position */
    uint32_t root_rule;
    ag_error *err; /* error output of the current call */
} ag_matcher;

ag_status ag_matcher_init(ag_matcher *m, ag_lazy_dfa *dfa, const ag_json_rules *json,
                          uint32_t root_rule, size_t max_threads, ag_error *err);
void ag_matcher_free(ag_matcher *m);
/* Returns the bytes of the stack. */
size_t ag_matcher_bytes(const ag_matcher *m);
/* Returns to the start of the text. */
ag_status ag_matcher_reset(ag_matcher *m, ag_error *err);
/* Makes `to`, zeroed or initialised, a copy of `from`. */
ag_status ag_matcher_copy(ag_matcher *to, const ag_matcher *from, ag_error *err);

/* Returns the threads of the newest position. */
static inline const ag_thread *ag_matcher_threads(const ag_matcher *m, size_t *n) {
    const uint32_t first = m->positions[m->n_positions - 1].first_thread;
    *n = m->n_threads - first;
    return m->threads + first;
}

/* Returns the DFA that a state belongs to. */
static inline const ag_lazy_dfa *ag_matcher_dfa(const ag_matcher *m, uint32_t state) {
    return state & AG_PDA_SHARED ? &m->json->dfa : m->dfa;
}
/* Returns a state, expanded, in *out. It is valid until another state is made. */
ag_status ag_matcher_state(ag_matcher *m, uint32_t state, const ag_lazy_state **out);
/* Returns a rule by its number. */
const ag_pda_rule *ag_matcher_rule(const ag_matcher *m, uint32_t rule);

/* Opens a position after the newest one and feeds the byte. Without a thread there the byte
 * is invalid. */
ag_status ag_matcher_step(ag_matcher *m, uint8_t byte);
/* Opens a position with the threads that `state` reaches by calls and rule ends alone, without
 * `state` itself. node: the stack node of `state`. */
ag_status ag_matcher_follow(ag_matcher *m, uint32_t state, uint32_t node);
/* Opens a position with this one thread. */
ag_status ag_matcher_open_thread(ag_matcher *m, const ag_thread *t);
/* Drops the positions from n on. */
void ag_matcher_rewind(ag_matcher *m, size_t n);
/* Makes the newest position the text's position and drops the others. */
void ag_matcher_commit(ag_matcher *m);

#endif
