/* SPDX-License-Identifier: Apache-2.0 */
/* A step: rows of any mixture of sessions through the model once. Prefill, decode and score stand
 * on it. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/rollback.h"
#include "session/session_impl.h"

/* ---- what may be asked ---- */

/* Whether n more tokens fit, and whether they are in the vocabulary. */
static ag_status check_ids(const ag_session *s, const int32_t *ids, size_t n, ag_error *err) {
    if (!n) return AG_FAIL(err, INVALID, "no tokens to consume");
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->model->info.n_vocab) {
            return AG_FAIL(err, INVALID,
                           "token id %d (token %zu of %zu) is outside the vocabulary of %u", ids[i],
                           i + 1, n, s->model->info.n_vocab);
        }
    }
    uint32_t left = ag_session_capacity_left(s);
    if (n > left && s->manager) {
        return AG_FAIL(err, LIMIT, "position %u + %zu tokens exceeds the limit of 2^31 - 1",
                       s->position, n);
    }
    if (n > left && left < ag_kv_cache_free_slots(s->cache)) {
        return AG_FAIL(err, LIMIT, "position %u + %zu tokens exceeds the model's %u positions",
                       s->position, n, s->model->info.max_positions);
    }
    if (n > left) {
        return AG_FAIL(err, LIMIT, "%zu tokens do not fit: %u of %u are used (max_seq_len)", n,
                       s->params.max_seq_len - left, s->params.max_seq_len);
    }
    return AG_OK;
}

static ag_status check_items(const ag_step_item *items, size_t n, ag_error *err) {
    if (!n) return AG_FAIL(err, INVALID, "a step of no items");
    for (size_t i = 0; i < n; i++) {
        const ag_step_item *item = &items[i];
        if (item->session->model != items[0].session->model) {
            return AG_FAIL(err, INVALID, "session %zu belongs to another model", i);
        }
        for (size_t j = 0; j < i; j++) {
            if (item->session == items[j].session) {
                return AG_FAIL(err, INVALID, "sessions %zu and %zu are the same", j, i);
            }
        }
        if (item->sampler && (!item->chosen || item->logits == AG_LOGITS_NONE)) {
            return AG_FAIL(err, INVALID, "item %zu has a sampler, but no %s", i,
                           item->chosen ? "logits to choose from" : "place for what it chooses");
        }
        if (item->n > item->session->params.prefill_chunk) {
            return AG_FAIL(err, LIMIT,
                           "item %zu brings %zu tokens, a step takes %u (prefill_chunk)", i,
                           item->n, item->session->params.prefill_chunk);
        }
        if (item->phase == AG_PHASE_VERIFY && item->session->state && item->n > AG_ROLLBACK) {
            return AG_FAIL(err, LIMIT,
                           "item %zu brings %zu tokens to verify, layers with a state take %d back",
                           i, item->n, AG_ROLLBACK);
        }
        AG_TRY(check_ids(item->session, item->ids, item->n, err));
    }
    return AG_OK;
}

/* ---- the pass ---- */

/* Of a prompt that has been announced, or a token for itself. */
static bool goes_on(const ag_step_item *item) {
    return item->phase == AG_PHASE_PROMPT && item->session->prompt_left >= item->n;
}

/* Tokens of the same prompt that later steps bring. */
static size_t n_following(const ag_step_item *item) {
    return goes_on(item) ? item->session->prompt_left - item->n : 0;
}

/* Of its first rows nobody asks what comes out of the last layer. */
static size_t n_unwanted(const ag_step_item *item) {
    if (item->hidden || item->logits == AG_LOGITS_ALL) return 0;
    return item->logits == AG_LOGITS_LAST ? item->n - 1 : item->n;
}

static ag_status begin_item(const ag_step_item *item, ag_sequence *seq, ag_error *err) {
    ag_session *s = item->session;
    if (!s->manager) AG_TRY(ag_kv_cache_expire(s->cache, s->position, err));
    if (!goes_on(item)) AG_TRY(ag_cache_manager_begin(s->manager, item->phase, item->n, err));
    *seq = (ag_sequence){.cache = s->cache,
                         .ids = item->ids,
                         .n = item->n,
                         .position = s->position,
                         .state = s->state,
                         .n_unwanted = n_unwanted(item),
                         .is_long = s->is_long,
                         .cancel = &s->cancelled};
    return ag_cache_manager_before(s->manager, s->position, item->n, n_following(item),
                                   &seq->scores, err);
}

