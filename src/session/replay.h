/* SPDX-License-Identifier: Apache-2.0 */
/* Replay: scores a session's slots by how much the model attends to them when it repeats the text
 * that it has read. The text is fed again to a fork of the cache, chunk by chunk. The session does
 * not change. Source: KVzip, arXiv:2505.23416. */
#ifndef AG_SESSION_REPLAY_H
#define AG_SESSION_REPLAY_H

#include "session/session_impl.h"

enum { AG_REPLAY_MIN_CHUNK = 16 }; /* tokens */

/* Scores of the slots in layers without a window. Head h, counted over all layers, has scores
 * [first[h], first[h + 1]); a head in a layer with a window has none. */
typedef struct ag_slot_scores {
    size_t *first;   /* owned; [n_heads + 1] */
    uint32_t *layer; /* owned; [n_heads] layer of each head */
    size_t n_heads, n_scored_heads;
    float *of; /* owned; [first[n_heads]] scores */
} ag_slot_scores;

/* Creates scores of 0 for the session's slots. AG_UNSUPPORTED: every layer has a window. */
ag_status ag_slot_scores_create(const ag_session *s, ag_slot_scores *out, ag_error *err);
void ag_slot_scores_release(ag_slot_scores *scores);

/* Sets each score to the largest attention weight from a replayed query of the slot's group. ids:
 * tokens of positions [0, s->position). *n_replayed: tokens that were fed, also on failure. */
ag_status ag_session_replay(ag_session *s, const int32_t *ids, const ag_compress_params *p,
                            ag_slot_scores *out, size_t *n_replayed, ag_error *err);

#endif
