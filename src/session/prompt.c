/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill, decode and score: feed a text in steps. */
#include "core/alloc.h"
#include "core/fail.h"
#include "session/session_impl.h"

ag_status ag_session_begin_prompt(ag_session *s, size_t n, ag_error *err) {
    AG_TRY(ag_cache_manager_begin(s->manager, AG_PHASE_PROMPT, n, err));
    s->prompt_remaining = n;
    return AG_OK;
}

size_t ag_session_prompt_rows(const ag_session *s) {
    return ag_cache_manager_chunk(s->manager, s->position, s->prompt_remaining,
                                  s->params.prefill_chunk);
}

/* Row callback of a call: the rows of an item begin at `first`. */
typedef struct row_relay {
    ag_logits_fn row;
    void *user;
    size_t first;
} row_relay;

static bool relay_row(void *user, size_t i, const float *logits) {
    const row_relay *relay = user;
    return relay->row(relay->user, relay->first + i, logits);
}

/* Feeds ids in chunks; a single token is decoded. relay NULL: computes the last token's logits
 * only. */
static ag_status consume(ag_session *s, const int32_t *ids, size_t n, row_relay *relay,
                         ag_progress_fn progress, void *user, ag_error *err) {
    AG_TRY(ag_session_check_ids(s, ids, n, err));
    s->prompt_remaining = 0;
    if (n > 1) AG_TRY(ag_session_begin_prompt(s, n, err));
    for (size_t done = 0, rows = 0; done < n; done += rows) {
        rows = n > 1 ? ag_session_prompt_rows(s) : 1;
        ag_step_item item = {
            .session = s,
            .ids = ids + done,
            .n = rows,
            .phase = n > 1 ? AG_PHASE_PROMPT : AG_PHASE_DECODE,
            .logits = done + rows == n ? AG_LOGITS_LAST : AG_LOGITS_NONE,
        };
        if (relay) {
            relay->first = done;
            item.logits = AG_LOGITS_ALL;
            item.row = relay_row;
            item.row_user = relay;
        }
        AG_TRY(ag_session_step(&item, 1, err));
        if (progress && !progress(user, done + rows, n)) {
            s->prompt_remaining = 0;
            return AG_FAIL(err, CANCELLED, "cancelled after %zu of %zu tokens", done + rows, n);
        }
    }
    return AG_OK;
}

ag_status ag_session_prefill(ag_session *s, const int32_t *ids, size_t n, ag_progress_fn progress,
                             void *user, ag_error *err) {
    return consume(s, ids, n, NULL, progress, user, err);
}

ag_status ag_session_decode(ag_session *s, int32_t id, ag_error *err) {
    return consume(s, &id, 1, NULL, NULL, NULL, err);
}

ag_status ag_session_decode_batch(ag_session *const sessions[], const int32_t ids[], size_t n,
                                  ag_error *err) {
    enum { USUAL = 64 };
    ag_step_item usual[USUAL] = {{0}}, *items = usual;
    if (n > USUAL) items = ag_malloc(n * sizeof *items);
    if (!items) return AG_FAIL(err, NOMEM, "step of %zu sessions", n);
    for (size_t i = 0; i < n; i++) {
        items[i] = (ag_step_item){.session = sessions[i],
                                  .ids = &ids[i],
                                  .n = 1,
                                  .phase = AG_PHASE_DECODE,
                                  .logits = AG_LOGITS_LAST};
    }
    ag_status st = ag_session_step(items, n, err);
    if (items != usual) ag_free(items);
    return st;
}

ag_status ag_session_score(ag_session *s, const int32_t *ids, size_t n, ag_logits_fn row,
                           void *user, ag_error *err) {
    row_relay relay = {.row = row, .user = user};
    return consume(s, ids, n, &relay, NULL, NULL, err);
}
