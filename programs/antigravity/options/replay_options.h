/* SPDX-License-Identifier: Apache-2.0 */
/* --replay and --replay-keep: keep the tokens that the model needs to repeat what it has read
 * (kvzip). The server applies them to idle conversations. */
#ifndef ANTIGRAVITY_REPLAY_OPTIONS_H
#define ANTIGRAVITY_REPLAY_OPTIONS_H

#include "../model/engine.h"

typedef struct replay_options {
    double share;         /* share of the text that is replayed; 0: off */
    float keep_ratio;     /* share of the tokens to keep; 0: keep_tokens decides */
    uint32_t keep_tokens; /* mean over heads; 0: keep_ratio decides */
    bool has_keep;        /* --replay-keep was given */
    uint32_t after_s;     /* idle seconds before a replay; replay_idle_group() only */
} replay_options;

replay_options replay_defaults(void);
option_group replay_group(replay_options *o);
/* The same for idle conversations, with --replay-after. */
option_group replay_idle_group(replay_options *o);
/* Returns EXIT_USAGE if --replay-keep was given without --replay. */
int replay_check_keep(const replay_options *o);
/* Like replay_check_keep(); also returns EXIT_USAGE with an eviction policy. */
int replay_check(const replay_options *o, const eviction_options *e);
/* The same for saved conversations. */
option_group replay_saved_group(replay_options *o);
/* Returns the options with keep_ratio turned into keep_tokens of n_read tokens. So a compressed
 * session is not reduced twice. */
replay_options replay_of(const replay_options *o, size_t n_read);
/* Makes the replay request in the model's chat template. The caller uses
 * ag_replay_request_free(). */
ag_status replay_request(const engine *e, ag_replay_request *out, ag_error *err);
/* Compresses a session that has consumed ids [n]. `report` may be NULL. Returns an exit code; after
 * an interruption EXIT_DONE, with the session unchanged. */
int replay_compress(const replay_options *o, const engine *e, ag_session *session,
                    const int32_t *ids, size_t n, ag_compress_report *report);

#endif
