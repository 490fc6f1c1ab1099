/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "session/session_impl.h"

#include <string.h>

/* Logits of several rows are taken so many at a time: 8 MB for a vocabulary of 128k. */
enum { LOGIT_ROWS = 16 };

ag_session_params ag_session_defaults(void) {
    return (ag_session_params){
        .max_seq_len = 2048,
        .prefill_chunk = 512,
        .k_type = AG_F16,
        .v_type = AG_F16,
        .eviction = ag_eviction_defaults(),
    };
}

static ag_kv_params kv_params(const ag_model_info *info, const ag_session_params *p) {
    bool rotate = p->k_rotation == AG_K_ROTATION_ON ||
                  (p->k_rotation == AG_K_ROTATION_AUTO && p->k_type == AG_Q4_0);
    bool managed = ag_eviction_is_managed(&p->eviction);
    return (ag_kv_params){
        .n_layers = info->n_layers,
        .n_kv_heads = info->n_kv_heads,
        .head_dim = info->head_dim,
        .max_slots = p->max_seq_len,
        .k_type = p->k_type,
        .v_type = p->v_type,
        .n_protected = managed ? p->eviction.protected_prefix : 0,
        .hadamard = rotate,
    };
}

/* Fills in what the model decides: no more slots than positions it was trained for, and no longer
 * chunks than slots. */
static ag_status settle(const ag_model_info *info, const ag_session_params *params,
                        ag_session_params *out, ag_error *err) {
    *out = params ? *params : ag_session_defaults();
    if (!out->max_seq_len) return AG_FAIL(err, INVALID, "a cache of 0 tokens (max_seq_len)");
    if (!out->prefill_chunk) return AG_FAIL(err, INVALID, "prefill in chunks of 0 tokens");
    if (out->max_seq_len > info->max_positions) out->max_seq_len = info->max_positions;
    if (out->prefill_chunk > out->max_seq_len) out->prefill_chunk = out->max_seq_len;
    ag_eviction_complete(&out->eviction);
    if (!ag_eviction_is_managed(&out->eviction)) return AG_OK;
    ag_kv_params kv = kv_params(info, out);
    uint32_t budget;
    return ag_eviction_budget(&out->eviction, &kv, &budget, err);
}

/* A pass carries a chunk of one sequence, or one token of each of several. */
static size_t pass_rows(const ag_session_params *p) {
    return p->prefill_chunk > AG_MAX_SEQUENCES ? p->prefill_chunk : AG_MAX_SEQUENCES;
}

ag_status ag_session_plan_memory(const ag_model_info *info, const ag_session_params *params,
                                 ag_session_plan *out, ag_error *err) {
    ag_session_params p;
    AG_TRY(settle(info, params, &p, err));
    ag_kv_params kv = kv_params(info, &p);
    ag_workspace_shape ws = ag_llama_workspace_shape(info, pass_rows(&p));
    *out = (ag_session_plan){
        .kv_bytes = ag_kv_cache_plan_bytes(&kv),
        .workspace_bytes = ag_workspace_bytes(&ws) + info->n_vocab * sizeof(float),
        .eviction_bytes = ag_cache_manager_plan_bytes(&p.eviction, &kv),
    };
    return AG_OK;
}

ag_status ag_session_plan_largest(const ag_model_info *info, const ag_session_params *params,
                                  size_t *out, ag_error *err) {
    ag_session_params p;
    AG_TRY(settle(info, params, &p, err));
    ag_kv_params kv = kv_params(info, &p);
    ag_workspace_shape ws = ag_llama_workspace_shape(info, pass_rows(&p));
    const size_t segment = ag_kv_cache_plan_largest(&kv), activations = ag_workspace_bytes(&ws);
    *out = segment > activations ? segment : activations;
    return AG_OK;
}