/* One token of one session down to its logits, if the device has a way of its own: *done. */
static ag_status device_step(const ag_step_item *item, ag_sequence *seq, bool *done,
                             ag_error *err) {
    ag_session *s = item->session;
    *done = false;
    if (item->n != 1 || item->logits == AG_LOGITS_NONE || n_following(item) || item->hidden)
        return AG_OK;
    const bool stays = item->sampler && ag_session_chooses_on_device(s);
    ag_top_k *top = stays && ag_session_ask_top(s, item->sampler) ? &s->logits.top : NULL;
    AG_TRY(ag_model_device_step(s->model, seq, &s->logits.row, stays ? NULL : s->logits.copied, top,
                                done, err));
    if (!*done) return AG_OK;
    s->logits.place = stays ? AG_LOGITS_ON_DEVICE : AG_LOGITS_ON_HOST;
    return s->logits.copied ? AG_OK : ag_buffer_sync(s->logits.owner, err);
}

static ag_status run_pass(const ag_step_item *items, size_t n, bool *has_logits, ag_error *err) {
    ag_model *m = items[0].session->model;
    size_t n_rows = 0;
    *has_logits = false;
    for (size_t i = 0; i < n; i++) n_rows += items[i].n;
    AG_TRY(ag_model_reserve(m, n_rows, n, err));
    for (size_t i = 0; i < n; i++) {
        items[i].session->logits.place = AG_LOGITS_NOWHERE;
        items[i].session->logits.top.known = false;
        items[i].session->choice_ended = false;
        AG_TRY(begin_item(&items[i], &m->sequences[i], err));
    }
    if (n == 1) AG_TRY(device_step(&items[0], &m->sequences[0], has_logits, err));
    return *has_logits ? AG_OK : ag_model_forward(m, m->sequences, n, err);
}

/* ---- logits ---- */

/* A row of the pass whose logits are wanted. */
typedef struct wanted_row {
    const ag_step_item *item;
    size_t i; /* of the item's tokens */
} wanted_row;

/* Goes through the rows that are wanted, item after item. */
typedef struct row_walk {
    const ag_step_item *items;
    size_t n, at; /* items, the one at hand */
    size_t row;   /* of its tokens */
    size_t row0;  /* its first row in the pass */
} row_walk;

static bool is_wanted(const ag_step_item *item, size_t row) {
    return item->logits == AG_LOGITS_ALL || (item->logits == AG_LOGITS_LAST && row + 1 == item->n);
}

/* The next wanted row and its number in the pass; false past the last. */
static bool next_row(row_walk *w, wanted_row *out, size_t *pass_row) {
    for (; w->at < w->n; w->row0 += w->items[w->at].n, w->at++, w->row = 0) {
        const ag_step_item *item = &w->items[w->at];
        while (w->row < item->n && !is_wanted(item, w->row)) w->row++;
        if (w->row == item->n) continue;
        *out = (wanted_row){item, w->row};
        *pass_row = w->row0 + w->row++;
        return true;
    }
    return false;
}

/* Whether the token of that row is one that the sampler chose from the row before. */
static bool is_chosen(const ag_step_item *item, size_t i) {
    return i == 0 || (!item->session->choice_ended && item->chosen[i - 1] == item->ids[i]);
}

/* Whether nobody will look at the row: it follows a token that was not chosen. */
static bool is_refused(const ag_step_item *item, size_t i) {
    return item->sampler && !item->row && item->logits == AG_LOGITS_ALL && !is_chosen(item, i);
}

/* A token chosen from row i, before the next choice. */
static void accept_choice(const ag_step_item *item, size_t i, int32_t id) {
    if (item->on_chosen && item->logits == AG_LOGITS_ALL) {
        if (!item->on_chosen(item->on_chosen_user, i, id)) item->session->choice_ended = true;
    } else if (i + 1 < item->n && is_chosen(item, i + 1)) {
        ag_sampler_accept(item->sampler, id);
    }
}

/* A row's logits are the session's: its caller gets them, or its sampler. Where the sampler chose
 * otherwise than the tokens of the item go on, rows behind follow what nobody chose. */
static ag_status deliver(const wanted_row *r, ag_error *err) {
    const ag_step_item *item = r->item;
    const bool all = item->logits == AG_LOGITS_ALL;
    if (item->row) {
        AG_TRY(ag_session_need_logits(item->session, err));
        if (!item->row(item->row_user, r->i, item->session->logits.host)) {
            return AG_FAIL(err, CANCELLED, "cancelled at token %zu", r->i);
        }
    }
    if (!item->sampler) return AG_OK;
    int32_t *chosen = all ? &item->chosen[r->i] : item->chosen;
    *chosen = -1;
    if (all && !is_chosen(item, r->i)) return AG_OK;
    AG_TRY(ag_session_choose(item->session, item->sampler, chosen, err));
    accept_choice(item, r->i, *chosen);
    return AG_OK;
}

size_t ag_logit_rows_bytes(const ag_model_info *info) {
    return AG_LOGIT_ROWS * info->n_vocab * sizeof(float);
}

