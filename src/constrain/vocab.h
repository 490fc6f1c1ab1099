/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabulary of constraints: its token tree, and the JSON rules and masks that constraints
 * share. */
#ifndef AG_CONSTRAIN_VOCAB_H
#define AG_CONSTRAIN_VOCAB_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/state_masks.h"
#include "platform/thread.h"

enum { AG_LENGTH_STEPS = 32 }; /* lengths, in characters, with a mask of their own */

typedef struct ag_json_masks {
    ag_json_rules rules;
    ag_state_mask *masks; /* [rules.dfa.n_states] */
    /* lengths[i]: tokens that stay inside a string and have 1 to i characters. lengths[0] is
     * NULL. */
    uint32_t *lengths[AG_LENGTH_STEPS + 1];
} ag_json_masks;

enum { AG_N_SPACINGS = AG_JSON_ANY_SPACE + 1 };

struct ag_constraint_vocab {
    ag_token_tree tree;
    size_t n_words;
    int32_t *eos_ids;
    size_t n_eos;
    ag_mutex lock; /* guards `json`; an entry does not change after it is set */
    ag_json_masks *json[AG_N_SPACINGS];
};

/* Returns the JSON rules and masks of a spacing. The first call makes them. */
ag_status ag_constraint_vocab_json(const ag_constraint_vocab *v, ag_json_spacing spacing,
                                   const ag_json_masks **out, ag_error *err);

#endif
