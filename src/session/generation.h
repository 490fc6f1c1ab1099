/* SPDX-License-Identifier: Apache-2.0 */
/* Generation: parameters, progress and pending output of one ag_session_generate(). */
#ifndef AG_SESSION_GENERATION_H
#define AG_SESSION_GENERATION_H

#include "session/session_impl.h"
#include "session/stop.h"

typedef struct ag_generation {
    ag_session *session;
    const ag_generate_params *params;
    ag_generate_stats *stats;
    const ag_model_info *info;
    ag_decoder *decoder; /* NULL without a tokenizer */
    ag_text pending;     /* decoded text that may be the start of a stop string */
    ag_stop_list stop;
    ag_speculation *speculation; /* the session's; NULL: no drafts */
    bool ended;                  /* stats->finish is set */
} ag_generation;

/* generate_text.c */
void ag_generation_end(ag_generation *g, ag_finish reason);
/* Shows a chosen token, and ends the generation if it is the last. space: tokens that can still be
 * fed. */
ag_status ag_generation_accept(ag_generation *g, int32_t id, uint32_t space, ag_error *err);
/* Shows pending text, unless it belongs to a stop string. */
ag_status ag_generation_show_pending(ag_generation *g, ag_error *err);

/* generate_drafts.c. Prepares speculation if params ask for it. The prompt has been consumed. */
ag_status ag_generation_begin_drafts(ag_generation *g, const int32_t *prompt, size_t n,
                                     ag_error *err);
/* Feeds *id, with a draft if one is worth its time, and accepts what is chosen. *id becomes the
 * last choice. AG_CANCELLED: nothing was fed. */
ag_status ag_generation_step(ag_generation *g, int32_t *id, ag_error *err);

#endif