ag_status ag_session_make_logit_rows(ag_session *s, ag_error *err) {
    ag_model *m = s->model;
    if (m->logit_rows_owner) return AG_OK;
    return ag_tensor_alloc(&m->logit_rows, &m->logit_rows_owner, ag_backend_memory(m->backend),
                           AG_USAGE_SCRATCH, AG_F32, ag_shape_2d(AG_LOGIT_ROWS, m->info.n_vocab),
                           err);
}

/* Row number `row` of the group becomes the logits of its session. */
static ag_status hand_over(ag_model *m, const wanted_row *r, size_t row, ag_error *err) {
    ag_session *s = r->item->session;
    const size_t bytes = ag_tensor_bytes(&s->logits.row);
    if (is_refused(r->item, r->i)) {
        r->item->chosen[r->i] = -1;
        return AG_OK;
    }
    s->logits.top.known = false;
    s->logits.place = AG_LOGITS_NOWHERE;
    if (r->item->sampler && !r->item->row && ag_session_chooses_on_device(s)) {
        ag_tensor from;
        AG_TRY(ag_tensor_rows(&from, &m->logit_rows, row, 1, err));
        AG_TRY(ag_take_error(
            m->backend, ag_copy_slice(m->backend, &s->logits.row, 0, &from, 0, m->info.n_vocab),
            err));
        s->logits.place = AG_LOGITS_ON_DEVICE;
    } else {
        AG_TRY(ag_buffer_download(s->logits.host, m->logit_rows_owner, row * bytes, bytes, err));
        s->logits.place = AG_LOGITS_ON_HOST;
    }
    return deliver(r, err);
}

/* The rows' hidden states side by side, where the residual stream was, which is no longer needed.
 */
static ag_status gather_rows(ag_model *m, const size_t *rows, size_t n, ag_error *err) {
    const size_t dim = m->info.hidden_size;
    ag_workspace *ws = &m->workspace;
    for (size_t i = 0; i < n; i++) {
        AG_TRY(ag_take_error(
            m->backend,
            ag_copy_slice(m->backend, &ws->residual, i * dim, &ws->normed, rows[i] * dim, dim),
            err));
    }
    return AG_OK;
}

static ag_status group_logits(ag_model *m, const wanted_row *wanted, const size_t *rows, size_t n,
                              ag_error *err) {
    const bool adjacent = rows[n - 1] - rows[0] == n - 1;
    ag_tensor logits;
    AG_TRY(ag_tensor_rows(&logits, &m->logit_rows, 0, n, err));
    if (!adjacent) AG_TRY(gather_rows(m, rows, n, err));
    const ag_tensor *hidden = adjacent ? &m->workspace.normed : &m->workspace.residual;
    AG_TRY(ag_model_logits(m, hidden, adjacent ? rows[0] : 0, n, &logits, err));
    for (size_t i = 0; i < n; i++) AG_TRY(hand_over(m, &wanted[i], i, err));
    return AG_OK;
}

static ag_status many_logits(ag_model *m, const ag_step_item *items, size_t n, ag_error *err) {
    row_walk walk = {.items = items, .n = n};
    wanted_row wanted[AG_LOGIT_ROWS];
    size_t rows[AG_LOGIT_ROWS], n_rows = 0;
    AG_TRY(ag_session_make_logit_rows(items[0].session, err));
    while (next_row(&walk, &wanted[n_rows], &rows[n_rows])) {
        if (++n_rows < AG_LOGIT_ROWS) continue;
        AG_TRY(group_logits(m, wanted, rows, n_rows, err));
        n_rows = 0;
    }
    return n_rows ? group_logits(m, wanted, rows, n_rows, err) : AG_OK;
}

/* The last row of the only item, without a detour. */
static ag_status one_row(const ag_step_item *item, bool computed, ag_error *err) {
    ag_session *s = item->session;
    const wanted_row last = {item, item->n - 1};
    if (!computed) {
        ag_model *m = s->model;
        AG_TRY(ag_model_logits(m, &m->workspace.normed, item->n - 1, 1, &s->logits.row, err));
        s->logits.place = s->logits.copied ? AG_LOGITS_ON_DEVICE : AG_LOGITS_ON_HOST;
        if (!s->logits.copied) AG_TRY(ag_buffer_sync(s->logits.owner, err));
        const bool stays = item->sampler && ag_session_chooses_on_device(s);
        if (!stays) AG_TRY(ag_session_need_logits(s, err));
    }
    return deliver(&last, err);
}

static ag_status take_logits(const ag_step_item *items, size_t n, bool computed, ag_error *err) {
    const bool one = n == 1 && (items[0].n == 1 || items[0].logits == AG_LOGITS_LAST);
    size_t n_wanted = 0;
    for (size_t i = 0; i < n; i++) n_wanted += items[i].logits != AG_LOGITS_NONE;
    if (!n_wanted) return AG_OK;
    if (one) return one_row(&items[0], computed, err);
    return many_logits(items[0].session->model, items, n, err);
}

