/* SPDX-License-Identifier: Apache-2.0 */
/* Lazy DFA: deterministic states of a PDA's rules, computed on first use. A state is a set of
 * instructions of one rule. Calls and rule ends are not followed here: the matcher does that with a
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
    uint32_t rule, state; /* state: where the caller continues */
} ag_lazy_call;

typedef struct ag_lazy_state {
    bool expanded;
    bool ends;                   /* the rule may end in this state */
    uint16_t n_edges, n_calls;   /* both 0 until expanded */
    uint32_t edges_at, calls_at; /* index into ag_lazy_dfa.edges, .calls */
    uint32_t table;              /* 1 + row of ag_lazy_dfa.tables; 0: none, search the edges */
    uint32_t mask;               /* 1 + index of the state's mask; 0: none; AG_MASK_FAILED */
} ag_lazy_state;

typedef struct ag_lazy_limits {
    size_t states;
    size_t bytes;      /* memory of all states; the same limit holds for a matcher's stack */
    size_t work;       /* steps of one token: making states, trying bytes */
    size_t total_work; /* steps of all tokens of all texts since the last reset */
} ag_lazy_limits;

typedef struct ag_lazy_dfa {
    ag_pda *pda;
    size_t work_cap;  /* instructions that stamps, stack and list have capacity for */
    ag_status status; /* failure of opening a member set */
    ag_error error;
    uint32_t id_bit;
    ag_lazy_limits limits;
    size_t work;        /* steps of the current token */
    size_t work_before; /* part of `work` that `total` already includes */
    size_t total;       /* steps of earlier tokens */
    size_t check_at;    /* value of `work` at which ag_lazy_dfa_check() runs next */
    ag_interner sets;
    ag_lazy_state *states; /* [n_states] may be fewer than sets.n */
    size_t n_states, states_cap;
    ag_lazy_edge *edges;
    size_t n_edges, edges_cap;
    ag_lazy_call *calls;
    size_t n_calls, calls_cap;
    uint32_t (*tables)[256]; /* AG_NO_STATE: no edge */
    size_t n_tables, tables_cap;
    uint32_t *rule_starts;   /* [pda->n_rules] state + 1; 0: not made */
    uint32_t *stamps, round; /* [pda->n_insts] of closures: the round that visited an instruction */
    uint32_t *stack, *list;
    size_t n_list;
} ag_lazy_dfa;

#define AG_NO_STATE UINT32_MAX
#define AG_MASK_FAILED UINT32_MAX

/* Initialises s for a finished pda, which is borrowed and grows when member sets are opened.
 * Release with ag_lazy_dfa_free(), after a failure too. */
ag_status ag_lazy_dfa_init(ag_lazy_dfa *s, ag_pda *pda, const ag_lazy_limits *limits,
                           ag_error *err);
void ag_lazy_dfa_free(ag_lazy_dfa *s);
/* Returns the memory of the states. */
size_t ag_lazy_dfa_bytes(const ag_lazy_dfa *s);

/* Starts counting the steps of a call. n_done: steps that the same token has taken before. */
void ag_lazy_dfa_begin_count(ag_lazy_dfa *s, size_t n_done);
/* Removes the steps of the current call from the count. */
void ag_lazy_dfa_discount(ag_lazy_dfa *s);
/* Resets the count of all steps to 0: a new text begins. */
void ag_lazy_dfa_reset_count(ag_lazy_dfa *s);
/* Returns the steps since the last reset of the count. */
static inline size_t ag_lazy_dfa_total(const ag_lazy_dfa *s) {
    return s->total + s->work - s->work_before;
}
/* Fails with AG_LIMIT: one token needs more steps than the limit. */
ag_status ag_lazy_dfa_fail_limit(const ag_lazy_dfa *s, ag_error *err);
/* Fails with AG_LIMIT beyond a limit of steps, with AG_CANCELLED if the thread is interrupted. A
 * shared DFA is not interrupted. */
ag_status ag_lazy_dfa_check(ag_lazy_dfa *s, ag_error *err);
/* Counts n more steps. Fails as ag_lazy_dfa_check() does. */
static inline ag_status ag_lazy_dfa_charge(ag_lazy_dfa *s, size_t n, ag_error *err) {
    s->work += n;
    return s->work <= s->check_at ? AG_OK : ag_lazy_dfa_check(s, err);
}

/* Returns the first state of a PLAIN rule in *state. */
ag_status ag_lazy_dfa_start(ag_lazy_dfa *s, uint32_t rule, uint32_t *state, ag_error *err);
/* Computes a state's edges, calls and whether the rule may end in it. */
ag_status ag_lazy_dfa_expand(ag_lazy_dfa *s, uint32_t state, ag_error *err);

/* Returns whether the DFA must be rebuilt: it failed, or exceeds half of one of its limits. */
bool ag_lazy_dfa_needs_rebuild(const ag_lazy_dfa *s);

/* Returns whether the state holds nothing but the end of its rule. */
bool ag_lazy_dfa_only_ends(const ag_lazy_dfa *s, uint32_t state);

/* Returns the state after byte b, or AG_NO_STATE. x must be expanded. */
static inline uint32_t ag_lazy_dfa_step(const ag_lazy_dfa *s, const ag_lazy_state *x, uint8_t b) {
    if (x->table) return s->tables[x->table - 1][b];
    for (size_t i = 0; i < x->n_edges; i++) {
        const ag_lazy_edge *e = &s->edges[x->edges_at + i];
        if (b <= e->hi) return b >= e->lo ? e->state : AG_NO_STATE;
    }
    return AG_NO_STATE;
}

#endif
