/* SPDX-License-Identifier: Apache-2.0 */
/* --replay and --replay-keep: of a prompt that has been read, what the model needs to repeat it
 * stays. The server's are of conversations. */
#ifndef ANTIGRAVITY_REPLAY_OPTIONS_H
#define ANTIGRAVITY_REPLAY_OPTIONS_H

#include "../model/engine.h"

typedef struct replay_options {
    double share;         /* of the text that is replayed; 0: nothing is */
    float keep_ratio;     /* of what was read; 0: keep_tokens */
    uint32_t keep_tokens; /* in the mean over heads; 0: keep_ratio */
    bool has_keep;        /* one of them was given */
    uint32_t after_s;     /* replay_idle_group() */
} replay_options;

replay_options replay_defaults(void);
option_group replay_group(replay_options *o);
/* The same of conversations that wait for their next turn, and after how many seconds of waiting.
 */
option_group replay_idle_group(replay_options *o);
/* Whether they go together. Returns an exit code. */
int replay_check_keep(const replay_options *o);
/* Whether they go together, and with what may leave the cache by itself. Returns an exit code. */
int replay_check(const replay_options *o, const eviction_options *e);
/* What is saved of a conversation. */
option_group replay_saved_group(replay_options *o);
/* The same share of all that a session has read, also of one that has been compressed before. */
replay_options replay_of(const replay_options *o, size_t n_read);
/* In the words that the model's own template puts around a message; ag_replay_request_free(). */
ag_status replay_request(const engine *e, ag_replay_request *out, ag_error *err);
/* The session has consumed ids [n], all of them. Returns an exit code; where Ctrl-C or its like
 * ended it, the session is as it was. */
int replay_compress(const replay_options *o, const engine *e, ag_session *session,
                    const int32_t *ids, size_t n, ag_compress_report *report);

#endif
