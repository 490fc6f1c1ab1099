/* SPDX-License-Identifier: Apache-2.0 */
/* The loop from a prompt to a text. */
#include "core/alloc.h"
#include "core/clock.h"
#include "core/fail.h"
#include "session/session_impl.h"
#include "session/stop.h"

#include <antigravity/session.h>

#include <string.h>

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

typedef struct generation {
    ag_session *session;
    const ag_generate_params *params;
    ag_generate_stats *stats;
    const ag_model_info *info;
    ag_decoder *decoder; /* NULL without a tokenizer */
    ag_text pending;     /* decoded, but perhaps the beginning of a stop string */
    ag_stop_list stop;
    bool ended; /* stats->finish is set */
} generation;

static void end(generation *g, ag_finish why) {
    if (!g->ended) g->stats->finish = why;
    g->ended = true;
}

static bool is_eos(const ag_model_info *info, int32_t id) {
    for (size_t i = 0; i < info->n_eos; i++) {
        if (info->eos_ids[i] == id) return true;
    }
    return false;
}

/* Shows the first n bytes of what is pending. */
static void emit(generation *g, int32_t id, size_t n) {
    const ag_generate_params *p = g->params;
    if (p->on_token && !p->on_token(p->on_token_user, id, n ? g->pending.data : "", n)) {
        end(g, AG_FINISH_CANCELLED);
    }
    if (n) {
        memmove(g->pending.data, g->pending.data + n, g->pending.len - n + 1);
        g->pending.len -= n;
    }
}

static ag_status show_token(generation *g, int32_t id, ag_error *err) {
    if (!g->decoder) {
        emit(g, id, 0);
        return AG_OK;
    }
    AG_TRY(ag_decoder_push(g->decoder, id, &g->pending, err));
    bool found = false;
    size_t n = g->pending.len ? ag_stop_scan(&g->stop, g->pending.data, g->pending.len, &found) : 0;
    if (found) end(g, AG_FINISH_STOP_STRING);
    emit(g, id, n);
    return AG_OK;
}

/* What was pending back is shown after all, unless it belongs to a stop string. */
static ag_status show_rest(generation *g, ag_error *err) {
    if (!g->decoder || g->stats->finish == AG_FINISH_STOP_STRING) return AG_OK;
    AG_TRY(ag_decoder_flush(g->decoder, &g->pending, err));
    bool found = false;
    size_t n = g->pending.len ? ag_stop_scan(&g->stop, g->pending.data, g->pending.len, &found) : 0;
    if (found) {
        g->stats->finish = AG_FINISH_STOP_STRING;
    } else {
        n = g->pending.len;
    }
    if (n) emit(g, -1, n);
    return AG_OK;
}

/* Shows a token that was chosen; ends when it was the last. */
static ag_status take_token(generation *g, int32_t id, ag_error *err) {
    const ag_generate_params *p = g->params;
    g->stats->last_id = id;
    if (!p->ignore_eos && is_eos(g->info, id)) {
        end(g, AG_FINISH_EOS);
        return AG_OK;
    }
    ag_sampler_accept(p->sampler, id);
    g->stats->n_generated++;
    AG_TRY(show_token(g, id, err));
    if (p->max_tokens > 0 && g->stats->n_generated >= (uint64_t)p->max_tokens) {
        end(g, AG_FINISH_MAX_TOKENS);
    } else if (!ag_session_capacity_left(g->session)) {
        end(g, AG_FINISH_CONTEXT);
    }
    return AG_OK;
}

/* Feeds a token and chooses the one that follows. */
static ag_status next_token(generation *g, int32_t *id, ag_error *err) {
    const int32_t fed = *id;
    const ag_step_item item = {
        .session = g->session,
        .ids = &fed,
        .n = 1,
        .phase = AG_PHASE_DECODE,
        .logits = AG_LOGITS_LAST,
        .sampler = g->params->sampler,
        .chosen = id,
    };
    return ag_session_step(&item, 1, err);
}

static ag_status decode_loop(generation *g, double start, ag_error *err) {
    int32_t id;
    AG_TRY(ag_session_choose(g->session, g->params->sampler, &id, err));
    AG_TRY(take_token(g, id, err));
    const double first = ag_now_s();
    g->stats->first_token_s = first - start;
    while (!g->ended) {
        ag_status st = next_token(g, &id, err);
        if (st == AG_CANCELLED) end(g, AG_FINISH_CANCELLED);
        else if (st != AG_OK) return st;
        else AG_TRY(take_token(g, id, err));
        g->stats->decode_s = ag_now_s() - first;
    }
    return show_rest(g, err);
}

static ag_status run(generation *g, const int32_t *prompt, size_t n, ag_error *err) {
    const ag_generate_params *p = g->params;
    double start = ag_now_s();
    ag_status st = AG_OK;
    if (n || g->session->logits.place == AG_LOGITS_NOWHERE)
        st = ag_session_prefill(g->session, prompt, n, p->progress, p->progress_user, err);
    g->stats->prefill_s = ag_now_s() - start;
    if (st == AG_CANCELLED) {
        end(g, AG_FINISH_CANCELLED);
        return AG_OK;
    }
    if (st != AG_OK) return st;
    g->stats->n_prompt = n;
    for (size_t i = 0; i < n; i++) ag_sampler_accept(p->sampler, prompt[i]);
    if (!p->max_tokens) {
        end(g, AG_FINISH_MAX_TOKENS);
        return AG_OK;
    }
    st = decode_loop(g, start, err);
    /* The last row may have stayed on the device; it is the caller's. */
    ag_status brought = ag_session_need_logits(g->session, st == AG_OK ? err : NULL);
    return st == AG_OK ? brought : st;
}

static ag_status check(const ag_generate_params *p, ag_error *err) {
    if (!p->sampler) return AG_FAIL(err, INVALID, "generating needs a sampler");
    if (p->max_tokens < -1) {
        return AG_FAIL(err, INVALID, "%lld tokens to generate; -1 means until something stops",
                       (long long)p->max_tokens);
    }
    if (p->n_stop && !p->tokenizer) {
        return AG_FAIL(err, INVALID, "stop strings need a tokenizer");
    }
    for (size_t i = 0; i < p->n_stop; i++) {
        if (!*p->stop[i]) return AG_FAIL(err, INVALID, "stop string %zu is empty", i + 1);
    }
    return AG_OK;
}

static ag_eviction_tally since(const ag_eviction_tally *before, const ag_eviction_tally *now) {
    ag_eviction_tally t = *now;
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
    const ag_eviction_tally before = *ag_session_evictions(s);
    generation g = {
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
