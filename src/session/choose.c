/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of a token from a session's logits: by top-k on the device if possible, otherwise on the
 * host. */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "session/session_impl.h"
#include "text/sampler_top.h"

#include <string.h>

bool ag_session_chooses_on_device(const ag_session *s) {
    return s->logits.copied && ag_has_top_k(s->model->backend);
}

void ag_session_choose_later(ag_session *s, bool later) { s->logits.chosen_later = later; }

ag_status ag_session_fetch_logits(ag_session *s, ag_error *err) {
    s->logits.top.known = false;
    if (s->logits.location != AG_LOGITS_ON_DEVICE) return AG_OK;
    const ag_tensor *from = &s->logits.on_device;
    ag_status st = ag_buffer_download(s->logits.copied, from->buffer, from->offset,
                                      ag_tensor_bytes(from), err);
    s->logits.location = st == AG_OK ? AG_LOGITS_ON_HOST : AG_LOGITS_ABSENT;
    return st;
}

/* Returns false if the sampler needs all logits. */
static bool write_request(const ag_sampler *sampler, ag_top_k *top, int32_t ids[AG_TOP_K_IDS]) {
    top->ids = ids;
    top->known = false;
    return ag_sampler_top_k(sampler, &top->mask, ids, AG_TOP_K_IDS, &top->n_ids, AG_TOP_K_MAX,
                            &top->k);
}

bool ag_session_request_top(ag_session *s, const ag_sampler *sampler) {
    return write_request(sampler, &s->logits.top, s->logits.top_ids) && s->logits.top.k;
}

/* Returns whether the row's top-k result answers this request. */
static bool is_known_top(const ag_top_k *top, const ag_top_k *request) {
    return top->known && top->mask == request->mask && top->k == request->k &&
           top->n_ids == request->n_ids &&
           (!request->n_ids ||
            !memcmp(top->ids, request->ids, request->n_ids * sizeof *request->ids));
}

/* *enough: false if the sampler needs all logits. *id: -1 if the next mask excludes the choice. */
static ag_status choose_from_top(ag_session *s, ag_sampler *sampler, bool *enough, int32_t *id,
                                 ag_error *err) {
    int32_t ids[AG_TOP_K_IDS];
    ag_top_k request;
    const ag_top_k *top = &s->logits.top;
    *enough = write_request(sampler, &request, ids);
    if (!*enough) return AG_OK;
    if (request.k && !is_known_top(top, &request)) {
        ag_backend *be = s->model->backend;
        ag_top_k *const tops[] = {&request};
        AG_TRY(ag_take_error(be, ag_find_top_k(be, &s->logits.on_device, tops), err));
        top = &request;
    }
    const ag_top_logits logits = {.mask = request.mask,
                                  .best_ids = top->best_ids,
                                  .best = top->best,
                                  .n_best = top->n,
                                  .ids = ids,
                                  .at = top->at,
                                  .n_ids = top->n_ids,
                                  .bad = top->bad};
    if (request.mask) s->logits.top.known = false; /* the mask's memory may have another one next */
    return ag_sampler_sample_top(sampler, &logits, id, err);
}

ag_status ag_session_choose(ag_session *s, ag_sampler *sampler, int32_t *id, ag_error *err) {
    if (s->logits.location == AG_LOGITS_ON_DEVICE && ag_has_top_k(s->model->backend)) {
        bool enough;
        do AG_TRY(choose_from_top(s, sampler, &enough, id, err));
        while (enough && *id < 0);
        if (enough) return AG_OK;
    }
    AG_TRY(ag_session_fetch_logits(s, err));
    return ag_sampler_sample(sampler, s->logits.host, id, err);
}
