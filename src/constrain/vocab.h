/* SPDX-License-Identifier: Apache-2.0 */
/* What constraints of one vocabulary share. */
#ifndef AG_CONSTRAIN_VOCAB_H
#define AG_CONSTRAIN_VOCAB_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/state_masks.h"
#include "platform/thread.h"

enum { AG_LENGTH_STEPS = 32 }; /* characters for which masks of strings are kept */

typedef struct ag_json_masks {
    ag_json_rules rules;
    ag_state_mask *masks; /* [rules.states.n_states] */
    /* Tokens that stay inside of a string and have at most i characters. */
    uint32_t *lengths[AG_LENGTH_STEPS + 1];
} ag_json_masks;

enum { AG_N_SPACINGS = AG_JSON_ANY_SPACE + 1 };

struct ag_constraint_vocab {
    ag_token_tree tree;
    size_t n_words;
    int32_t *eos_ids;
    size_t n_eos;
    ag_mutex lock; /* of making what follows; nothing of it changes once it is there */
    ag_json_masks *json[AG_N_SPACINGS];
};

/* Made at the first call. */
ag_status ag_constraint_vocab_json(const ag_constraint_vocab *v, ag_json_spacing spacing,
                                   const ag_json_masks **out, ag_error *err);

#endif
