/* SPDX-License-Identifier: Apache-2.0 */
/* Requests before their turn: checked, copied, in a list; and how they are called off. */
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"

#include <string.h>

enum { MAX_TOP = 20, MAX_STOPS = 256, MAX_STOP_BYTES = 1024 };

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

/* ---- what may be asked ---- */

static ag_status check_prompt(const ag_request_params *p, ag_error *err) {
    const ag_model_info *info = &p->model->info;
    if (!p->n_prompt || !p->prompt) return AG_FAIL(err, INVALID, "a request without a prompt");
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
        return AG_FAIL(err, LIMIT, "a prompt of %zu tokens, the context is %zu", p->n_prompt, max);
    }
    if (p->n_prompt > (size_t)INT32_MAX / 2)
        return AG_FAIL(err, LIMIT, "a prompt of %zu tokens", p->n_prompt);
    return AG_OK;
}

static ag_status check_stops(const ag_request_params *p, ag_error *err) {
    if (p->n_stop > MAX_STOPS || p->n_stop_ids > MAX_STOPS) {
        return AG_FAIL(err, LIMIT, "%zu stop strings and %zu stop ids, at most %d each", p->n_stop,
                       p->n_stop_ids, MAX_STOPS);
    }
    if (p->n_stop && !p->model->tokenizer)
        return AG_FAIL(err, INVALID, "stop strings need a tokenizer");
    for (size_t i = 0; i < p->n_stop; i++) {
        if (!*p->stop[i]) return AG_FAIL(err, INVALID, "stop string %zu is empty", i + 1);
        if (strnlen(p->stop[i], MAX_STOP_BYTES + 1) > MAX_STOP_BYTES)
            return AG_FAIL(err, LIMIT, "stop string %zu is longer than %d bytes", i + 1,
                           MAX_STOP_BYTES);
    }
    return AG_OK;
}

static ag_status check_request(const ag_serving *s, const ag_request_params *p, ag_error *err) {
    ag_sampler *sampler;
    ag_session_plan plan;
    if (!p->model || p->model->engine != s)
        return AG_FAIL(err, INVALID, "a request without a model of this engine");
    if (!p->event) return AG_FAIL(err, INVALID, "a request that nobody listens to");
    if (!p->n_answers || p->n_answers > s->params.max_running) {
        return AG_FAIL(err, INVALID, "%zu answers to a request, 1 to %u are possible", p->n_answers,
                       s->params.max_running);
    }
    if (p->max_tokens < -1)
        return AG_FAIL(err, INVALID, "%lld tokens to generate; -1 means as many as fit",
                       (long long)p->max_tokens);
    if (p->n_top > MAX_TOP || (p->n_top && !p->logprobs)) {
        return AG_FAIL(err, INVALID, "the %u most likely tokens%s, at most %d are told", p->n_top,
                       p->logprobs ? "" : " without logprobs", MAX_TOP);
    }
    if (!(p->deadline_s >= 0)) return AG_FAIL(err, INVALID, "a deadline in %g s", p->deadline_s);
    if (p->kind != AG_REQUEST_GENERATE && p->kind != AG_REQUEST_EMBED)
        return AG_FAIL(err, INVALID, "a request of kind %d", (int)p->kind);
    if (p->kind == AG_REQUEST_EMBED && (p->n_answers != 1 || p->constraint || p->logprobs))
        return AG_FAIL(err, INVALID, "an embedding has one answer, without constraint or logprobs");
    if (p->pooling > AG_EMBEDDING_FIRST)
        return AG_FAIL(err, INVALID, "pooling of kind %d", (int)p->pooling);
    AG_TRY(check_prompt(p, err));
    AG_TRY(check_stops(p, err));
    AG_TRY(ag_session_plan_memory(&p->model->info, &p->session, &plan, err));
    AG_TRY(ag_sampler_create(&p->sampling, (int32_t)p->model->info.n_vocab, &sampler, err));
    ag_sampler_destroy(sampler);
    return AG_OK;
}

/* ---- copies ---- */

static const char *client_name(const ag_request_params *p) {
    return p->client ? p->client : p->scope ? p->scope : "";
}

