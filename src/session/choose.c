/* SPDX-License-Identifier: Apache-2.0 */
/* From a session's logits to a token: on devices that can, without reading the row. */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "session/session_impl.h"
#include "text/sampler_few.h"

#include <string.h>

bool ag_session_chooses_on_device(const ag_session *s) {
    return s->logits.copied && ag_has_row_top(s->model->backend);
}

ag_status ag_session_need_logits(ag_session *s, ag_error *err) {
    s->logits.top.known = false;
    if (s->logits.place != AG_LOGITS_ON_DEVICE) return AG_OK;
    ag_status st = ag_buffer_download(s->logits.copied, s->logits.owner, 0,
                                      ag_tensor_bytes(&s->logits.row), err);
    s->logits.place = st == AG_OK ? AG_LOGITS_ON_HOST : AG_LOGITS_NOWHERE;
    return st;
}

/* false: the sampler needs the whole row. */
static bool write_request(const ag_sampler *sampler, ag_row_top *top, int32_t ids[AG_ROW_TOP_IDS]) {
    top->ids = ids;
    top->known = false;
    return ag_sampler_few(sampler, ids, AG_ROW_TOP_IDS, &top->n_ids, AG_ROW_TOP_K, &top->k);
}

bool ag_session_ask_top(ag_session *s, const ag_sampler *sampler) {
    return write_request(sampler, &s->logits.top, s->logits.top_ids);
}

/* Whether the answer that came with the row is to this question. */
static bool is_answered(const ag_row_top *top, const ag_row_top *asked) {
    return top->known && top->k == asked->k && top->n_ids == asked->n_ids &&
           (!asked->n_ids || !memcmp(top->ids, asked->ids, asked->n_ids * sizeof *asked->ids));
}

/* *few: false if the sampler needs the whole row. */
static ag_status choose_from_few(ag_session *s, ag_sampler *sampler, bool *few, int32_t *id,
                                 ag_error *err) {
    int32_t ids[AG_ROW_TOP_IDS];
    ag_row_top asked;
    const ag_row_top *top = &s->logits.top;
    *few = write_request(sampler, &asked, ids);
    if (!*few) return AG_OK;
    if (!is_answered(top, &asked)) {
        ag_backend *be = s->model->backend;
        AG_TRY(ag_take_error(be, ag_find_row_top(be, &s->logits.row, &asked), err));
        top = &asked;
    }
    const ag_few_logits logits = {.best_ids = top->best_ids,
                                  .best = top->best,
                                  .n_best = top->n,
                                  .ids = ids,
                                  .at = top->at,
                                  .n_ids = top->n_ids,
                                  .bad = top->bad};
    return ag_sampler_sample_few(sampler, &logits, id, err);
}

ag_status ag_session_choose(ag_session *s, ag_sampler *sampler, int32_t *id, ag_error *err) {
    if (s->logits.place == AG_LOGITS_ON_DEVICE && ag_has_row_top(s->model->backend)) {
        bool few;
        ag_status st = choose_from_few(s, sampler, &few, id, err);
        if (few) return st;
    }
    AG_TRY(ag_session_need_logits(s, err));
    return ag_sampler_sample(sampler, s->logits.host, id, err);
}
