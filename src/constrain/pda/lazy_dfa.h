/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic states of a net's rules, made when they are first needed: each is a set of
 * instructions of one rule. Calls and ends are not followed here: matcher.h does that, with a
 * stack. */
#ifndef AG_CONSTRAIN_PDA_LAZY_DFA_H
#define AG_CONSTRAIN_PDA_LAZY_DFA_H

#include "constrain/interner.h"
#include "constrain/pda/pda.h"

typedef struct ag_lazy_edge {
    uint8_t lo, hi;
    uint32_t state;
} ag_lazy_edge;

typedef struct ag_lazy_call {
    uint32_t rule, state; /* state: where the caller goes on */
} ag_lazy_call;

typedef struct ag_lazy_state {
    bool expanded;
    bool ends;                   /* the rule may end here */
    uint16_t n_edges, n_calls;   /* both 0 before it is expanded */
    uint32_t edges_at, calls_at; /* in ag_lazy_dfa.edges, .calls */
    uint32_t table;              /* 1 + row of ag_lazy_dfa.tables; 0: search the edges */
    uint32_t mask; /* 1 + what state_masks.h keeps of it; 0: nothing; AG_MASK_FAILED */
} ag_lazy_state;

typedef struct ag_lazy_limits {
    size_t states;
    size_t bytes;      /* limit of all states, and of all stacks of a matcher */
    size_t work;       /* steps for one token: making states, trying bytes */
    size_t total_work; /* steps for all tokens of all texts since the last reset */
} ag_lazy_limits;

typedef struct ag_lazy_dfa {
    ag_pda *pda;
    size_t work_cap;  /* instructions that marks, stack and list have room for */
    ag_status status; /* of opening sets; not OK: error */
    ag_error error;
    uint32_t id_bit;
    ag_lazy_limits limits;
    size_t work;        /* steps of the current token */
    size_t work_before; /* part of `work` that `total` includes already */
    size_t total;       /* steps of earlier calls */
    size_t check_at;    /* work at which ag_lazy_dfa_check() is called next */
    ag_interner sets;
    ag_lazy_state *states; /* as many as sets.n, when expanded or asked for */
    size_t n_states, states_cap;
    ag_lazy_edge *edges;
    size_t n_edges, edges_cap;
    ag_lazy_call *calls;
    size_t n_calls, calls_cap;
    uint32_t (*tables)[256]; /* AG_NO_STATE: no way */
    size_t n_tables, tables_cap;
    uint32_t *rule_starts;   /* [net->n_rules] state + 1, or 0 */
    uint32_t *stamps, round; /* of closures: [net->n_ops] */
    uint32_t *stack, *list;
    size_t n_list;
} ag_lazy_dfa;

#define AG_NO_STATE UINT32_MAX
#define AG_MASK_FAILED UINT32_MAX

/* net: finished; borrowed, and it grows as sets of members are opened. Release with
 * ag_lazy_dfa_free whatever this returns. */
ag_status ag_lazy_dfa_init(ag_lazy_dfa *s, ag_pda *pda, const ag_lazy_limits *limits,
                           ag_error *err);
void ag_lazy_dfa_free(ag_lazy_dfa *s);
size_t ag_lazy_dfa_bytes(const ag_lazy_dfa *s);

/* Starts counting the steps of a call. n_done: steps that the same token has taken before. */
void ag_lazy_dfa_begin_count(ag_lazy_dfa *s, size_t n_done);
/* Removes the steps of the current call from the count. */
void ag_lazy_dfa_discount(ag_lazy_dfa *s);
/* Sets the count of all steps to 0: a new text begins. */
void ag_lazy_dfa_reset_count(ag_lazy_dfa *s);
/* Returns the steps since the last reset of the count. */
static inline size_t ag_lazy_dfa_total(const ag_lazy_dfa *s) {
    return s->total + s->work - s->work_before;
}
/* Fails with AG_LIMIT: one token needs too many steps. */
ag_status ag_lazy_dfa_fail_limit(const ag_lazy_dfa *s, ag_error *err);
/* Fails with AG_LIMIT beyond a limit of steps, with AG_CANCELLED if the thread is interrupted. */
ag_status ag_lazy_dfa_check(ag_lazy_dfa *s, ag_error *err);
/* Counts n more steps; fails as ag_lazy_dfa_check() does. */
static inline ag_status ag_lazy_dfa_charge(ag_lazy_dfa *s, size_t n, ag_error *err) {
    s->work += n;
    return s->work <= s->check_at ? AG_OK : ag_lazy_dfa_check(s, err);
}

/* The state in which a PLAIN rule begins. */
ag_status ag_lazy_dfa_start(ag_lazy_dfa *s, uint32_t rule, uint32_t *state, ag_error *err);
/* Computes edges, calls and end of a state. */
ag_status ag_lazy_dfa_expand(ag_lazy_dfa *s, uint32_t state, ag_error *err);

/* Whether so much was opened and made, or something failed, that a new beginning is due. */
bool ag_lazy_dfa_needs_rebuild(const ag_lazy_dfa *s);

/* Whether nothing but the end of the rule is in a state. */
bool ag_lazy_dfa_only_ends(const ag_lazy_dfa *s, uint32_t state);

/* Of an expanded state. */
static inline uint32_t ag_lazy_dfa_step(const ag_lazy_dfa *s, const ag_lazy_state *x, uint8_t b) {
    if (x->table) return s->tables[x->table - 1][b];
    for (size_t i = 0; i < x->n_edges; i++) {
        const ag_lazy_edge *e = &s->edges[x->edges_at + i];
        if (b <= e->hi) return b >= e->lo ? e->state : AG_NO_STATE;
    }
    return AG_NO_STATE;
}

#endif
