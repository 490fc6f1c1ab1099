/* SPDX-License-Identifier: Apache-2.0 */
/* Where a text stands in a grammar: a set of threads, each a state and a stack of callers. Stacks
 * share their parts: a node is a rule that began at some byte, its edges are those who called it
 * there. So left recursion ends, and ambiguous grammars cost polynomial time. Source: the graph
 * structured stacks of Tomita, "Efficient Parsing for Natural Language", 1985. */
#ifndef AG_CONSTRAIN_PDA_MATCHER_H
#define AG_CONSTRAIN_PDA_MATCHER_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/lazy_dfa.h"

typedef struct ag_thread {
    uint32_t state, node;
    uint32_t extra; /* LENGTH: characters so far; NAME: place in the tree of names + 1, 0: off it */
} ag_thread;

typedef struct ag_stack_node {
    uint32_t rule;
    uint32_t edge; /* the newest of a list; UINT32_MAX: none */
} ag_stack_node;

typedef struct ag_stack_edge {
    uint32_t state, node; /* where the caller goes on */
    uint32_t next;
} ag_stack_edge;

/* Threads of a byte's place: [first, n_threads) until the next place begins. */
typedef struct ag_byte_position {
    uint32_t first_thread, n_nodes, n_edges; /* when it began */
} ag_byte_position;

typedef struct ag_matcher {
    ag_lazy_dfa *dfa;          /* borrowed */
    const ag_json_rules *json; /* borrowed */
    ag_thread *threads;
    size_t n_threads, threads_cap;
    ag_stack_node *nodes; /* [0] is the root: the text */
    size_t n_nodes, nodes_cap;
    ag_stack_edge *edges;
    size_t n_edges, edges_cap;
    ag_byte_position *positions; /* [0] is where the text stands, others are tried */
    size_t n_positions, positions_cap;
    size_t max_threads;
    bool complete; /* the text may end at the newest place */
    uint32_t root_rule;
    ag_error *err; /* of the call that is running */
} ag_matcher;

ag_status ag_matcher_init(ag_matcher *m, ag_lazy_dfa *dfa, const ag_json_rules *json,
                          uint32_t root_rule, size_t max_threads, ag_error *err);
void ag_matcher_free(ag_matcher *m);
size_t ag_matcher_bytes(const ag_matcher *m); /* of open rules */
/* At the beginning of the text. */
ag_status ag_matcher_reset(ag_matcher *m, ag_error *err);
ag_status ag_matcher_copy(ag_matcher *to, const ag_matcher *from, ag_error *err);

/* Threads of the newest place. */
static inline const ag_thread *ag_matcher_threads(const ag_matcher *m, size_t *n) {
    const uint32_t first = m->positions[m->n_positions - 1].first_thread;
    *n = m->n_threads - first;
    return m->threads + first;
}

static inline const ag_lazy_dfa *ag_matcher_dfa(const ag_matcher *m, uint32_t state) {
    return state & AG_PDA_SHARED ? &m->json->dfa : m->dfa;
}
/* Expanded when it returns AG_OK. */
ag_status ag_matcher_state(ag_matcher *m, uint32_t state, const ag_lazy_state **out);
const ag_pda_rule *ag_matcher_rule(const ag_matcher *m, uint32_t rule);

/* Opens a place behind the newest and takes the byte there: without threads it was refused. */
ag_status ag_matcher_step(ag_matcher *m, uint8_t byte);
/* Opens a place in which a thread has left `state` by calls and ends, not by its bytes. */
ag_status ag_matcher_follow(ag_matcher *m, uint32_t state, uint32_t node);
/* Opens a place in which there is one thread. */
ag_status ag_matcher_open_thread(ag_matcher *m, const ag_thread *t);
/* Forgets places from n on. */
void ag_matcher_rewind(ag_matcher *m, size_t n);
/* The newest place becomes the text's. */
void ag_matcher_commit(ag_matcher *m);

#endif
