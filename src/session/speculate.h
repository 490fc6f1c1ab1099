/* SPDX-License-Identifier: Apache-2.0 */
/* How many tokens to guess before the model is asked: from what a step of so many rows costs on
 * this machine and from how often guesses come true, both measured while decoding goes on. A
 * ledger of what drafts have won and lost sees to it that they never cost more than a small part of
 * the time. */
#ifndef AG_SESSION_SPECULATE_H
#define AG_SESSION_SPECULATE_H

#include "session/draft_model.h"
#include "session/ngram_lookup.h"

#include <stdbool.h>

enum { AG_SPECULATE_ROWS = 15 }; /* of a step: the token chosen last, and a draft */
/* By how much of the text had been the same; then what a draft model guesses, and what a constraint
 * leaves as the only way on. */
enum {
    AG_SPECULATE_MATCH_BUCKETS = 5,
    AG_SPECULATE_MODEL = AG_SPECULATE_MATCH_BUCKETS,
    AG_SPECULATE_FORCED,
    AG_SPECULATE_BUCKETS,
};

/* Seconds of a step, by its rows. */
typedef struct ag_step_costs {
    double seconds[AG_SPECULATE_ROWS + 1];
    uint32_t n[AG_SPECULATE_ROWS + 1];   /* steps that were measured */
    bool was_far[AG_SPECULATE_ROWS + 1]; /* the last one was far from those before */
} ag_step_costs;

/* How often a guess of each grade came true. */
typedef struct ag_draft_acceptance {
    double hits[AG_SPECULATE_BUCKETS], tries[AG_SPECULATE_BUCKETS];
} ag_draft_acceptance;

typedef struct ag_speculation {
    ag_ngram_lookup *lookup; /* owned */
    ag_draft_model *model;   /* owned; NULL: there is none */
    uint32_t position;       /* of the session, behind the text that the lookup knows */
    ag_step_costs costs;
    ag_draft_acceptance acceptance;
    double saved_s;       /* seconds that drafts have saved; below 0: have cost */
    double baseline_s;    /* seconds of decoding, had there been no drafts */
    uint32_t since_one;   /* steps of drafts since the last of one row */
    uint32_t since_draft; /* steps without one since the last, or since something was forgotten */
    bool after_rejection,
        slow_rollback; /* the last draft was taken back; which delays the next step */
    /* Guesses of this step that the text did not make, and their grade; of a draft model how long
     * they took, and seconds for a token, usually. */
    size_t n_drafted_tokens, bucket;
    double drafting_s, draft_token_s;
} ag_speculation;

/* For a text of which the newest n_tokens are remembered. slow: what is taken back must be computed
 * again before the next step. */
ag_status ag_speculation_create(size_t n_tokens, bool slow_rollback, ag_speculation **out,
                                ag_error *err);
size_t ag_speculation_bytes(size_t n_tokens); /* without a draft model */
void ag_speculation_destroy(ag_speculation *s);

/* The session stands at this position now; tokens that came another way are not known. */
void ag_speculation_sync(ag_speculation *s, uint32_t position);
/* The next token of the text, read or chosen. */
void ag_speculation_push(ag_speculation *s, int32_t id);
void ag_speculation_push_chosen(ag_speculation *s, int32_t id);

/* What there is to choose a draft from. */
typedef struct ag_draft_offer {
    size_t max;               /* tokens */
    size_t n_forced;          /* that are in its place already: a constraint's */
    bool always;              /* whatever it costs */
    bool (*stop)(void *user); /* as ag_draft_model_guess has it */
    void *user;
} ag_draft_offer;
/* Writes tokens that may follow, and returns how many are worth the try. */
size_t ag_speculation_draft(ag_speculation *s, int32_t *ids, const ag_draft_offer *offer);
/* A step of so many rows has brought n_tokens, guesses of a draft model and all. */
void ag_speculation_update(ag_speculation *s, size_t rows, size_t n_tokens, double seconds);

#endif
