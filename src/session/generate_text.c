/* SPDX-License-Identifier: Apache-2.0 */
/* Generated text: decodes accepted tokens and shows text up to a stop string. */
#include "core/alloc.h"
#include "core/fail.h"
#include "session/generation.h"

#include <string.h>

void ag_generation_end(ag_generation *g, ag_finish reason) {
    if (!g->ended) g->stats->finish = reason;
    g->ended = true;
}

static bool is_eos(const ag_model_info *info, int32_t id) {
    for (size_t i = 0; i < info->n_eos; i++) {
        if (info->eos_ids[i] == id) return true;
    }
    return false;
}

/* Shows the first n pending bytes. */
static void emit(ag_generation *g, int32_t id, size_t n) {
    const ag_generate_params *p = g->params;
    if (p->on_token && !p->on_token(p->on_token_user, id, n ? g->pending.data : "", n)) {
        ag_generation_end(g, AG_FINISH_CANCELLED);
    }
    if (n) {
        memmove(g->pending.data, g->pending.data + n, g->pending.len - n + 1);
        g->pending.len -= n;
    }
}

static ag_status show_token(ag_generation *g, int32_t id, ag_error *err) {
    if (!g->decoder) {
        emit(g, id, 0);
        return AG_OK;
    }
    AG_TRY(ag_decoder_push(g->decoder, id, &g->pending, err));
    bool found = false;
    size_t n = g->pending.len ? ag_stop_scan(&g->stop, g->pending.data, g->pending.len, &found) : 0;
    if (found) ag_generation_end(g, AG_FINISH_STOP_STRING);
    emit(g, id, n);
    return AG_OK;
}

ag_status ag_generation_show_pending(ag_generation *g, ag_error *err) {
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

ag_status ag_generation_accept(ag_generation *g, int32_t id, uint32_t space, ag_error *err) {
    const ag_generate_params *p = g->params;
    g->stats->last_id = id;
    if (!p->ignore_eos && is_eos(g->info, id)) {
        ag_generation_end(g, AG_FINISH_EOS);
        return AG_OK;
    }
    ag_sampler_accept(p->sampler, id);
    g->stats->n_generated++;
    AG_TRY(show_token(g, id, err));
    if (p->max_tokens > 0 && g->stats->n_generated >= (uint64_t)p->max_tokens) {
        ag_generation_end(g, AG_FINISH_MAX_TOKENS);
    } else if (!space) {
        ag_generation_end(g, AG_FINISH_CONTEXT);
    }
    return AG_OK;
}