static ag_status make_logits(ag_session *s, ag_error *err) {
    size_t n_vocab = s->model->info.n_vocab;
    AG_TRY(ag_tensor_alloc(&s->logits, &s->logits_owner, ag_backend_memory(s->model->backend),
                           AG_USAGE_SCRATCH, AG_F32, ag_shape_2d(1, n_vocab), err));
    /* Memory that can only be mapped for a while does not stay readable. */
    if (ag_buffer_is_mapped(s->logits_owner)) s->host_logits = ag_tensor_f32(&s->logits);
    if (s->host_logits) return AG_OK;
    s->copied = ag_malloc(n_vocab * sizeof *s->copied);
    s->host_logits = s->copied;
    return s->copied ? AG_OK : AG_FAIL(err, NOMEM, "%zu logits", n_vocab);
}

/* What attention needs for a full cache, so that decoding takes nothing more. */
static ag_status reserve_attention(const ag_session *s, ag_error *err) {
    const ag_model_info *info = &s->model->info;
    const ag_attention_room room = {
        .n_heads = info->n_heads,
        .n_kv_heads = info->n_kv_heads,
        .head_dim = info->head_dim,
        .n_slots = s->params.max_seq_len,
        .n_rows = s->params.prefill_chunk,
        .n_seqs = AG_MAX_SEQUENCES,
    };
    ag_backend *be = s->model->backend;
    return ag_take_error(be, ag_attention_reserve(be, &room), err);
}

ag_status ag_session_create(ag_model *model, const ag_session_params *params, ag_session **out,
                            ag_error *err) {
    *out = NULL;
    ag_session_params p;
    AG_TRY(settle(&model->info, params, &p, err));
    ag_session *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "session");
    s->model = model;
    s->params = p;
    ag_kv_params kv = kv_params(&model->info, &p);
    ag_workspace_shape ws = ag_llama_workspace_shape(&model->info, pass_rows(&p));
    ag_status st = ag_kv_cache_create(model->backend, &kv, &s->cache, err);
    if (st == AG_OK) {
        st = ag_cache_manager_create(s->cache, &p.eviction, ag_tensor_f32(&model->inv_freq),
                                     model->info.max_positions, &s->manager, err);
    }
    if (st == AG_OK) st = ag_workspace_reserve(&model->workspace, model->backend, &ws, err);
    if (st == AG_OK) st = make_logits(s, err);
    if (st == AG_OK) st = reserve_attention(s, err);
    if (st == AG_OK) {
        *out = s;
    } else {
        ag_session_destroy(s);
    }
    return st;
}

void ag_session_destroy(ag_session *s) {
    if (!s) return;
    ag_cache_manager_destroy(s->manager);
    ag_kv_cache_destroy(s->cache);
    ag_buffer_release(&s->logits_owner);
    ag_buffer_release(&s->rows_owner);
    ag_free(s->copied);
    ag_free(s);
}

ag_status ag_session_fork(ag_session *s, ag_session **out, ag_error *err) {
    AG_TRY(ag_session_need_logits(s, err));
    AG_TRY(ag_session_create(s->model, &s->params, out, err));
    ag_session *fork = *out;
    ag_status st = ag_kv_cache_share(fork->cache, s->cache, err);
    if (st == AG_OK) st = ag_cache_manager_copy(fork->manager, s->manager, err);
    if (st != AG_OK) {
        ag_session_destroy(fork);
        *out = NULL;
        return st;
    }
    fork->position = s->position;
    fork->has_logits = s->has_logits;
    if (s->has_logits)
        memcpy(fork->host_logits, s->host_logits, s->model->info.n_vocab * sizeof(float));
    return AG_OK;
}

void ag_session_reset(ag_session *s) {
    ag_kv_cache_clear(s->cache);
    ag_cache_manager_reset(s->manager);
    s->position = 0;
    s->has_logits = false;
}

ag_status ag_session_truncate(ag_session *s, uint32_t position, ag_error *err) {
    if (position > s->position) {
        return AG_FAIL(err, INVALID, "position %u to go back to, the session stands at %u",
                       position, s->position);
    }
    if (position == s->position) return AG_OK;
    s->has_logits = false;
    AG_TRY(ag_kv_cache_truncate(s->cache, position, err));
    ag_cache_manager_truncate(s->manager, position);
    s->position = position;
    return AG_OK;
}

