/* SPDX-License-Identifier: Apache-2.0 */
/* Constraint: a compiled program, and the state of one text in it. */
#ifndef AG_CONSTRAIN_CONSTRAINT_H
#define AG_CONSTRAIN_CONSTRAINT_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/mask_cache.h"
#include "constrain/pda/matcher.h"
#include "constrain/pda/token_tree.h"
#include "constrain/trigger.h"
#include "constrain/vocab.h"
#include "text/sampler_filter.h"

/* A compiled constraint with its caches. Clones share it. */
typedef struct ag_constraint_program ag_constraint_program;
struct ag_constraint_program {
    const ag_constraint_vocab *vocab;
    const ag_json_masks *json;
    size_t users;
    ag_pda pda;
    uint32_t root;       /* number of the rule of the entire text */
    ag_trigger *trigger; /* shared; NULL: the entire text is constrained */
    ag_lazy_dfa dfa;
    /* [n_masks] of states of `dfa`; ag_lazy_state.mask is the index + 1. */
    ag_state_mask *masks;
    size_t n_masks, masks_cap;
    size_t mask_bytes, max_mask_bytes;
    ag_mask_cache cache;         /* mask_bytes includes its bytes */
    ag_constraint_program *next; /* replaces this one once it needs a rebuild; NULL: not made */
};

struct ag_constraint {
    ag_token_filter filter; /* the interface for a sampler */
    ag_constraint_program *program;
    ag_matcher matcher;
    uint32_t *mask; /* [n_words] */
    ag_ids forced;  /* scratch for filter_forced(); owned */
    bool mask_known, complete, ended;
    bool at_start;
    /* With a trigger, the text is free until it fires, and again after the end of the constrained
     * part. `mask` then excludes the tokens that ag_constraint_accept() has rejected. */
    bool is_free;
    uint32_t n_excluded; /* tokens that the mask of free text forbids */
    ag_trigger_state scan;
    size_t steps;     /* steps of the newest token, without its mask */
    ag_status status; /* failure of a filter function that returns no status */
    ag_error error;
};

/* Drops all masks if they exceed max_mask_bytes. */
void ag_constraint_trim_masks(ag_constraint_program *p);
/* Returns the mask of one of the program's own states in *out, from the cache if it is there. The
 * mask is valid until ag_constraint_trim_masks() or the next call. */
ag_status ag_constraint_state_mask(ag_constraint_program *p, uint32_t state,
                                   const ag_state_mask **out, ag_error *err);

/* Returns the steps of c and all constraints that share its program since the last reset. Excludes
 * the steps of ag_constraint_forced(). */
size_t ag_constraint_steps(const ag_constraint *c);

/* Return the bytes of caches that clones share, and the bytes of this constraint alone. */
size_t ag_constraint_shared_bytes(const ag_constraint *c);
size_t ag_constraint_own_bytes(const ag_constraint *c);

/* Makes samplers leave it to ag_constraint_watch() to check sampled tokens. */
void ag_constraint_leave_to_watch(ag_constraint *c);
/* Returns whether every token may follow, but for those that were rejected. */
bool ag_constraint_is_free(const ag_constraint *c);
/* Adds a token to a free text if it does not fire the trigger. *fires: it does; nothing changes,
 * and ag_constraint_accept() must decide. Reads nothing that other texts of the program change. */
ag_status ag_constraint_watch(ag_constraint *c, int32_t id, bool *fires, ag_error *err);

/* mask.c: sets the bits of tokens that may follow, except those that end the text. */
ag_status ag_constraint_fill_mask(ag_constraint *c, ag_error *err);

/* compile.c. Writes the rules of the constraint into pda. *root: the rule of the entire text.
 * *trigger: owned; NULL if there is none. An instruction may have failed without an error here:
 * ag_pda_finish() returns that status. */
ag_status ag_constraint_compile(ag_pda *pda, const ag_json_rules *json, const ag_token_tree *tokens,
                                const ag_constraint_params *params, uint32_t *root,
                                ag_trigger **trigger, ag_error *err);

#endif
