/* SPDX-License-Identifier: Apache-2.0 */
/* State masks: the tokens that can follow in a state of a rule, for any caller. This is
 * most of a mask and is computed once per state. The other tokens continue after the rule's end or
 * into a called rule. They are uncertain and are walked for each text. */
#ifndef AG_CONSTRAIN_PDA_STATE_MASKS_H
#define AG_CONSTRAIN_PDA_STATE_MASKS_H

#include "constrain/pda/lazy_dfa.h"
#include "constrain/pda/token_tree.h"

/* Tokens below `node` of the token tree, once the text up to the node is in `state`. */
typedef struct ag_uncertain_tokens {
    uint32_t node, state;
} ag_uncertain_tokens;

typedef struct ag_mask_entry {
    int32_t token;
    uint8_t chars; /* characters before the uncertain part: see ag_state_mask.chars */
    bool last;     /* last entry of a node */
} ag_mask_entry;

/* The uncertain tokens of many nodes with the same state, as one tree of their remaining bytes. */
typedef struct ag_mask_tree {
    uint32_t state;
    ag_token_node *nodes; /* token: index of the node's first entry, or -1 */
    uint32_t n_nodes;
    ag_mask_entry *entries;
} ag_mask_tree;

typedef struct ag_state_mask {
    uint32_t *bits; /* [(n_vocab + 31) / 32], or NULL if `ids` has the tokens */
    int32_t *ids;   /* [n_ids] tokens that stay inside the rule */
    size_t n_ids;
    /* [n_rule_ends] tokens after which the rule may end (AG_MASK_RULE_ENDS). */
    ag_mask_entry *rule_ends;
    size_t n_rule_ends;
    ag_uncertain_tokens *uncertain;
    size_t n_uncertain;
    ag_mask_tree *trees;
    size_t n_trees;
    /* [n_vocab] with AG_MASK_CHARS, else NULL: how often the token returns to the state, which is
     * its number of characters in a string; one more if it ends elsewhere. 255: 255 or more. 0: the
     * token leaves the rule. */
    uint8_t *chars;
    size_t n_bytes; /* memory of this mask */
} ag_state_mask;

void ag_state_mask_free(ag_state_mask *m);

enum {
    AG_MASK_RULE_ENDS = 1, /* list tokens after which the rule may end in rule_ends, not in ids */
    AG_MASK_CHARS = 2,     /* fill chars */
};
/* Computes the mask of a state and expands states on the way. Release *m with ag_state_mask_free(),
 * after a failure too. */
ag_status ag_state_mask_make(ag_state_mask *m, ag_lazy_dfa *dfa, const ag_token_tree *tree,
                             uint32_t state, unsigned flags, ag_error *err);

#endif