/* The position after the last slot's; 0 for a head without slots. */
static uint32_t end_of(const ag_kv_cache *c, uint32_t layer, uint32_t head) {
    uint32_t n = ag_kv_cache_n_slots(c, layer, head);
    return n ? ag_kv_cache_position(c, layer, head, n - 1) + 1 : 0;
}

ag_status ag_session_follow_cache(ag_session *s, ag_error *err) {
    if (s->manager) return AG_FAIL(err, INVALID, "the cache is managed by an eviction policy");
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    uint32_t end = end_of(s->cache, 0, 0);
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
            if (end_of(s->cache, l, h) == end) continue;
            return AG_FAIL(err, INVALID, "layer %u, KV head %u ends before position %u, not %u", l,
                           h, end_of(s->cache, l, h), end);
        }
    }
    s->position = end;
    s->has_logits = false;
    return AG_OK;
}

uint32_t ag_session_position(const ag_session *s) { return s->position; }
ag_kv_cache *ag_session_kv_cache(ag_session *s) { return s->cache; }
const ag_model_info *ag_session_model_info(const ag_session *s) { return &s->model->info; }
const float *ag_session_logits(const ag_session *s) {
    return s->has_logits && !s->on_device ? s->host_logits : NULL;
}

static const ag_eviction_tally nothing_left;

const ag_eviction_tally *ag_session_evictions(const ag_session *s) {
    return s->manager ? ag_cache_manager_tally(s->manager) : &nothing_left;
}

const ag_eviction_tally *ag_session_last_evictions(const ag_session *s) {
    return s->manager ? ag_cache_manager_last_tally(s->manager) : &nothing_left;
}

uint32_t ag_session_kv_budget(const ag_session *s) {
    return s->manager ? ag_cache_manager_budget(s->manager) : 0;
}

void ag_session_memory_hint(ag_session *s, ag_pressure level) {
    ag_cache_manager_hint(s->manager, level);
}

ag_pressure ag_session_memory_pressure(const ag_session *s) {
    return ag_cache_manager_pressure(s->manager);
}

uint32_t ag_session_capacity_left(const ag_session *s) {
    if (s->manager) return (uint32_t)INT32_MAX - s->position;
    uint32_t slots = s->params.max_seq_len - ag_kv_cache_length(s->cache);
    uint32_t positions =
        s->position < s->model->info.max_positions ? s->model->info.max_positions - s->position : 0;
    return slots < positions ? slots : positions;
}

void ag_session_cancel(ag_session *s) { atomic_store(&s->cancelled, true); }

static ag_status heed_cancel(ag_session *s, ag_error *err) {
    if (!atomic_exchange(&s->cancelled, false)) return AG_OK;
    return AG_FAIL(err, CANCELLED, "cancelled at position %u", s->position);
}

static ag_status check_ids(const ag_session *s, const int32_t *ids, size_t n, ag_error *err) {
    if (!n) return AG_FAIL(err, INVALID, "no tokens to consume");
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->model->info.n_vocab) {
            return AG_FAIL(err, INVALID, "token id %d (the %zu. of %zu), the vocabulary has %u",
                           ids[i], i + 1, n, s->model->info.n_vocab);
        }
    }
    uint32_t left = ag_session_capacity_left(s);
    if (n > left && s->manager) {
        return AG_FAIL(err, LIMIT, "%zu tokens after position %u: they cannot be counted", n,
                       s->position);
    }
    if (n > left) {
        return AG_FAIL(err, LIMIT, "%zu tokens do not fit: %u of %u are used (max_seq_len)", n,
                       s->params.max_seq_len - left, s->params.max_seq_len);
    }
    return AG_OK;
}

static ag_status read_logits(ag_session *s, ag_error *err) {
    if (!s->copied) return ag_buffer_sync(s->logits_owner, err);
    s->on_device = s->deferring;
    if (s->on_device) return AG_OK;
    return ag_buffer_download(s->copied, s->logits_owner, 0, ag_tensor_bytes(&s->logits), err);
}

