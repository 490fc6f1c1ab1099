/* SPDX-License-Identifier: Apache-2.0 */
/* Generation loop: prefill, then choose and feed until the text ends. */
#include "core/fail.h"
#include "platform/clock.h"
#include "session/generation.h"

const char *ag_finish_reason(ag_finish f) {
    switch (f) {
    case AG_FINISH_EOS:
    case AG_FINISH_STOP_STRING:
        return "stop";
    case AG_FINISH_MAX_TOKENS:
    case AG_FINISH_CONTEXT:
        return "length";
    case AG_FINISH_CANCELLED:
        break;
    }
    return "cancelled";
}

const char *ag_finish_detail(ag_finish f) {
    switch (f) {
    case AG_FINISH_EOS:
        return "eos";
    case AG_FINISH_STOP_STRING:
        return "stop_string";
    case AG_FINISH_MAX_TOKENS:
        return "max_tokens";
    case AG_FINISH_CONTEXT:
        return "context";
    case AG_FINISH_CANCELLED:
        break;
    }
    return "cancelled";
}

ag_generate_params ag_generate_defaults(void) { return (ag_generate_params){.max_tokens = 128}; }

/* Chooses the first token from the prompt's logits. */
static ag_status choose_first(ag_generation *g, int32_t *id, ag_error *err) {
    const ag_generate_params *p = g->params;
    if (p->on_logits) {
        AG_TRY(ag_session_fetch_logits(g->session, err));
        if (!p->on_logits(p->on_logits_user, 0, g->session->logits.host))
            return AG_FAIL(err, CANCELLED, "cancelled before the first choice");
    }
    return ag_session_choose(g->session, p->sampler, id, err);
}

/* Chooses the first token, then runs steps until the generation ends. */
static ag_status decode_loop(ag_generation *g, double start, ag_error *err) {
    int32_t id;
    const ag_status chosen = choose_first(g, &id, err);
    if (chosen == AG_CANCELLED) {
        ag_generation_end(g, AG_FINISH_CANCELLED);
        return AG_OK;
    }
    AG_TRY(chosen);
    AG_TRY(ag_generation_accept(g, id, ag_session_capacity_left(g->session), err));
    if (g->speculation) ag_speculation_push_chosen(g->speculation, id);
    const double first = ag_now_s();
    g->stats->first_token_s = first - start;
    while (!g->ended) {
        ag_status st = ag_generation_step(g, &id, err);
        if (st == AG_CANCELLED) ag_generation_end(g, AG_FINISH_CANCELLED);
        else if (st != AG_OK) return st;
        g->stats->decode_s = ag_now_s() - first;
    }
    return ag_generation_show_pending(g, err);
}

static ag_status run(ag_generation *g, const int32_t *prompt, size_t n, ag_error *err) {
    const ag_generate_params *p = g->params;
    double start = ag_now_s();
    ag_status st = AG_OK;
    if (n || g->session->logits.location == AG_LOGITS_ABSENT)
        st = ag_session_prefill(g->session, prompt, n, p->progress, p->progress_user, err);
    g->stats->prefill_s = ag_now_s() - start;
    if (st == AG_CANCELLED) {
        ag_generation_end(g, AG_FINISH_CANCELLED);
        return AG_OK;
    }
    if (st != AG_OK) return st;
    g->stats->n_prompt = n;
    for (size_t i = 0; i < n; i++) ag_sampler_accept_prompt(p->sampler, prompt[i]);
    st = ag_generation_begin_drafts(g, prompt, n, err);
    if (!p->max_tokens) {
        ag_generation_end(g, AG_FINISH_MAX_TOKENS);
        return st;
    }
    if (st == AG_OK) st = decode_loop(g, start, err);
    /* The logits may still be on the device; the caller expects them on the host. */
    ag_status fetched = ag_session_fetch_logits(g->session, st == AG_OK ? err : NULL);
    return st == AG_OK ? fetched : st;
}

static ag_status check(const ag_generate_params *p, ag_error *err) {
    if (!p->sampler) return AG_FAIL(err, INVALID, "sampler is NULL: generating needs one");
    if (p->max_tokens < -1) {
        return AG_FAIL(err, INVALID, "max_tokens is %lld: it must be -1 (no limit) or more",
                       (long long)p->max_tokens);
    }
    if (p->n_stop && !p->tokenizer) {
        return AG_FAIL(err, INVALID, "stop strings need a tokenizer: tokenizer is NULL");
    }
    for (size_t i = 0; i < p->n_stop; i++) {
        if (!*p->stop[i]) return AG_FAIL(err, INVALID, "stop string %zu is empty", i + 1);
    }
    return AG_OK;
}

static ag_eviction_stats since(const ag_eviction_stats *before, const ag_eviction_stats *now) {
    ag_eviction_stats t = *now;
    t.n_evictions -= before->n_evictions;
    t.n_tokens -= before->n_tokens;
    t.bytes_returned -= before->bytes_returned;
    t.seconds -= before->seconds;
    return t;
}

ag_status ag_session_generate(ag_session *s, const int32_t *prompt, size_t n,
                              const ag_generate_params *params, ag_generate_stats *stats,
                              ag_error *err) {
    ag_generate_stats unused;
    if (!stats) stats = &unused;
    *stats = (ag_generate_stats){.finish = AG_FINISH_CANCELLED, .last_id = -1};
    AG_TRY(check(params, err));
    const ag_eviction_stats before = *ag_session_evictions(s);
    ag_generation g = {
        .session = s,
        .params = params,
        .stats = stats,
        .info = ag_session_model_info(s),
        .stop = {params->stop, params->n_stop},
    };
    ag_status st = AG_OK;
    if (params->tokenizer) {
        st = ag_decoder_create(params->tokenizer, params->keep_special, true, &g.decoder, err);
    }
    if (st == AG_OK) st = run(&g, prompt, n, err);
    stats->evictions = since(&before, ag_session_evictions(s));
    stats->kv_bytes = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s));
    ag_decoder_destroy(g.decoder);
    ag_text_free(&g.pending);
    return st;
}
