/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled constraint and a text's place in it. */
#ifndef AG_CONSTRAIN_CONSTRAINT_H
#define AG_CONSTRAIN_CONSTRAINT_H

#include "constrain/pda/mask_cache.h"
#include "constrain/pda/matcher.h"
#include "constrain/vocab.h"
#include "text/sampler_filter.h"

/* Shared by clones. */
typedef struct ag_constraint_program ag_constraint_program;
struct ag_constraint_program {
    const ag_constraint_vocab *vocab;
    const ag_json_masks *json;
    size_t users;
    ag_pda pda;
    uint32_t root; /* rule */
    ag_lazy_dfa dfa;
    ag_state_mask *masks; /* [n_masks] of states: ag_lazy_state.mask - 1 */
    size_t n_masks, masks_cap;
    size_t mask_bytes, max_mask_bytes;
    ag_mask_cache cache;         /* its bytes are in mask_bytes */
    ag_constraint_program *next; /* the same anew, when this one is worn; or NULL */
};

struct ag_constraint {
    ag_token_filter filter; /* what a sampler sees */
    ag_constraint_program *program;
    ag_matcher matcher;
    uint32_t *mask; /* [n_words] */
    ag_ids forced;  /* owned; to write on */
    bool mask_known, complete, ended;
    bool at_start;
    size_t steps;     /* steps of the newest token, without its mask */
    ag_status status; /* of an accept that nobody waited for */
    ag_error error;
};

/* Drops all masks if they exceed their limit of bytes. */
void ag_constraint_trim_masks(ag_constraint_program *p);
/* The mask of one of the program's own states; kept. */
ag_status ag_constraint_state_mask(ag_constraint_program *p, uint32_t state,
                                   const ag_state_mask **out, ag_error *err);

/* Returns the steps of c and all constraints that share its program since the last reset. Work for
 * drafts (ag_constraint_forced) is not counted. */
size_t ag_constraint_steps(const ag_constraint *c);

/* What has grown so far: of what clones share, and of this one. */
size_t ag_constraint_shared_bytes(const ag_constraint *c);
size_t ag_constraint_own_bytes(const ag_constraint *c);

/* mask.c: sets the bits of tokens that may follow, but for those that end the text. */
ag_status ag_constraint_fill_mask(ag_constraint *c, ag_error *err);

#endif
