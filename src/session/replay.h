/* SPDX-License-Identifier: Apache-2.0 */
/* What a session's slots are worth to the model when it repeats the text that it has read. The text
 * is fed again to a copy of the cache, chunk by chunk; the session itself does not change.
 * Source: KVzip, arXiv:2505.23416. */
#ifndef AG_SESSION_REPLAY_H
#define AG_SESSION_REPLAY_H

#include "session/session_impl.h"

enum { AG_REPLAY_MIN_CHUNK = 16 }; /* tokens */

/* Scores of the slots of those layers that see everything. A head's are [first[h], first[h + 1]),
 * heads counted over all layers; of layers with a window there are none. */
typedef struct ag_slot_scores {
    size_t *first;   /* owned; [heads + 1] */
    uint32_t *layer; /* owned; [heads] */
    size_t n_heads, n_scored_heads;
    float *of; /* owned; [first[n_heads]] */
} ag_slot_scores;

/* Of the slots that the session holds, all 0. AG_UNSUPPORTED where no layer sees everything. */
ag_status ag_slot_scores_create(const ag_session *s, ag_slot_scores *out, ag_error *err);
void ag_slot_scores_release(ag_slot_scores *scores);

/* The largest weight that any replayed query of a slot's group gave to it. ids: the tokens of
 * positions [0, s->position). *n_replayed: tokens that were fed, also after a failure. */
ag_status ag_session_replay(ag_session *s, const int32_t *ids, const ag_compress_params *p,
                            ag_slot_scores *out, size_t *n_replayed, ag_error *err);

/* Tokens of a chunk: fewer than p asks for where the cache's slots, or the positions the model was
 * trained for, do not hold a chunk and its replay. 0 if not even a short one fits. */
uint32_t ag_replay_chunk(const ag_session *s, const ag_compress_params *p);

#endif
