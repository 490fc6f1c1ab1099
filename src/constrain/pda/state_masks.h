/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens can follow in a state of a rule, whoever called the rule: most of a mask, found once
 * for each state. What depends on the callers are tokens that go on behind the rule's end or into a
 * call: the exits, which are walked each time. */
#ifndef AG_CONSTRAIN_PDA_STATE_MASKS_H
#define AG_CONSTRAIN_PDA_STATE_MASKS_H

#include "constrain/pda/lazy_dfa.h"
#include "constrain/pda/token_tree.h"

/* Tokens below this node of the tree go on from `state`. */
typedef struct ag_uncertain_tokens {
    uint32_t node, state;
} ag_uncertain_tokens;

typedef struct ag_mask_entry {
    int32_t token;
    uint8_t chars; /* characters before the exit: see ag_state_mask.chars */
    bool last;     /* of the entries of a node */
} ag_mask_entry;

/* The same for many nodes with one state: what their tokens go on with, as one tree. */
typedef struct ag_mask_tree {
    uint32_t state;
    ag_token_node *nodes; /* token: the first of its entries, or -1 */
    uint32_t n_nodes;
    ag_mask_entry *entries;
} ag_mask_tree;

typedef struct ag_state_mask {
    uint32_t *bits; /* [(n_vocab + 31) / 32], or NULL: */
    int32_t *ids;   /* [n_ids] tokens that stay inside of the rule */
    size_t n_ids;
    ag_mask_entry *rule_ends; /* [n_closers] tokens that end where the rule may end, if apart */
    size_t n_rule_ends;
    ag_uncertain_tokens *uncertain;
    size_t n_uncertain;
    ag_mask_tree *trees;
    size_t n_trees;
    /* How often a token comes back to the state: characters of a string; one more if it ends
     * between. [n_vocab], if asked for; 255: or more. 0: not inside */
    uint8_t *chars;
    size_t n_bytes; /* of memory */
} ag_state_mask;

void ag_state_mask_free(ag_state_mask *m);

enum {
    AG_MASK_RULE_ENDS = 1, /* tokens that end where the rule may end are not among the ids */
    AG_MASK_CHARS = 2,     /* chars are wanted */
};
/* Expands states as it goes. Release with ag_state_mask_free whatever this returns. */
ag_status ag_state_mask_make(ag_state_mask *m, ag_lazy_dfa *dfa, const ag_token_tree *tree,
                             uint32_t state, unsigned flags, ag_error *err);

#endif
