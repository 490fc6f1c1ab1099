/* SPDX-License-Identifier: Apache-2.0 */
/* Submission: checks requests and puts copies into the queue. */
#include "core/fail.h"
#include "serving/logprobs.h"
#include "serving/serving_impl.h"

#include <string.h>

enum { MAX_STOPS = 256, MAX_STOP_BYTES = 1024 };

ag_request_params ag_request_defaults(ag_served_model *m) {
    return (ag_request_params){
        .kind = AG_REQUEST_GENERATE,
        .model = m,
        .n_answers = 1,
        .sampling = m->sampling,
        .max_tokens = -1,
        .session = m->session,
    };
}

/* ---- checks ---- */

static ag_status check_prompt(const ag_request_params *p, ag_error *err) {
    const ag_model_info *info = &p->model->info;
    if (!p->n_prompt || !p->prompt)
        return AG_FAIL(err, INVALID, "prompt is empty: a request needs at least one token");
    for (size_t i = 0; i < p->n_prompt; i++) {
        if (p->prompt[i] < 0 || (uint32_t)p->prompt[i] >= info->n_vocab) {
            return AG_FAIL(err, INVALID,
                           "token id %d (token %zu of %zu) is outside the vocabulary of %u",
                           p->prompt[i], i + 1, p->n_prompt, info->n_vocab);
        }
    }
    const bool managed = p->session.eviction.policy || p->session.eviction.memory.threshold_bytes;
    size_t max = p->session.max_seq_len;
    if (max > info->max_positions) max = info->max_positions;
    if (!managed && p->n_prompt > max) {
        return AG_FAIL(err, LIMIT, "the prompt is too long: %zu tokens, the context holds %zu",
                       p->n_prompt, max);
    }
    if (p->n_prompt > (size_t)INT32_MAX / 2)
        return AG_FAIL(err, LIMIT, "the prompt is too long: %zu tokens, at most %d are possible",
                       p->n_prompt, INT32_MAX / 2);
    return AG_OK;
}

static ag_status check_stops(const ag_request_params *p, ag_error *err) {
    if (p->n_stop > MAX_STOPS || p->n_stop_ids > MAX_STOPS) {
        return AG_FAIL(err, LIMIT, "too many stops: %zu strings and %zu ids, at most %d each",
                       p->n_stop, p->n_stop_ids, MAX_STOPS);
    }
    if (p->n_stop && !p->model->tokenizer)
        return AG_FAIL(err, INVALID,
                       "stop strings need a tokenizer, which the model does not have");
    for (size_t i = 0; i < p->n_stop; i++) {
        if (!*p->stop[i]) return AG_FAIL(err, INVALID, "stop string %zu is empty", i + 1);
        if (strnlen(p->stop[i], MAX_STOP_BYTES + 1) > MAX_STOP_BYTES)
            return AG_FAIL(err, LIMIT, "stop string %zu is too long: at most %d bytes", i + 1,
                           MAX_STOP_BYTES);
    }
    return AG_OK;
}

static ag_status check_request(const ag_serving *s, const ag_request_params *p, ag_error *err) {
    ag_sampler *sampler;
    ag_session_plan plan;
    if (!p->model || p->model->engine != s)
        return AG_FAIL(err, INVALID, "model is NULL or belongs to another ag_serving");
    if (p->model->is_removed)
        return AG_FAIL(err, NOT_FOUND, "%s: the model was removed", p->model->name);
    if (!p->event)
        return AG_FAIL(err, INVALID, "event is NULL: a request needs a callback for its events");
    if (!p->n_answers || p->n_answers > s->params.max_running) {
        return AG_FAIL(err, INVALID, "n_answers is %zu: it must be 1 to %u", p->n_answers,
                       s->params.max_running);
    }
    if (p->max_tokens < -1)
        return AG_FAIL(err, INVALID, "max_tokens is %lld: it must be -1 (as many as fit) or more",
                       (long long)p->max_tokens);
    if (p->n_top > AG_SERVING_MAX_TOP || (p->n_top && !p->logprobs)) {
        return AG_FAIL(err, INVALID, "n_top is %u: it must be at most %d, and needs logprobs",
                       p->n_top, AG_SERVING_MAX_TOP);
    }
    if (p->prompt_logprobs && !p->logprobs)
        return AG_FAIL(err, INVALID, "prompt_logprobs is set: it needs logprobs");
    if (!(p->deadline_s >= 0))
        return AG_FAIL(err, INVALID, "deadline_s is %g: it must be 0 (none) or positive",
                       p->deadline_s);
    if (p->kind != AG_REQUEST_GENERATE && p->kind != AG_REQUEST_EMBED)
        return AG_FAIL(err, INVALID, "kind is %d: it must be an ag_request_kind", (int)p->kind);
    if (p->kind == AG_REQUEST_EMBED && (p->n_answers != 1 || p->constraint || p->logprobs))
        return AG_FAIL(
            err, INVALID,
            "kind is AG_REQUEST_EMBED: n_answers must be 1, without constraint or logprobs");
    if (p->pooling > AG_EMBEDDING_FIRST)
        return AG_FAIL(err, INVALID, "pooling is %d: it must be an ag_embedding_pooling",
                       (int)p->pooling);
    AG_TRY(check_prompt(p, err));
    AG_TRY(check_stops(p, err));
    AG_TRY(ag_session_plan_memory(&p->model->info, &p->session, &plan, err));
    AG_TRY(ag_sampler_create(&p->sampling, (int32_t)p->model->info.n_vocab, &sampler, err));
    ag_sampler_destroy(sampler);
    return AG_OK;
}

ag_status ag_serving_submit(ag_serving *s, const ag_request_params *params, ag_request_id *id,
                            ag_error *err) {
    ag_served_request *r;
    ag_serving_client *client;
    AG_TRY(check_request(s, params, err));
    const uint64_t bytes = ag_served_request_bytes(params);
    AG_TRY(
        ag_request_queue_reserve(&s->queue, ag_request_client_name(params), bytes, &client, err));
    ag_status st = ag_served_request_create(params, ag_prompt_chunk(&s->params), &r, err);
    if (st == AG_OK) {
        r->bytes = bytes;
        r->client = client;
        r->p.constraint = params->constraint;
        st = ag_request_queue_append(&s->queue, r, id, err);
    }
    if (st == AG_OK) return AG_OK;
    ag_request_queue_release(&s->queue, client, bytes);
    if (r) r->p.constraint = NULL;
    ag_served_request_destroy(r);
    return st;
}

void ag_serving_cancel(ag_serving *s, ag_request_id id) { ag_request_queue_cancel(&s->queue, id); }