/* One chunk through the model; its tokens are consumed. n_left more of the call follow. *whole: the
 * last token's logits are there, too, and its hidden state is not; NULL: that is not wanted. */
static ag_status forward_chunk(ag_session *s, const int32_t *ids, size_t n, size_t n_left,
                               bool *whole, ag_error *err) {
    AG_TRY(heed_cancel(s, err));
    ag_forward_item item = {.cache = s->cache, .ids = ids, .n = n, .position = s->position};
    const bool ask = s->deferring && s->top_wanted;
    s->on_device = s->top_wanted = s->top_known = false;
    AG_TRY(ag_cache_manager_before(s->manager, s->position, n, n_left, &item.scores, err));
    bool done = false;
    if (whole && n == 1 && !n_left) {
        float *copy = s->deferring ? NULL : s->copied;
        ag_row_top *top = ask ? &s->top : NULL;
        AG_TRY(ag_llama_decode(s->model, &item, &s->logits, copy, top, &done, err));
        s->on_device = done && s->copied && s->deferring;
        s->top_known = done && ask && s->top.known;
    }
    if (!done) AG_TRY(ag_llama_forward(s->model, &item, 1, err));
    if (whole) *whole = done;
    s->position += (uint32_t)n;
    s->has_logits = false;
    return ag_cache_manager_after(s->manager, s->position, n_left, err);
}

ag_status ag_session_prefill(ag_session *s, const int32_t *ids, size_t n, ag_progress_fn progress,
                             void *user, ag_error *err) {
    AG_TRY(check_ids(s, ids, n, err));
    AG_TRY(ag_cache_manager_begin(s->manager, n, err));
    size_t done = 0, last = 0;
    bool whole = false;
    while (done < n) {
        last = ag_cache_manager_chunk(s->manager, n - done, s->params.prefill_chunk);
        AG_TRY(forward_chunk(s, ids + done, last, n - done - last, &whole, err));
        done += last;
        if (progress && !progress(user, done, n)) {
            return AG_FAIL(err, CANCELLED, "cancelled after %zu of %zu tokens", done, n);
        }
    }
    if (!whole) {
        AG_TRY(ag_llama_logits(s->model, last - 1, 1, &s->logits, err));
        AG_TRY(read_logits(s, err));
    }
    s->has_logits = true;
    return AG_OK;
}

ag_status ag_session_decode(ag_session *s, int32_t id, ag_error *err) {
    return ag_session_prefill(s, &id, 1, NULL, NULL, err);
}

/* ---- logits of several rows ---- */

static ag_status make_rows(ag_session *s, ag_error *err) {
    if (s->rows_owner) return AG_OK;
    return ag_tensor_alloc(&s->rows, &s->rows_owner, ag_backend_memory(s->model->backend),
                           AG_USAGE_SCRATCH, AG_F32,
                           ag_shape_2d(LOGIT_ROWS, s->model->info.n_vocab), err);
}

/* Logits of the last pass's row, through s->rows, into the session's own. */
static ag_status take_row(ag_session *s, ag_session *scratch, size_t row_in_group, ag_error *err) {
    size_t bytes = ag_tensor_bytes(&s->logits);
    AG_TRY(
        ag_buffer_download(s->host_logits, scratch->rows_owner, row_in_group * bytes, bytes, err));
    s->has_logits = true;
    s->on_device = false;
    return AG_OK;
}

static ag_status group_logits(ag_session *scratch, size_t row0, size_t n, ag_error *err) {
    ag_tensor group;
    AG_TRY(ag_tensor_rows(&group, &scratch->rows, 0, n, err));
    return ag_llama_logits(scratch->model, row0, n, &group, err);
}