static uint64_t copied_bytes(const ag_request_params *p) {
    uint64_t bytes = sizeof(ag_served_request) + p->n_prompt * sizeof *p->prompt +
                     p->n_stop_ids * sizeof *p->stop_ids +
                     p->sampling.n_logit_bias * sizeof *p->sampling.logit_bias;
    for (size_t i = 0; i < p->n_stop; i++) bytes += sizeof(char *) + strlen(p->stop[i]) + 1;
    return bytes + (p->scope ? strlen(p->scope) + 1 : 0) + strlen(client_name(p)) + 1;
}

/* NULL stays NULL. */
static bool copy_bytes(const void **to, const void *from, size_t bytes) {
    *to = NULL;
    if (!from || !bytes) return true;
    void *copy = ag_malloc(bytes);
    if (copy) memcpy(copy, from, bytes);
    *to = copy;
    return copy != NULL;
}

static bool copy_stops(ag_request_params *p, const char *const *from) {
    char **stops = ag_calloc(p->n_stop + 1, sizeof *stops);
    p->stop = (const char *const *)stops;
    for (size_t i = 0; stops && i < p->n_stop; i++) {
        stops[i] = ag_strdup(from[i]);
        if (!stops[i]) return false;
    }
    return stops != NULL;
}

static bool copy_params(ag_served_request *r, const ag_request_params *p) {
    r->p = *p;
    r->p.constraint = NULL; /* still the caller's */
    r->p.scope = r->p.client = NULL;
    r->p.stop = NULL;
    bool ok = copy_bytes((const void **)&r->p.prompt, p->prompt, p->n_prompt * sizeof *p->prompt);
    ok = copy_bytes((const void **)&r->p.stop_ids, p->stop_ids,
                    p->n_stop_ids * sizeof *p->stop_ids) &&
         ok;
    ok = copy_bytes((const void **)&r->p.sampling.logit_bias, p->sampling.logit_bias,
                    p->sampling.n_logit_bias * sizeof *p->sampling.logit_bias) &&
         ok;
    if (p->scope) ok = (r->p.scope = ag_strdup(p->scope)) && ok;
    return copy_stops(&r->p, p->stop) && ok;
}

static void free_const(const void *p) { ag_free((void *)(uintptr_t)p); }

void ag_served_request_destroy(ag_served_request *r) {
    if (!r) return;
    for (size_t i = 0; r->answers && i < r->p.n_answers; i++) ag_answer_release(&r->answers[i]);
    ag_free(r->answers);
    ag_session_destroy(r->session);
    ag_constraint_destroy(r->p.constraint);
    if (r->masks) ag_mask_group_release(r->p.model->engine, r->masks);
    for (size_t i = 0; r->p.stop && r->p.stop[i]; i++) free_const(r->p.stop[i]);
    free_const(r->p.stop);
    free_const(r->p.stop_ids);
    free_const(r->p.sampling.logit_bias);
    free_const(r->p.prompt);
    free_const(r->p.scope);
    ag_free(r->pooled);
    ag_free(r);
}

/* ---- the list ---- */

/* Under the lock. */
static void unlink_from(ag_serving *s, ag_served_request **list, ag_served_request *r) {
    ag_served_request **at = list;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    r->next = NULL;
    if (list == &s->waiting) ag_client_release_place(s, r);
}

void ag_serving_unlink(ag_serving *s, ag_served_request **list, ag_served_request *r) {
    ag_mutex_lock(&s->lock);
    unlink_from(s, list, r);
    ag_mutex_unlock(&s->lock);
}

/* Whoever cancels it finds it in one list or the other. */
void ag_serving_start(ag_serving *s, ag_served_request *r) {
    ag_mutex_lock(&s->lock);
    unlink_from(s, &s->waiting, r);
    r->is_displaced = false;
    ag_served_request **end = &s->running;
    while (*end) end = &(*end)->next;
    *end = r;
    ag_mutex_unlock(&s->lock);
}

uint64_t ag_serving_max_waiting_bytes(uint64_t memory_limit) {
    const uint64_t min = 2 << 20, max = 64 << 20;
    if (!memory_limit || memory_limit / 64 > max) return max;
    return memory_limit / 64 > min ? memory_limit / 64 : min;
}