/* ---- hidden states ---- */

static bool wants_hidden(const ag_step_item *items, size_t n) {
    bool any = false;
    for (size_t i = 0; i < n; i++) any = any || items[i].hidden;
    return any;
}

/* Every row's, where embedding rows were on their way in. */
static ag_status give_hidden(const ag_step_item *items, size_t n, ag_error *err) {
    ag_model *m = items[0].session->model;
    const size_t dim = m->info.hidden_size;
    const ag_tensor *normed = &m->workspace.normed;
    const float *row = m->workspace.host_rows;
    size_t n_rows = 0;
    if (!wants_hidden(items, n)) return AG_OK;
    for (size_t i = 0; i < n; i++) n_rows += items[i].n;
    AG_TRY(ag_buffer_download(m->workspace.host_rows, normed->buffer, normed->offset,
                              n_rows * dim * sizeof(float), err));
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < items[i].n; k++, row += dim) {
            if (items[i].hidden && !items[i].hidden(items[i].hidden_user, k, row))
                return AG_FAIL(err, CANCELLED, "cancelled at token %zu", k);
        }
    }
    return AG_OK;
}

/* ---- the step ---- */

/* Nothing has been consumed. */
static void undo(const ag_step_item *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ag_session *s = items[i].session;
        ag_cache_manager_abandon(s->manager);
        ag_kv_cache_truncate(s->cache, s->position, NULL);
        ag_layer_state_truncate(s->state, s->position, NULL);
        ag_cache_manager_truncate(s->manager, s->position);
        s->logits.place = AG_LOGITS_NOWHERE;
        s->prompt_left = 0;
    }
}

/* A cancellation is heeded once. */
static bool take_cancel(const ag_step_item *items, size_t n) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (atomic_exchange(&items[i].session->cancelled, false)) any = true;
    }
    return any;
}

/* The tokens are consumed. What cannot leave the cache now leaves before the next pass, or that
 * step fails. */
static void finish_items(const ag_step_item *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ag_session *s = items[i].session;
        const size_t left = n_following(&items[i]);
        s->position += (uint32_t)items[i].n;
        s->prompt_left = left;
        if (s->manager) ag_cache_manager_after(s->manager, s->position, left);
        else if (items[i].phase != AG_PHASE_VERIFY) /* a draft may be taken back */
            (void)ag_kv_cache_expire(s->cache, s->position, NULL);
    }
}

/* Whether there is a step at all; announced prompts end if not. */
static ag_status check_step(const ag_step_item *items, size_t n, ag_error *err) {
    ag_status st = check_items(items, n, err);
    if (st == AG_OK && take_cancel(items, n))
        st = AG_FAIL(err, CANCELLED, "cancelled before the step");
    for (size_t i = 0; st != AG_OK && i < n; i++) items[i].session->prompt_left = 0;
    return st;
}

ag_status ag_session_step(const ag_step_item items[], size_t n, ag_error *err) {
    bool computed = false;
    AG_TRY(check_step(items, n, err));
    ag_status st = run_pass(items, n, &computed, err);
    if (st == AG_OK) st = give_hidden(items, n, err);
    if (st == AG_OK) st = take_logits(items, n, computed, err);
    if (st == AG_CANCELLED) take_cancel(items, n);
    if (st == AG_OK) finish_items(items, n);
    else undo(items, n);
    return st;
}

void ag_session_cancel(ag_session *s) { atomic_store(&s->cancelled, true); }

/* ---- what stands on it ---- */

ag_status ag_session_begin_prompt(ag_session *s, size_t n, ag_error *err) {
    AG_TRY(ag_cache_manager_begin(s->manager, AG_PHASE_PROMPT, n, err));
    s->prompt_left = n;
    return AG_OK;
}

size_t ag_session_prompt_rows(const ag_session *s) {
    return ag_cache_manager_chunk(s->manager, s->position, s->prompt_left, s->params.prefill_chunk);
}

/* Rows of an item are counted from its first token, those of a call from the call's. */
typedef struct row_relay {
    ag_logits_fn row;
    void *user;
    size_t first;
} row_relay;

static bool relay_row(void *user, size_t i, const float *logits) {
    const row_relay *relay = user;
    return relay->row(relay->user, relay->first + i, logits);
}

/* A prompt step by step; one token alone is decoded. relay NULL: logits of the last token. */
static ag_status consume(ag_session *s, const int32_t *ids, size_t n, row_relay *relay,
                         ag_progress_fn progress, void *user, ag_error *err) {
    AG_TRY(check_ids(s, ids, n, err));
    s->prompt_left = 0;
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
            s->prompt_left = 0;
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
    if (!items) return AG_FAIL(err, NOMEM, "a step of %zu sessions", n);
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