static ag_status score_chunk(ag_session *s, size_t first, size_t n, ag_logits_fn row, void *user,
                             ag_error *err) {
    for (size_t r = 0; r < n; r++) {
        size_t in_group = r % LOGIT_ROWS;
        if (!in_group) {
            size_t group = n - r < LOGIT_ROWS ? n - r : LOGIT_ROWS;
            AG_TRY(group_logits(s, r, group, err));
        }
        AG_TRY(take_row(s, s, in_group, err));
        if (!row(user, first + r, s->host_logits)) {
            return AG_FAIL(err, CANCELLED, "cancelled at token %zu", first + r);
        }
    }
    return AG_OK;
}

ag_status ag_session_score(ag_session *s, const int32_t *ids, size_t n, ag_logits_fn row,
                           void *user, ag_error *err) {
    AG_TRY(check_ids(s, ids, n, err));
    AG_TRY(make_rows(s, err));
    AG_TRY(ag_cache_manager_begin(s->manager, n, err));
    for (size_t done = 0; done < n;) {
        size_t chunk = ag_cache_manager_chunk(s->manager, n - done, s->params.prefill_chunk);
        AG_TRY(forward_chunk(s, ids + done, chunk, n - done - chunk, NULL, err));
        AG_TRY(score_chunk(s, done, chunk, row, user, err));
        done += chunk;
    }
    return AG_OK;
}

/* ---- several sessions ---- */

static ag_status check_batch(ag_session *const sessions[], const int32_t ids[], size_t n,
                             ag_error *err) {
    if (!n || n > AG_MAX_SEQUENCES) {
        return AG_FAIL(err, INVALID, "%zu sessions in one call, 1 to %d are possible", n,
                       AG_MAX_SEQUENCES);
    }
    for (size_t i = 0; i < n; i++) {
        if (sessions[i]->model != sessions[0]->model) {
            return AG_FAIL(err, INVALID, "session %zu belongs to another model", i);
        }
        for (size_t j = 0; j < i; j++) {
            if (sessions[i] == sessions[j]) {
                return AG_FAIL(err, INVALID, "sessions %zu and %zu are the same", j, i);
            }
        }
        AG_TRY(check_ids(sessions[i], &ids[i], 1, err));
        AG_TRY(heed_cancel(sessions[i], err));
    }
    return AG_OK;
}

/* Every session's logits from the last pass, whose rows are the sessions in order. */
static ag_status batch_logits(ag_session *const sessions[], size_t n, ag_error *err) {
    ag_session *first = sessions[0];
    for (size_t i = 0; i < n; i++) {
        if (i % LOGIT_ROWS == 0) {
            AG_TRY(group_logits(first, i, n - i < LOGIT_ROWS ? n - i : LOGIT_ROWS, err));
        }
        AG_TRY(take_row(sessions[i], first, i % LOGIT_ROWS, err));
    }
    return AG_OK;
}

ag_status ag_decode_batch(ag_session *const sessions[], const int32_t ids[], size_t n,
                          ag_error *err) {
    AG_TRY(check_batch(sessions, ids, n, err));
    ag_session *first = sessions[0];
    AG_TRY(make_rows(first, err));
    ag_forward_item items[AG_MAX_SEQUENCES];
    for (size_t i = 0; i < n; i++) {
        items[i] = (ag_forward_item){
            .cache = sessions[i]->cache, .ids = &ids[i], .n = 1, .position = sessions[i]->position};
        AG_TRY(ag_cache_manager_begin(sessions[i]->manager, 1, err));
        AG_TRY(ag_cache_manager_before(sessions[i]->manager, sessions[i]->position, 1, 0,
                                       &items[i].scores, err));
    }
    AG_TRY(ag_llama_forward(first->model, items, n, err));
    ag_status st = batch_logits(sessions, n, err);
    for (size_t i = 0; i < n; i++) {
        if (st == AG_OK) {
            sessions[i]->position++;
        } else {
            ag_kv_cache_truncate(sessions[i]->cache, sessions[i]->position, NULL);
        }
        sessions[i]->has_logits = st == AG_OK;
    }
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        st = ag_cache_manager_after(sessions[i]->manager, sessions[i]->position, 0, err);
    }
    return st;
}
