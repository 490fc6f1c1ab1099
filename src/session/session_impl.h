/* SPDX-License-Identifier: Apache-2.0 */
/* A session's inside, for the files that implement it. */
#ifndef AG_SESSION_SESSION_IMPL_H
#define AG_SESSION_SESSION_IMPL_H

#include "cache/cache_manager.h"
#include "core/decode_step.h"
#include "models/llama_model.h"

#include <antigravity/sampler.h>
#include <antigravity/session.h>
#include <stdatomic.h>

struct ag_session {
    ag_model *model; /* borrowed */
    ag_session_params params;
    ag_kv_cache *cache;
    ag_cache_manager *manager; /* owned; NULL: nothing ever leaves the cache */
    uint32_t position;         /* logical, of the next token */
    ag_tensor logits;          /* [1, n_vocab] in the backend's memory */
    ag_buffer *logits_owner;
    float *host_logits;    /* what the caller reads: logits itself, or `copied` */
    float *copied;         /* owned; NULL if the backend's memory is the host's */
    atomic_bool cancelled; /* the call in flight, or the next one, is to end */
    bool has_logits;
    bool deferring; /* logits stay where they are computed until somebody needs all of them */
    bool on_device; /* the newest are there and not yet in host_logits */
    ag_row_top top; /* what will be asked of the next logits, or is known of the newest */
    int32_t top_ids[AG_ROW_TOP_IDS];
    bool top_wanted, top_known;
    ag_tensor rows; /* [LOGIT_ROWS, n_vocab], made when first needed */
    ag_buffer *rows_owner;
};

/* session.c. Bytes of the largest buffer that such a session takes on a device. */
ag_status ag_session_plan_largest(const ag_model_info *info, const ag_session_params *params,
                                  size_t *out, ag_error *err);

/* choose.c. Brings the logits to host_logits if they are not there yet. */
ag_status ag_session_need_logits(ag_session *s, ag_error *err);
/* Before a token is decoded: the next choice will be this sampler's. It saves asking again. */
void ag_session_expect(ag_session *s, const ag_sampler *sampler);
/* What ag_sampler_sample() chooses from the session's logits, which are there. */
ag_status ag_session_choose(ag_session *s, ag_sampler *sampler, int32_t *id, ag_error *err);

#endif
