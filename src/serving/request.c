/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/request.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"

#include <string.h>

const char *ag_request_client_name(const ag_request_params *p) {
    return p->client ? p->client : p->scope ? p->scope : "";
}

uint64_t ag_served_request_bytes(const ag_request_params *p) {
    uint64_t bytes = sizeof(ag_served_request) + p->n_prompt * sizeof *p->prompt +
                     p->n_stop_ids * sizeof *p->stop_ids +
                     p->sampling.n_logit_bias * sizeof *p->sampling.logit_bias;
    for (size_t i = 0; i < p->n_stop; i++) bytes += sizeof(char *) + strlen(p->stop[i]) + 1;
    return bytes + (p->scope ? strlen(p->scope) + 1 : 0) + strlen(ag_request_client_name(p)) + 1;
}

/* Copies `bytes`; NULL stays NULL. Returns false if out of memory. */
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
    r->p.constraint = NULL; /* set by the caller, which owns it until the request is queued */
    r->p.scope = r->p.client = NULL;
    r->p.stop = NULL;
    bool ok = copy_bytes((const void **)&r->p.prompt, p->prompt, p->n_prompt * sizeof *p->prompt);
    ok = copy_bytes((const void **)&r->p.stop_ids, p->stop_ids,
                    p->n_stop_ids * sizeof *p->stop_ids) &&
         ok;
    ok = copy_bytes((const void **)&r->p.sampling.logit_bias, p->sampling.logit_bias,
                    p->sampling.n_logit_bias * sizeof *p->sampling.logit_bias) &&
         ok;
    ag_dry_breakers_retain(r->p.sampling.dry_breakers);
    if (p->scope) ok = (r->p.scope = ag_strdup(p->scope)) && ok;
    return copy_stops(&r->p, p->stop) && ok;
}

static void free_const(const void *p) { ag_free((void *)(uintptr_t)p); }

static void free_answer(ag_answer *a) {
    ag_session_destroy(a->session);
    ag_sampler_destroy(a->sampler);
    ag_decoder_destroy(a->decoder);
    ag_text_free(&a->pending);
    ag_ids_free(&a->ids);
    ag_free(a->starts);
}

void ag_served_request_destroy(ag_served_request *r) {
    if (!r) return;
    for (size_t i = 0; r->answers && i < r->p.n_answers; i++) free_answer(&r->answers[i]);
    ag_free(r->answers);
    ag_session_destroy(r->session);
    ag_constraint_destroy(r->p.constraint);
    ag_mask_group_release(r->masks);
    for (size_t i = 0; r->p.stop && r->p.stop[i]; i++) free_const(r->p.stop[i]);
    free_const(r->p.stop);
    free_const(r->p.stop_ids);
    free_const(r->p.sampling.logit_bias);
    ag_dry_breakers_destroy(r->p.sampling.dry_breakers);
    free_const(r->p.prompt);
    free_const(r->p.scope);
    ag_free(r->pooled);
    ag_free(r);
}

ag_status ag_served_request_create(const ag_request_params *params, uint32_t chunk,
                                   ag_served_request **out, ag_error *err) {
    *out = NULL;
    ag_served_request *r = ag_calloc(1, sizeof *r);
    if (!r || !copy_params(r, params)) {
        ag_served_request_destroy(r);
        return AG_FAIL(err, NOMEM, "request of %zu tokens", params->n_prompt);
    }
    r->submitted_at = ag_now_s();
    if (params->deadline_s > 0) r->deadline = r->submitted_at + params->deadline_s;
    r->p.session.prefill_chunk = chunk;
    if (r->p.n_system) r->p.session.eviction.protected_prefix = r->p.n_system;
    if (r->p.kind == AG_REQUEST_EMBED) { /* pooling needs the hidden state of every token */
        r->p.no_prefix = true;
        r->p.max_tokens = 0;
    }
    *out = r;
    return AG_OK;
}

void ag_request_send_event(const ag_served_request *r, ag_request_event *e) {
    e->n_prompt = r->p.n_prompt;
    e->n_cached = r->n_cached;
    e->n_read = r->n_read;
    r->p.event(r->p.user, e);
}
