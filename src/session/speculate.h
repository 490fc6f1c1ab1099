/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation: decides how many draft tokens a step feeds, and from which source.
 *
 * It measures the time of a step by its rows, and the acceptance rate of draft tokens, while it
 * decodes. An account of the seconds that drafts have saved bounds what they can cost. */
#ifndef AG_SESSION_SPECULATE_H
#define AG_SESSION_SPECULATE_H

#include "session/draft_model.h"
#include "session/ngram_lookup.h"

#include <stdbool.h>

enum { AG_SPECULATE_ROWS = 15 }; /* rows of a step: the chosen token and a draft */
/* Buckets of acceptance: by match length of the n-gram lookup, then draft model and forced tokens.
 */
enum {
    AG_SPECULATE_MATCH_BUCKETS = 5,
    AG_SPECULATE_MODEL = AG_SPECULATE_MATCH_BUCKETS,
    AG_SPECULATE_FORCED,
    AG_SPECULATE_BUCKETS,
};

/* Seconds of a step by its number of rows. */
typedef struct ag_step_costs {
    double seconds[AG_SPECULATE_ROWS + 1];
    uint32_t n[AG_SPECULATE_ROWS + 1];   /* number of measurements */
    bool was_far[AG_SPECULATE_ROWS + 1]; /* the last measurement was an outlier */
} ag_step_costs;

/* Accepted and tried draft tokens by bucket, decayed. */
typedef struct ag_draft_acceptance {
    double hits[AG_SPECULATE_BUCKETS], tries[AG_SPECULATE_BUCKETS];
} ag_draft_acceptance;

typedef struct ag_speculation {
    ag_ngram_lookup *lookup; /* owned */
    ag_draft_model *model;   /* owned; NULL: none */
    uint32_t position;       /* the session's, after the tokens in `lookup` */
    ag_step_costs costs;
    ag_draft_acceptance acceptance;
    double saved_s;       /* seconds that drafts have saved; negative: cost */
    double baseline_s;    /* seconds that decoding without drafts would have taken */
    uint32_t since_one;   /* steps with a draft since the last step of one row */
    uint32_t since_draft; /* steps without a draft since the last draft or decay */
    bool after_rejection,
        slow_rollback; /* the last draft was rejected in part; rejection delays the next step */
    /* Draft of this step from the model or a constraint: its tokens, bucket and seconds.
     * draft_token_s: mean seconds of a draft model's token; 0: not measured. */
    size_t n_drafted_tokens, bucket;
    double drafting_s, draft_token_s;
} ag_speculation;

/* Creates the speculation of a session whose lookup stores n_tokens tokens. slow_rollback: rejected
 * tokens delay the next step, since a layer state must be computed again. */
ag_status ag_speculation_create(size_t n_tokens, bool slow_rollback, ag_speculation **out,
                                ag_error *err);
size_t ag_speculation_bytes(size_t n_tokens); /* without a draft model */
void ag_speculation_destroy(ag_speculation *s);

/* Sets the session's position. Tokens that were consumed elsewhere become one unknown token. */
void ag_speculation_sync(ag_speculation *s, uint32_t position);
/* Append the next token of the text: from a prompt, or chosen. */
void ag_speculation_push(ag_speculation *s, int32_t id);
void ag_speculation_push_chosen(ag_speculation *s, int32_t id);

/* Sources and limits of a draft. */
typedef struct ag_draft_offer {
    size_t max;               /* tokens of the draft */
    size_t n_forced;          /* tokens that a constraint forces; they are in ids[] already */
    bool always;              /* draft even if it is not worth its time */
    bool (*stop)(void *user); /* ends the draft of a draft model */
    void *user;
} ag_draft_offer;
/* Writes a draft to ids and returns its length; 0: not worth its time. */
size_t ag_speculation_draft(ag_speculation *s, int32_t *ids, const ag_draft_offer *offer);
/* Records a step of `rows` rows that added n_tokens to the text in `seconds`, drafting included. */
void ag_speculation_update(ag_speculation *s, size_t rows, size_t n_tokens, double seconds);

#endif