/* A place in the queue, before anything is copied. */
static ag_status reserve_place(ag_serving *s, const ag_request_params *p, uint64_t bytes,
                               ag_serving_client **client, ag_error *err) {
    const uint64_t max = ag_serving_max_waiting_bytes(s->params.memory_limit);
    ag_status st = AG_OK;
    if (bytes > max)
        return AG_FAIL(err, LIMIT, "a request of %llu bytes, at most %llu may wait",
                       (unsigned long long)bytes, (unsigned long long)max);
    ag_mutex_lock(&s->lock);
    ag_serving_client *c = ag_client_acquire(s, client_name(p));
    if (!c) st = AG_FAIL(err, NOMEM, "client of a request");
    else if (s->stopping) st = AG_FAIL(err, CANCELLED, "the engine is being destroyed");
    else st = ag_client_reserve_place(s, c, bytes, err);
    s->n_rejected += st == AG_BUSY;
    if (st != AG_OK && c) ag_client_release(s, c);
    ag_mutex_unlock(&s->lock);
    *client = c;
    return st;
}

static void release_place(ag_serving *s, ag_serving_client *c, uint64_t bytes) {
    const ag_served_request place = {.client = c, .bytes = bytes};
    ag_mutex_lock(&s->lock);
    ag_client_release_place(s, &place);
    ag_client_release(s, c);
    ag_mutex_unlock(&s->lock);
}

static ag_status append(ag_serving *s, ag_served_request *r, ag_request_id *id, ag_error *err) {
    ag_status st = AG_OK;
    ag_mutex_lock(&s->lock);
    if (s->stopping) {
        st = AG_FAIL(err, CANCELLED, "the engine is being destroyed");
    } else {
        ag_served_request **end = &s->waiting;
        while (*end) end = &(*end)->next;
        *end = r;
        s->n_submitted++;
        r->id = ++s->last_id;
        if (id) *id = r->id;
        ag_condition_signal(&s->work);
    }
    ag_mutex_unlock(&s->lock);
    return st;
}

static ag_status copy_request(const ag_request_params *params, ag_served_request **out,
                              ag_error *err) {
    ag_served_request *r = *out = ag_calloc(1, sizeof *r);
    if (!r || !copy_params(r, params))
        return AG_FAIL(err, NOMEM, "request of %zu tokens", params->n_prompt);
    r->submitted_at = ag_now_s();
    if (params->deadline_s > 0) r->deadline = r->submitted_at + params->deadline_s;
    r->p.constraint = params->constraint;
    if (r->p.kind == AG_REQUEST_EMBED) { /* every token's hidden state is needed */
        r->p.no_prefix = true;
        r->p.max_tokens = 0;
    }
    return AG_OK;
}

ag_status ag_serving_submit(ag_serving *s, const ag_request_params *params, ag_request_id *id,
                            ag_error *err) {
    ag_served_request *r;
    ag_serving_client *client;
    AG_TRY(check_request(s, params, err));
    const uint64_t bytes = copied_bytes(params);
    AG_TRY(reserve_place(s, params, bytes, &client, err));
    ag_status st = copy_request(params, &r, err);
    if (st == AG_OK) {
        r->bytes = bytes;
        r->client = client;
        st = append(s, r, id, err);
    }
    if (st == AG_OK) return AG_OK;
    release_place(s, client, bytes);
    if (r) r->p.constraint = NULL;
    ag_served_request_destroy(r);
    return st;
}

static bool cancel_in(ag_served_request *list, ag_request_id id) {
    for (ag_served_request *r = list; r; r = r->next) {
        if (r->id != id) continue;
        atomic_store_explicit(&r->cancelled, true, memory_order_relaxed);
        return true;
    }
    return false;
}

void ag_serving_cancel(ag_serving *s, ag_request_id id) {
    ag_mutex_lock(&s->lock);
    if (!cancel_in(s->waiting, id)) cancel_in(s->running, id);
    ag_condition_signal(&s->work);
    ag_mutex_unlock(&s->lock);
}
